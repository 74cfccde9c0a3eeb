//! How a command fails: what people read and which exit code scripts see.

use proto_node::Violation;
use tonic::{Code, Status};

use crate::agent_address::AgentAddress;
use crate::unreachable::unreachable;

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Refused, or not there.
    #[error("{0}")]
    Refused(String),
    /// What was typed makes no sense.
    #[error("error: {0}")]
    Usage(String),
    /// A file cannot be read.
    #[error("{0}")]
    Unreadable(String),
    /// The agent cannot be reached.
    #[error("{0}")]
    Unreachable(String),
    /// `--timeout` is over.
    #[error("{0}")]
    TimedOut(String),
    /// Ctrl+C.
    #[error("{0}")]
    Interrupted(String),
    /// The reasons are printed already; this is the code that scripts see.
    #[error("")]
    AlreadyReported(u8),
    /// Whoever reads standard output has gone. Nobody is left to tell.
    #[error("")]
    OutputClosed,
}

impl Failure {
    /// A refusal in words of our own.
    pub fn refused(text: impl Into<String>) -> Self {
        Self::Refused(format!("error: {}", text.into()))
    }

    /// The code that scripts see.
    pub const fn exit_code(&self) -> u8 {
        match self {
            Self::Refused(_) => 1,
            Self::Usage(_) | Self::Unreadable(_) => 2,
            Self::Unreachable(_) => 3,
            Self::TimedOut(_) => 124,
            Self::Interrupted(_) => 130,
            Self::AlreadyReported(code) => *code,
            Self::OutputClosed => 0,
        }
    }

    /// What the agent answered about an object of `kind` and `name`.
    pub fn of_status(status: &Status, kind: &str, name: &str, address: &AgentAddress) -> Self {
        if is_unreachable(status) {
            return Self::Unreachable(match address {
                AgentAddress::Socket(_) => unreachable(address, status.message()),
                AgentAddress::Server { .. } => unreachable(address, &with_causes(status)),
            });
        }
        let violations = proto_node::violations(status);
        if !violations.is_empty() {
            return Self::Refused(invalid_text(kind, name, &violations));
        }
        if let Some(reason) = proto_node::failure_reason(status) {
            return Self::Refused(format!(
                "Error from server ({}): {}",
                reason.as_str(),
                status.message()
            ));
        }
        Self::Refused(format!(
            "Error from server ({:?}): {}",
            status.code(),
            status.message()
        ))
    }
}

/// Whether the answer comes from the connection rather than from the agent.
pub fn is_unreachable(status: &Status) -> bool {
    proto_node::failure_reason(status).is_none()
        && (status.code() == Code::Unavailable
            || (matches!(
                status.code(),
                Code::Unknown | Code::Cancelled | Code::Internal
            ) && std::error::Error::source(status).is_some()))
}

/// The transport's message and its causes; causes that only repeat the text before them are left out.
fn with_causes(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    while let Some(error) = cause {
        let says = error.to_string();
        if !says.is_empty() && !text.contains(&says) {
            text = format!("{text}: {says}");
        }
        cause = error.source();
    }
    text
}

/// Why a file cannot be had, without the number of the error.
pub fn file_error(error: &std::io::Error) -> String {
    if error.kind() == std::io::ErrorKind::NotFound {
        return "no such file".to_owned();
    }
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// Why a file cannot be opened, in the words of programs of Go such as `virtctl`.
pub fn open_error(path: &str, error: &std::io::Error) -> String {
    let why = match error.kind() {
        std::io::ErrorKind::NotFound => "no such file or directory".to_owned(),
        _ => file_error(error).to_lowercase(),
    };
    format!("open {path}: {why}")
}

/// The list that kubectl prints for a refused object.
pub fn invalid_text(kind: &str, name: &str, violations: &[Violation]) -> String {
    let mut text = format!("The {kind} {name:?} is invalid:");
    for violation in violations {
        text.push_str("\n* ");
        if !violation.path.is_empty() {
            text.push_str(&violation.path);
            text.push_str(": ");
        }
        text.push_str(&violation.message);
    }
    text
}

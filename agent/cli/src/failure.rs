//! How a command fails: what people read and which exit code scripts see.

use std::path::Path;
use std::process::ExitCode;

use proto_node::Violation;
use tonic::{Code, Status};

/// Why a command did not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Refused, or not there.
    #[error("{0}")]
    Refused(String),
    /// What was typed makes no sense.
    #[error("error: {0}")]
    Usage(String),
    /// A file can not be read.
    #[error("{0}")]
    Unreadable(String),
    /// The agent can not be reached.
    #[error("{0}")]
    Unreachable(String),
    /// `--timeout` is over.
    #[error("{0}")]
    TimedOut(String),
    /// Ctrl+C.
    #[error("{0}")]
    Interrupted(String),
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
    pub fn exit_code(&self) -> ExitCode {
        match self {
            Self::Refused(_) => ExitCode::from(1),
            Self::Usage(_) | Self::Unreadable(_) => ExitCode::from(2),
            Self::Unreachable(_) => ExitCode::from(3),
            Self::TimedOut(_) => ExitCode::from(124),
            Self::Interrupted(_) => ExitCode::from(130),
            Self::OutputClosed => ExitCode::SUCCESS,
        }
    }

    /// What the agent answered about an object of `kind` and `name`.
    pub fn of_status(status: &Status, kind: &str, name: &str, socket: &Path) -> Self {
        if is_unreachable(status) {
            return Self::unreachable(socket, status.message());
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

    /// Nobody answers at the socket.
    pub fn unreachable(socket: &Path, why: &str) -> Self {
        let hint = if !socket.exists() {
            "the socket does not exist: is the service running? (systemctl status kvmlet)"
        } else if std::os::unix::net::UnixStream::connect(socket)
            .is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
        {
            "no permission to use the socket: become root or join its group"
        } else {
            "nobody answers there: is the service running? (systemctl status kvmlet)"
        };
        let mut text = format!(
            "error: the agent can not be reached at {}: {hint}",
            socket.display()
        );
        if socket.exists()
            && !why.is_empty()
            && why != "tcp connect error"
            && why != "transport error"
        {
            text.push_str(&format!(" ({why})"));
        }
        Self::Unreachable(text)
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

//! From errors to the planner's failures.

use std::error::Error;

use agent_plan::{Failure, FailureClass};

/// An action failed for now: what is missing may come.
pub(crate) fn retry(reason: &str, message: impl Into<String>) -> Failure {
    Failure {
        class: FailureClass::Retry,
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// An action can never succeed with this spec.
pub(crate) fn fatal(reason: &str, message: impl Into<String>) -> Failure {
    Failure {
        class: FailureClass::Fatal,
        reason: reason.to_owned(),
        message: message.into(),
    }
}

/// An error and its causes in one line, joined by colons.
pub(crate) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

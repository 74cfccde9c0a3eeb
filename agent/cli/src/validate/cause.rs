//! Reasons why an object is not accepted, in Kubernetes' form.

use agent_domain::{Bound, FieldError};
use proto_node::DecodeError;

/// One reason, as Kubernetes has them (`metav1.StatusCause`).
#[derive(Debug)]
pub struct Cause {
    /// Kubernetes' kind of cause.
    pub kind: &'static str,
    /// The field; empty for the object as a whole.
    pub field: String,
    /// What is wrong; KubeVirt's words where it has some.
    pub message: String,
    /// The same for people: with the value and the way out.
    pub detail: String,
}

/// What is wrong with the form of an object.
pub(super) fn misformed(error: &DecodeError) -> Cause {
    Cause {
        kind: "FieldValueInvalid",
        field: error.path.clone(),
        message: error.message.clone(),
        detail: error.message.clone(),
    }
}

/// The cause of an admission error. KubeVirt's own refusals have its words alone; ours have the way out as well.
pub(super) fn cause(error: &FieldError) -> Cause {
    let words = if error.message.is_empty() {
        error.detail()
    } else {
        error.message.clone()
    };
    let has_more = error.bound != Bound::Api && !error.message.is_empty() && !error.fix.is_empty();
    let message = if has_more {
        format!("{words} ({})", error.fix)
    } else {
        words
    };
    Cause {
        kind: error.rule.cause(),
        field: error.path.clone(),
        message,
        detail: error.detail(),
    }
}

pub(super) fn plain(field: &str, message: String) -> Cause {
    Cause {
        kind: "FieldValueInvalid",
        field: field.to_owned(),
        detail: message.clone(),
        message,
    }
}

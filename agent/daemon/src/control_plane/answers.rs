//! What a control plane is answered.

use agent_domain::ObjectSource;
use agent_sources::ApiError;
use agent_store::AssignmentKey;
use proto_node::controlplane::Answer;
use proto_node::controlplane::answer::Result as Answered;

use crate::error::WriteError;

/// Why something was not done, or not yet.
#[derive(Debug)]
pub(super) struct Refusal {
    result: Answered,
    message: String,
    /// The token that was seen, where it is that of another placement.
    seen: Option<u64>,
}

impl Refusal {
    fn new(result: Answered, message: impl Into<String>) -> Self {
        Self {
            result,
            message: message.into(),
            seen: None,
        }
    }

    pub(super) fn stale(seen: u64) -> Self {
        let message = format!("token {seen} was seen for this name; an older one changes nothing");
        Self {
            seen: Some(seen),
            ..Self::new(Answered::Stale, message)
        }
    }

    pub(super) fn altered() -> Self {
        let message = "this token stands for another object; give the changed one a new token";
        Self::new(Answered::Altered, message)
    }

    pub(super) fn of_another_source(source: &ObjectSource) -> Self {
        let message = format!("the name belongs to {source}: {}", source.way_out());
        Self::new(Answered::OwnedByAnother, message)
    }

    pub(super) fn invalid(message: String) -> Self {
        Self::new(Answered::Invalid, message)
    }

    pub(super) fn later(message: &str) -> Self {
        Self::new(Answered::Unavailable, message)
    }

    pub(super) fn waiting() -> Self {
        let message = "an earlier placement of this name is being ended";
        Self::new(Answered::Waiting, message)
    }

    pub(super) fn gone() -> Self {
        let message = "it was made under this token and is gone; a new token makes it anew";
        Self::new(Answered::Gone, message)
    }

    /// Of a VMI that could not be made.
    pub(super) fn of_apply(error: ApiError) -> Self {
        match error {
            ApiError::Invalid { .. } | ApiError::BadRequest(_) => Self::invalid(error.to_string()),
            error => Self::from(error),
        }
    }
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        Self::new(Answered::Unavailable, error.to_string())
    }
}

impl From<WriteError> for Refusal {
    fn from(error: WriteError) -> Self {
        ApiError::from(error).into()
    }
}

/// The answer to what was asked for.
pub(super) fn answer(key: &AssignmentKey, token: u64, done: Result<(), Refusal>) -> Answer {
    let refusal = done.err();
    let seen = refusal.as_ref().and_then(|refusal| refusal.seen);
    let (result, message) = refusal.map_or((Answered::Accepted, String::new()), |refusal| {
        (refusal.result, refusal.message)
    });
    Answer {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        token,
        result: result.into(),
        message,
        highest_token: seen.unwrap_or(token),
    }
}

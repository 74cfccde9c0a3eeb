//! Writes that are judged again because what they were judged on has changed meanwhile.

use agent_objects::ObjectId;
use agent_sources::ApiError;

/// How often a write is judged anew.
pub(super) const ATTEMPTS: usize = 16;

pub(super) fn changed_too_often(id: &ObjectId) -> ApiError {
    ApiError::Conflict(format!(
        "{:?} was changed {ATTEMPTS} times while this write was judged: try again",
        id.name
    ))
}

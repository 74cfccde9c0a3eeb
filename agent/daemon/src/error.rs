//! Errors of writes to the ledger on behalf of callers.

use agent_sources::ApiError;
use agent_store::StoreError;

/// Why a write was abandoned.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The caller's request is at fault; this is its answer.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The ledger failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<WriteError> for ApiError {
    fn from(error: WriteError) -> Self {
        match error {
            WriteError::Refused(error) => error,
            WriteError::Store(error) => store(error),
        }
    }
}

/// The error that a caller gets while the ledger fails.
pub(crate) fn store(error: StoreError) -> ApiError {
    match &error {
        StoreError::Expired { .. } => ApiError::Expired(error.to_string()),
        StoreError::Stale { .. } | StoreError::Altered { .. } => {
            ApiError::Conflict(error.to_string())
        }
        StoreError::NotShared { .. } => ApiError::Unavailable(error.to_string()),
        StoreError::Undecodable { .. }
        | StoreError::Closed
        | StoreError::Lost(_)
        | StoreError::Database(_) => {
            let text = chain(&error);
            tracing::error!("{text}");
            ApiError::Internal(text)
        }
    }
}

fn chain(error: &StoreError) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

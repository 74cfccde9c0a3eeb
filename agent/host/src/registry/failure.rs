//! Why there is no image of a registry.

use std::io;

/// Why a pull failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PullFailure {
    /// The registry, or the way to it.
    #[error("{0}")]
    Refused(String),
    /// The registry wants other credentials.
    #[error("{0}")]
    Denied(String),
    /// The node.
    #[error("the pull cannot be carried out")]
    Host(#[from] io::Error),
}

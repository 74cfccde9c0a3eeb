//! Why a pull ends.

use std::io;

/// Errors that end a pull.
#[derive(Debug, thiserror::Error)]
pub(super) enum PullError {
    #[error("{0}")]
    Refused(String),
    #[error("{0}")]
    Denied(String),
    #[error("{what}")]
    Io {
        what: String,
        #[source]
        source: io::Error,
    },
}

impl PullError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

//! What guests printed on their serial consoles.

/// Which run's output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// That of the present VMM, or the last.
    Present,
    /// The one before: an earlier VMM's, or that of the last VMI of the same name that is gone.
    Previous,
}

/// A stretch of a guest's output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Printed {
    /// Where it begins in all that the guest printed, in bytes from 0; `None` when that is not known.
    pub offset: Option<u64>,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// Why there is no output.
#[derive(Debug, thiserror::Error)]
pub enum LogsError {
    /// Nothing is kept of such a run.
    #[error("{0}")]
    NothingKept(&'static str),
    /// No VMM runs.
    #[error("the guest is not running")]
    NotRunning,
    /// The file can not be read.
    #[error("the console log can not be read")]
    Unreadable(#[source] std::io::Error),
    /// The VMM did not answer.
    #[error("the VMM did not tell what its guest printed: {0}")]
    Vmm(String),
}

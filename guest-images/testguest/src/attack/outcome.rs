//! What may come of an attack.

use core::fmt;

/// The outcome of an attack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The device waits for its reset.
    NeedsReset,
    /// The device answered; of a disk, and of a NIC's commands, with this status.
    Answered(u8),
    /// A request, or a write to a register, was left alone.
    Ignored,
}

/// A disk's or a NIC's word that something failed.
pub const ERROR: Outcome = Outcome::Answered(1);
/// A disk does not know the request.
pub const UNSUPPORTED: Outcome = Outcome::Answered(2);
/// Everything is as it should be.
pub const FINE: Outcome = Outcome::Answered(0);

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NeedsReset => f.write_str("needs-reset"),
            Self::Answered(0) => f.write_str("answered"),
            Self::Answered(status) => write!(f, "status-{status}"),
            Self::Ignored => f.write_str("ignored"),
        }
    }
}

/// Those outcomes that leave a device in a state of its own choice.
pub const ANY: &[Outcome] = &[
    Outcome::NeedsReset,
    FINE,
    ERROR,
    UNSUPPORTED,
    Outcome::Ignored,
];

//! Operations: actions that may take more than a moment, and are carried out beside the VMI's actor.
//!
//! The plan starts one by planning its action, sees how far it is in [`Observed::operation`](crate::Observed), and
//! cancels it by [`Action::CancelOperation`](crate::Action). Whoever executes actions keeps one operation for each VMI.
//! Nothing of an operation outlives the agent but what it has put on disk: another agent starts it again, and what is
//! there by then is found.

pub(crate) mod shown;

use serde::{Deserialize, Serialize};

use crate::action::Action;
use crate::time::{Millis, Timestamp};

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Work {
    /// [`Action::EnsureKernel`].
    BootFiles,
    /// [`Action::EnsureDisks`].
    Disks,
    /// [`Action::ConfigureVmm`]: hooks are asked and everything is opened.
    Machine {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
    /// [`Action::PressPowerButton`]: hooks are called first.
    PowerButton {
        /// Incarnation of the VMM that is meant; an older one than the host knows is refused.
        incarnation: u64,
    },
}

impl Work {
    /// The reason in conditions.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::BootFiles => "PreparingBootFiles",
            Self::Disks => "PreparingDisks",
            Self::Machine { .. } => "ConfiguringMachine",
            Self::PowerButton { .. } => "ShuttingDown",
        }
    }

    /// What is going on, where nobody says it better.
    #[must_use]
    pub const fn describe(self) -> &'static str {
        match self {
            Self::BootFiles => "The kernel or firmware is made ready",
            Self::Disks => "Disks are made ready",
            Self::Machine { .. } => "The machine is put together",
            Self::PowerButton { .. } => "The power button is pressed",
        }
    }
}

impl Action {
    /// The operation that the action starts; nothing for one that is over in a moment.
    #[must_use]
    pub const fn work(&self) -> Option<Work> {
        match self {
            Self::EnsureKernel => Some(Work::BootFiles),
            Self::EnsureDisks => Some(Work::Disks),
            Self::ConfigureVmm { incarnation } => Some(Work::Machine {
                incarnation: *incarnation,
            }),
            Self::PressPowerButton { incarnation } => Some(Work::PowerButton {
                incarnation: *incarnation,
            }),
            Self::EnsureRunDir { .. }
            | Self::EnsureTaps
            | Self::StartVmm { .. }
            | Self::BootVmm { .. }
            | Self::PauseVmm { .. }
            | Self::ResumeVmm { .. }
            | Self::SetLink { .. }
            | Self::StopVmm { .. }
            | Self::KillVmm { .. }
            | Self::CancelOperation
            | Self::Release { .. } => None,
        }
    }
}

/// An operation, as it was seen. A running one that waits for a file system without an answer is `Unknown`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OperationObserved {
    /// Kind of the operation, with its parameters.
    pub work: Work,
    /// Running, done, or failed.
    pub state: OperationState,
}

/// Where an operation stands. One that failed is gone: its failure went to [`complete`](crate::complete).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OperationState {
    /// It is under way.
    Running {
        /// Since when.
        since: Timestamp,
        /// Its progress, where that is known.
        progress: Option<Progress>,
    },
    /// It was the last, and all is there.
    Done,
}

/// Progress of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// CamelCase, such as `Pulling`. Empty: the operation's own reason.
    pub reason: String,
    /// What is going on, such as `Pulling image "debian:12"`.
    pub what: String,
    /// Bytes that are done.
    pub done_bytes: u64,
    /// Bytes in all; 0 while that is not known.
    pub total_bytes: u64,
    /// Bytes per second of late; 0 while that is not known.
    pub bytes_per_second: u64,
}

impl Progress {
    /// Time left, at the present rate.
    #[must_use]
    pub fn left(&self) -> Option<Millis> {
        let left = self.total_bytes.checked_sub(self.done_bytes)?;
        let millis = left.checked_mul(1000)?.checked_div(self.bytes_per_second)?;
        (self.total_bytes > 0).then(|| Millis(i64::try_from(millis).unwrap_or(i64::MAX)))
    }
}

/// The operation that is under way, as status shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportedOperation {
    /// The reason of its condition.
    pub reason: String,
    /// Since when it runs.
    pub since: Timestamp,
    /// When this was written down.
    pub at: Timestamp,
    /// It waits for a file system that does not answer: nobody knows whether it ever will.
    pub unknown: bool,
    /// Progress of the operation.
    pub progress: Progress,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_follows_from_the_rate_and_is_unknown_without_one() {
        let mut progress = Progress {
            done_bytes: 25,
            total_bytes: 100,
            bytes_per_second: 50,
            ..Progress::default()
        };
        assert_eq!(progress.left(), Some(Millis(1500)));
        progress.bytes_per_second = 0;
        assert_eq!(progress.left(), None);
        progress = Progress {
            bytes_per_second: 50,
            ..Progress::default()
        };
        assert_eq!(progress.left(), None, "the total is not known");
    }
}

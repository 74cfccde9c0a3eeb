//! Phases.

use serde::{Deserialize, Serialize};

use crate::time::Timestamp;

/// KubeVirt's phases of a VMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Phase {
    /// Accepted.
    Pending,
    /// Its kernel, disks and network are being made ready.
    Scheduling,
    /// Its VMM runs; the guest does not yet.
    Scheduled,
    /// The guest runs, or is paused, be it before its first instruction.
    Running,
    /// The guest shut itself down, or was asked to.
    Succeeded,
    /// The guest crashed, vanished, or could not be started.
    Failed,
}

impl Phase {
    /// Whether it never changes any more.
    #[must_use]
    pub const fn is_final(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }

    /// KubeVirt's word.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Scheduling => "Scheduling",
            Self::Scheduled => "Scheduled",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }
}

/// When a phase was first reached.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseEntry {
    /// The phase that was entered.
    pub phase: Phase,
    /// Wall-clock time at which it was entered.
    pub at: Timestamp,
}

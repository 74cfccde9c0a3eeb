//! What the agent remembers of one VMI, across its own restarts.
//!
//! It has four parts, and each has one writer once the VMI is accepted: requests write [`Orders`], the VMI's actor the
//! other three. The ledger stores each part as it is here. Fields may be added with a default and are never given another
//! meaning.

mod allocations;
mod launches;
mod phase;
mod report;

use serde::{Deserialize, Serialize};

pub use self::allocations::Allocations;
pub use self::launches::{Launch, Launches};
pub use self::phase::{Phase, PhaseEntry};
pub use self::report::{End, FirmwareWatch, Report, StartFailures, StopProgress};
use crate::orders::Orders;
use crate::time::Timestamp;

/// Which VMI.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VmiId {
    /// Unique for all time; a VMI made anew under the same name has another.
    pub uid: String,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for VmiId {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{}/{}", self.namespace, self.name)
    }
}

/// What was asked of one VMI, what was done for it, and what came of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The VMI that the record belongs to.
    pub id: VmiId,
    /// What was asked of the guest. Requests write it at any time, between an observation and the storing of
    /// its plan too; a plan only reads it.
    pub orders: Orders,
    /// Starts of its VMM.
    pub launches: Launches,
    /// What it has of its node.
    pub allocations: Allocations,
    /// What came of it so far.
    pub report: Report,
}

impl Record {
    /// The record of a VMI that was just accepted.
    #[must_use]
    pub fn new(id: VmiId, now: Timestamp) -> Self {
        Self {
            id,
            orders: Orders::default(),
            launches: Launches::default(),
            allocations: Allocations::default(),
            report: Report::new(now),
        }
    }

    /// Whether a part that the VMI's actor writes is another than `before`. What was ordered meanwhile is not its to write.
    #[must_use]
    pub fn is_ahead_of(&self, before: &Self) -> bool {
        (&self.launches, &self.allocations, &self.report)
            != (&before.launches, &before.allocations, &before.report)
    }

    /// The present phase.
    #[must_use]
    pub fn phase(&self) -> Phase {
        self.report.phase()
    }

    /// Whether a guest instruction may have been executed under this uid.
    #[must_use]
    pub fn may_have_run(&self) -> bool {
        self.launches
            .present()
            .is_some_and(|launch| launch.boot_intended_at.is_some())
    }
}

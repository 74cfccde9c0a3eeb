//! The wall clock is set now and then; what is waited for takes its time all the same.
//!
//! Records hold wall-clock times, because people read them. So a record also remembers where the wall clock stood
//! against `CLOCK_BOOTTIME`, which nobody sets. Whoever reads a record to change it has it follow the clock first
//! ([`Record::follow_clock`](crate::Record::follow_clock)): when the wall clock was set since, the times that deadlines are computed from
//! move with it.

mod following;

use serde::{Deserialize, Serialize};

use crate::identity::BootId;
use crate::time::Timestamp;

/// Where the wall clock stood.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockMark {
    /// In which boot.
    pub boot_id: BootId,
    /// The wall clock's time at the beginning of that boot.
    pub began_at: Timestamp,
    /// When it was last found to have been set; of no meaning before.
    #[serde(default)]
    pub set_at: Option<Timestamp>,
}

/// A deletion as the planner came to know of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotedDeletion {
    /// What its object says; never changed.
    pub requested_at: Timestamp,
    /// Start of its grace period; follows the clock.
    pub since: Timestamp,
}

//! Which VMM it is, and in which boot of the host.

use serde::{Deserialize, Serialize};

/// The kernel's random id of one boot of the host (`/proc/sys/kernel/random/boot_id`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

/// Identity of a VMM process. A pid alone is never enough: pids are reused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VmmIdentity {
    /// The boot in which it was started.
    pub boot_id: BootId,
    /// Its pid as the agent sees it.
    pub pid: u32,
    /// Start time in clock ticks after boot (field 22 of `/proc/PID/stat`).
    pub start_time_ticks: u64,
}

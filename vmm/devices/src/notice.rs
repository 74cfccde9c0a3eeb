//! What a device reports to the machine and that only the machine thread can answer.

use std::sync::Arc;

use crate::pvpanic::panic::Panic;
use crate::watchdog::WatchdogAction;

/// Something that concerns the machine as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNotice {
    /// A disk holds a request that the host failed, and takes no other: the guest is to be paused
    /// until somebody has seen to the host.
    IoStopped {
        /// The host's error number.
        errno: i32,
    },
    /// The host failed to make durable what a disk had written. It fails every flush from now on.
    SyncFailed {
        /// The host's error number.
        errno: i32,
    },
    /// The guest let a watchdog run out.
    WatchdogExpired {
        /// What is to follow.
        action: WatchdogAction,
    },
    /// The guest wrote an event to a panic device.
    Panic(Panic),
}

/// Takes a device's notices. Called while the device is at work: returns at once and does not call
/// back.
pub type NoticeSink = Arc<dyn Fn(DeviceNotice) + Send + Sync>;

//! What a device tells the machine that only the machine's owner can answer.

use std::sync::Arc;

/// Something that concerns the machine as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNotice {
    /// A disk holds a request that the host failed, and takes no other: the guest is to be paused
    /// until somebody has seen to the host.
    IoStopped {
        /// The host's error number.
        errno: i32,
    },
}

/// Takes a device's notices. Called while the device is at work: returns at once and does not call
/// back.
pub type NoticeSink = Arc<dyn Fn(DeviceNotice) + Send + Sync>;

//! Why an active device stops until its driver resets it.

use super::queue::error::QueueError;

/// A device cannot go on: the driver broke the rules of its rings, or the host failed. The transport sets
/// `DEVICE_NEEDS_RESET`.
#[derive(Debug, thiserror::Error)]
pub enum DeviceFault {
    /// A ring or a descriptor chain is broken.
    #[error("queue {queue} is broken")]
    Queue {
        /// Index of the queue.
        queue: u16,
        /// The defect of the ring or the chain.
        #[source]
        source: QueueError,
    },
    /// The host side is gone.
    #[error("the backend failed")]
    Backend(#[source] Box<dyn std::error::Error + Send + Sync>),
}

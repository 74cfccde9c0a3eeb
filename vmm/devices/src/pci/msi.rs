//! How a message-signalled interrupt leaves a function.

use std::io;
use std::sync::Arc;

use vmm_sys_util::eventfd::EventFd;

/// Connects the interrupt vectors of one function to the guest. Implemented by the machine with
/// irqfds and GSI routes; by a recorder in tests.
///
/// Vectors are counted from 0 within the function, up to the size of its MSI-X table. At build, and
/// after a reset, no vector is routed.
pub trait MsiBinding: Send + Sync {
    /// The eventfd of a vector, created at the first call and the same ever after. A write raises
    /// the interrupt while the vector is routed and is without effect on the guest otherwise.
    ///
    /// # Errors
    /// The eventfd can not be made.
    fn vector_event(&self, vector: u16) -> Result<Arc<EventFd>, MsiError>;

    /// Unmasked, or its message changed: from now on writes to the eventfd send `message`.
    ///
    /// # Errors
    /// The host refuses the route; the vector is not routed then.
    fn route(&self, vector: u16, message: MsiMessage) -> Result<(), MsiError>;

    /// Masked: writes to the eventfd go nowhere. Without effect on a vector that is not routed.
    ///
    /// # Errors
    /// The host refuses; the vector may still be routed.
    fn unroute(&self, vector: u16) -> Result<(), MsiError>;
}

/// Address and data of a message, as the driver wrote them into the MSI-X table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct MsiMessage {
    /// Guest-physical address, doubleword aligned.
    pub address: u64,
    /// What is written there.
    pub data: u32,
}

/// A vector could not be connected or disconnected.
#[derive(Debug, thiserror::Error)]
#[error("MSI-X vector {vector}: {call} failed")]
pub struct MsiError {
    /// The vector, counted within its function.
    pub vector: u16,
    /// What was tried, such as `KVM_IRQFD`.
    pub call: &'static str,
    /// Why the host refused.
    #[source]
    pub source: io::Error,
}

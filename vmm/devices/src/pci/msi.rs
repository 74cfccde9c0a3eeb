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
    /// The eventfd cannot be made.
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

#[cfg(test)]
pub(crate) mod testing {
    //! A binding that records its calls.

    use std::collections::BTreeMap;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[derive(Default)]
    pub(crate) struct RecordingMsi {
        events: Mutex<BTreeMap<u16, Arc<EventFd>>>,
        routes: Mutex<BTreeMap<u16, MsiMessage>>,
        refuse: AtomicBool,
    }

    impl RecordingMsi {
        pub(crate) fn new() -> Arc<Self> {
            Arc::new(Self::default())
        }

        /// How often the vector was raised since the last call.
        pub(crate) fn raised(&self, vector: u16) -> u64 {
            let events = self.events.lock().unwrap();
            events
                .get(&vector)
                .map_or(0, |event| event.read().unwrap_or(0))
        }

        pub(crate) fn routed(&self, vector: u16) -> Option<MsiMessage> {
            self.routes.lock().unwrap().get(&vector).copied()
        }

        pub(crate) fn refuse(&self, refuse: bool) {
            self.refuse.store(refuse, Ordering::SeqCst);
        }
    }

    impl MsiBinding for RecordingMsi {
        fn vector_event(&self, vector: u16) -> Result<Arc<EventFd>, MsiError> {
            let mut events = self.events.lock().unwrap();
            let event = events.entry(vector).or_insert_with(|| {
                Arc::new(EventFd::new(vmm_sys_util::eventfd::EFD_NONBLOCK).unwrap())
            });
            Ok(Arc::clone(event))
        }

        fn route(&self, vector: u16, message: MsiMessage) -> Result<(), MsiError> {
            if self.refuse.load(Ordering::SeqCst) {
                return Err(MsiError {
                    vector,
                    call: "KVM_IRQFD",
                    source: io::ErrorKind::OutOfMemory.into(),
                });
            }
            self.routes.lock().unwrap().insert(vector, message);
            Ok(())
        }

        fn unroute(&self, vector: u16) -> Result<(), MsiError> {
            self.routes.lock().unwrap().remove(&vector);
            Ok(())
        }
    }
}

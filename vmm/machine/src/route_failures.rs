//! Interrupts of devices that the host does not connect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use vmm_devices::MsiError;

/// How often the host refused to connect or disconnect a vector of a machine, which loses interrupts then.
#[derive(Clone, Default)]
pub(crate) struct RouteFailures(Arc<AtomicU64>);

impl RouteFailures {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn note<T>(&self, result: Result<T, MsiError>) -> Result<T, MsiError> {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
        result
    }
}

//! Stores of data that must outlive the guest, and their sync failures.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_devices::SyncFailureLatch;
use vmm_devices::pflash::Flash;

use crate::pci::address::PciAddress;

/// What a guest keeps data in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableStore {
    /// The disk at an address.
    Disk(PciAddress),
    /// The variable store of its firmware.
    Variables,
}

impl fmt::Display for DurableStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk(address) => write!(f, "the disk at {address}"),
            Self::Variables => f.write_str("the variable store of the firmware"),
        }
    }
}

/// A store with a sync failure: the host failed to make durable what was written, and it fails every flush
/// from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// The disk or the variable store.
    pub store: DurableStore,
    /// The host's error number.
    pub errno: i32,
}

/// The firmware's variable store, for its vCPUs and for the machine thread.
pub(crate) struct Variables {
    flash: Mutex<Flash>,
    /// As the device's, for whoever does not wait for it.
    latch: Arc<SyncFailureLatch>,
}

impl Variables {
    pub(crate) fn new(flash: Flash) -> Self {
        Self {
            latch: flash.sync_failure(),
            flash: Mutex::new(flash),
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Flash> {
        // Whole after each access.
        self.flash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Error number of the sync that failed, if one did. Waits for nobody.
    pub(crate) fn sync_failure(&self) -> Option<i32> {
        self.latch.errno()
    }

    /// Brings what was programmed to stable storage.
    pub(crate) fn sync(&self) -> io::Result<()> {
        self.lock().sync()
    }
}

//! What the chipset knows of each device at I/O ports.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_devices::BusDevice;

use crate::firmware::state::PlatformState;
use crate::legacy::state::LegacyState;
use crate::snapshot::Snapshot;
use crate::snapshot::error::SnapshotError;

/// A device at I/O ports. One without state keeps the defaults.
pub(crate) trait PortDevice: BusDevice {
    /// Back to power-on.
    fn reset(&mut self) {}

    /// Adds its state.
    fn save(&self, _saved: &mut SavedChipset<'_>) {}

    /// Goes on where its state was taken.
    fn load(&mut self, _saved: &mut SavedChipset<'_>) -> Result<(), SnapshotError> {
        Ok(())
    }
}

/// State of all devices while a snapshot is taken or loaded. A new device puts a part of its own into `snapshot`; the two messages
/// hold the state of older devices, whose format stays.
pub(crate) struct SavedChipset<'a> {
    pub(crate) snapshot: &'a mut Snapshot,
    pub(crate) legacy: LegacyState,
    /// Empty on a machine without firmware.
    pub(crate) platform: PlatformState,
}

impl<'a> SavedChipset<'a> {
    /// Begins with `legacy`: empty to take a snapshot, the message in `snapshot` to load one.
    pub(crate) fn new(snapshot: &'a mut Snapshot, legacy: LegacyState) -> Self {
        Self {
            snapshot,
            legacy,
            platform: PlatformState::default(),
        }
    }
}

/// A device that vCPUs and the machine thread share.
pub(crate) type SharedDevice = Arc<Mutex<dyn PortDevice>>;

/// A device and its ports.
#[derive(Clone)]
pub(crate) struct PlacedDevice {
    /// The first, and how many; `None`: firmware chooses them.
    pub(crate) ports: Option<(u16, u16)>,
    pub(crate) device: SharedDevice,
}

impl PlacedDevice {
    /// A device that only its ports lead to.
    pub(crate) fn new(first: u16, count: u16, device: impl PortDevice + 'static) -> Self {
        Self::shared(first, count, Arc::new(Mutex::new(device)))
    }

    /// A device that others reach, too.
    pub(crate) fn shared(first: u16, count: u16, device: SharedDevice) -> Self {
        Self {
            ports: Some((first, count)),
            device,
        }
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, dyn PortDevice + 'static> {
        lock(&self.device)
    }
}

/// Locks a device, whose registers are whole after each access.
pub(crate) fn lock<T: ?Sized>(device: &Mutex<T>) -> MutexGuard<'_, T> {
    device.lock().unwrap_or_else(PoisonError::into_inner)
}

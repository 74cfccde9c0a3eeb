//! The disks of a running machine, as its owner reaches them.

use std::collections::BTreeMap;
use std::sync::Arc;

use vmm_devices::virtio::blk::{BlkControl, BlkControlError, DiskCounts, DiskLimits};

use crate::pci::address::PciAddress;
use crate::snapshot::error::SnapshotError;

/// A disk cannot be changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// The function at the address is no disk, or there is none.
    #[error("there is no disk at {0}")]
    NoDisk(PciAddress),
    /// The disk refused.
    #[error("the disk at {address} cannot be changed")]
    Disk {
        /// PCI address of the device.
        address: PciAddress,
        /// The underlying error.
        #[source]
        source: BlkControlError,
    },
}

/// A disk that lost data: the host failed to make durable what was written, and it fails every flush
/// from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// PCI address of the disk.
    pub disk: PciAddress,
    /// The host's error number.
    pub errno: i32,
}

/// Handles on disks, by address.
#[derive(Clone, Debug, Default)]
pub(crate) struct Disks(BTreeMap<PciAddress, Arc<BlkControl>>);

impl Disks {
    pub(crate) fn insert(&mut self, address: PciAddress, control: Arc<BlkControl>) {
        self.0.insert(address, control);
    }

    /// What each has done.
    pub(crate) fn counts(&self) -> Vec<(PciAddress, DiskCounts)> {
        let counts = self
            .0
            .iter()
            .map(|(address, disk)| (*address, disk.counts()));
        counts.collect()
    }

    /// Disks of which a sync failed.
    pub(crate) fn sync_failures(&self) -> Vec<SyncFailure> {
        let failures = self.0.iter().filter_map(|(disk, control)| {
            let errno = control.sync_failure()?;
            Some(SyncFailure { disk: *disk, errno })
        });
        failures.collect()
    }

    /// Makes durable what guests wrote to disks that may be written. Those that lost data before are left
    /// out: nothing makes them whole, and their state says so.
    ///
    /// # Errors
    /// The first disk that cannot be synced.
    pub(crate) fn sync(&self) -> Result<(), SnapshotError> {
        let whole = self
            .0
            .iter()
            .filter(|(_, control)| control.is_writable() && control.sync_failure().is_none());
        for (&disk, control) in whole {
            control
                .sync()
                .map_err(|source| SnapshotError::Disk { disk, source })?;
        }
        Ok(())
    }

    fn at(&self, address: PciAddress) -> Result<&BlkControl, DiskError> {
        let disk = self.0.get(&address).ok_or(DiskError::NoDisk(address))?;
        Ok(disk)
    }

    /// Makes a disk as large as its image is now.
    pub(crate) fn grow(&self, address: PciAddress) -> Result<(), DiskError> {
        let grown = self.at(address)?.grow();
        grown
            .map(|_bytes| ())
            .map_err(|source| DiskError::Disk { address, source })
    }

    /// Changes a disk's limits.
    pub(crate) fn set_limits(
        &self,
        address: PciAddress,
        limits: DiskLimits,
    ) -> Result<(), DiskError> {
        self.at(address)?.set_limits(limits);
        Ok(())
    }

    /// Whether a disk holds requests that the host failed, or that a snapshot had.
    pub(crate) fn is_one_stopped(&self) -> bool {
        self.0.values().any(|disk| disk.is_stopped())
    }
}

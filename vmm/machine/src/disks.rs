//! The disks of a running machine, as the machine thread reaches them.

use std::collections::BTreeMap;
use std::sync::Arc;

use vmm_devices::virtio::blk::{BlkControl, BlkControlError, DiskCounts, DiskLimits};

use crate::durable::{DurableStore, SyncFailure, Variables};
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

/// Handles on disks, by address, and on the variable store.
#[derive(Clone, Default)]
pub(crate) struct Disks {
    controls: BTreeMap<PciAddress, Arc<BlkControl>>,
    variables: Option<Arc<Variables>>,
}

impl Disks {
    pub(crate) fn insert(&mut self, address: PciAddress, control: Arc<BlkControl>) {
        self.controls.insert(address, control);
    }

    /// With the variable store of the firmware, if it has one.
    pub(crate) fn with_variables(self, variables: Option<Arc<Variables>>) -> Self {
        Self { variables, ..self }
    }

    /// What each has done.
    pub(crate) fn counts(&self) -> Vec<(PciAddress, DiskCounts)> {
        let counts = self
            .controls
            .iter()
            .map(|(address, disk)| (*address, disk.counts()));
        counts.collect()
    }

    /// Disks of which a sync failed, in the order of their addresses, and then the variable store.
    pub(crate) fn sync_failures(&self) -> Vec<SyncFailure> {
        let disks = self.controls.iter().filter_map(|(disk, control)| {
            let store = DurableStore::Disk(*disk);
            control
                .sync_failure()
                .map(|errno| SyncFailure { store, errno })
        });
        let variables = self.variables.iter().filter_map(|flash| {
            let store = DurableStore::Variables;
            flash
                .sync_failure()
                .map(|errno| SyncFailure { store, errno })
        });
        disks.chain(variables).collect()
    }

    /// Makes durable what guests wrote to disks that may be written, and what firmware wrote to its
    /// variable store. Those with an earlier sync failure are left out: nothing makes them whole, and their state
    /// says so.
    ///
    /// # Errors
    /// The first that cannot be synced.
    pub(crate) fn sync(&self) -> Result<(), SnapshotError> {
        let whole = self
            .controls
            .iter()
            .filter(|(_, control)| control.is_writable() && control.sync_failure().is_none());
        for (&disk, control) in whole {
            control
                .sync()
                .map_err(|source| SnapshotError::Disk { disk, source })?;
        }
        let variables = self.variables.as_ref();
        match variables.filter(|flash| flash.sync_failure().is_none()) {
            Some(flash) => flash.sync().map_err(SnapshotError::Variables),
            None => Ok(()),
        }
    }

    fn at(&self, address: PciAddress) -> Result<&BlkControl, DiskError> {
        let disk = self
            .controls
            .get(&address)
            .ok_or(DiskError::NoDisk(address))?;
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
        self.controls.values().any(|disk| disk.is_stopped())
    }
}

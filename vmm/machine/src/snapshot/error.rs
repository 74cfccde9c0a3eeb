//! Why a machine cannot be saved or restored.

use vmm_devices::StateError;
use vmm_devices::virtio::blk::BlkControlError;
use vmm_kvm::SavedStateError;

use crate::pci::address::PciAddress;

/// A machine cannot be saved, or not be built of a snapshot.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// State of KVM's.
    #[error("{part}")]
    Kvm {
        /// The part of the machine, as the message names it.
        part: String,
        /// The underlying error.
        #[source]
        source: SavedStateError,
    },
    /// State of a device.
    #[error("{part}")]
    Device {
        /// The part of the machine, as the message names it.
        part: String,
        /// The underlying error.
        #[source]
        source: StateError,
    },
    /// A vCPU gave no state.
    #[error("vCPU {index}: {reason}")]
    Vcpu {
        /// Index of the vCPU.
        index: usize,
        /// Reason that the vCPU gave.
        reason: String,
    },
    /// A disk cannot be synced, so that the snapshot's RAM would be of writes that the disk may lose.
    #[error("the disk at {disk} cannot be synced")]
    Disk {
        /// PCI address of the disk.
        disk: PciAddress,
        /// The underlying error.
        #[source]
        source: BlkControlError,
    },
    /// Likewise the variable store of the firmware.
    #[error("the variable store of the firmware cannot be synced")]
    Variables(#[source] std::io::Error),
    /// RAM cannot be written or read.
    #[error("guest memory")]
    Ram(#[source] std::io::Error),
}

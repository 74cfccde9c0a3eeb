//! The disks of a running machine.

use vmm_devices::virtio::blk::DiskCounts;

use crate::disks::Disks;
use crate::pci::address::PciAddress;
use crate::request::MachineHandle;

impl MachineHandle {
    /// What each disk has done since this process made it; nothing before the machine is built. Waits for
    /// nobody.
    #[must_use]
    pub fn disk_counts(&self) -> Vec<(PciAddress, DiskCounts)> {
        self.board.disks().map(Disks::counts).unwrap_or_default()
    }
}

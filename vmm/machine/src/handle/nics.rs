//! The NICs of a running machine.

use crate::nics::{NicCounts, Nics};
use crate::pci::address::PciAddress;
use crate::request::MachineHandle;

impl MachineHandle {
    /// What each NIC has moved and lost since this process made it; nothing before the machine is
    /// built. Waits for nobody.
    #[must_use]
    pub fn nic_counts(&self) -> Vec<(PciAddress, NicCounts)> {
        self.board.nics().map(Nics::counts).unwrap_or_default()
    }
}

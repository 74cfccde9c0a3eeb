//! The network cards of a running machine.

use crate::cards::{CardCounts, Cards};
use crate::pci::address::PciAddress;
use crate::request::MachineHandle;

impl MachineHandle {
    /// What each network card has moved and lost since this process made it; nothing before the machine is
    /// built. Waits for nobody.
    #[must_use]
    pub fn card_counts(&self) -> Vec<(PciAddress, CardCounts)> {
        self.board.cards().map(Cards::counts).unwrap_or_default()
    }
}

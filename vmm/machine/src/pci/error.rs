//! Why BARs cannot be placed.

use crate::pci::address::PciAddress;

/// A BAR found no room.
#[derive(Debug, thiserror::Error)]
#[error("BAR {bar} of {address} ({bytes} bytes) does not fit into the windows of PCI memory")]
pub struct PciBusError {
    pub(super) address: PciAddress,
    pub(super) bar: usize,
    pub(super) bytes: u64,
}

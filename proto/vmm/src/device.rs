//! PCI functions of a machine.

use crate::v1::{PciAddress, PciDevice, pci_device::Kind};

impl PciDevice {
    /// The function `kind` at a bus and device number. No other function is there.
    #[must_use]
    pub fn at(bus: u8, device: u8, kind: Kind) -> Self {
        Self {
            address: Some(PciAddress {
                bus: u32::from(bus),
                device: u32::from(device),
                function: 0,
            }),
            kind: Some(kind),
            ..Self::default()
        }
    }
}

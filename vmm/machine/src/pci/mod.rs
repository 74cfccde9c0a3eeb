//! PCI: the host bridge, configuration accesses, where BARs are, how interrupts leave.

mod binding;
mod bus;
mod config_access;
mod host_bridge;
mod windows;

pub(crate) use binding::VectorBinding;
pub use bus::PciBusError;
pub(crate) use bus::{PciBus, Slot};
pub(crate) use config_access::{ConfigPorts, ecam_read, ecam_write};

/// Where a PCI function sits. Segment 0, bus 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    device: u8,
}

impl PciAddress {
    /// Device 0 is the host bridge; 31 is kept for the ISA bridge that firmware looks for.
    const FIRST: u8 = 1;
    const LAST: u8 = 30;

    /// Bus 0, `device`, function 0. `None` for devices that are the machine's own.
    #[must_use]
    pub fn new(device: u8) -> Option<Self> {
        (Self::FIRST..=Self::LAST)
            .contains(&device)
            .then_some(Self { device })
    }

    /// Device number on bus 0.
    #[must_use]
    pub fn device(self) -> u8 {
        self.device
    }

    const HOST_BRIDGE: Self = Self { device: 0 };
}

impl std::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0000:00:{:02x}.0", self.device)
    }
}

//! PCI: the host bridge, root ports, configuration accesses, where BARs are, how interrupts leave.
//!
//! ```text
//! bus 0 -+- 00.0  host bridge
//!        +- 01.0  a function
//!        +- 10.0  a root port --- bus 1 --- 00.0  a function
//!        +- 11.0  a root port --- bus 2 --- (an empty slot)
//!        +- 1f.0  the ISA bridge, of a machine with firmware
//! ```
//!
//! Which function is where is configuration. How guests reach it, by bus number and address, is what
//! bridges and BARs are programmed with at that moment.

mod address_map;
mod binding;
mod bus;
mod config_access;
mod followed;
mod host_bridge;
mod lpc;
mod registers;
mod search;
mod shown;
mod slot;
#[cfg(test)]
mod tests;
mod tree;
mod windows;

pub(crate) use binding::{PacedBinding, VectorBinding};
pub use bus::PciBusError;
pub(crate) use bus::{AwaitRest, BindKick, PciBus, Unbind};
pub(crate) use config_access::{ConfigPorts, ecam_read, ecam_write};
#[cfg(test)]
pub(crate) use host_bridge::HostBridgeState;
pub(crate) use host_bridge::{HostBridge, Moves};
pub(crate) use lpc::LpcBridge;
#[cfg(test)]
pub(crate) use lpc::LpcState;
pub(crate) use shown::{PAGE_BYTES, ShowPage, Shown};
pub(crate) use slot::Slot;
pub(crate) use tree::{Bridges, PlacedFunction};

/// Where a PCI function sits. Segment 0, function 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    bus: u8,
    device: u8,
}

impl PciAddress {
    /// Device 0 is the host bridge; 31 is kept for the ISA bridge that firmware looks for.
    const FIRST: u8 = 1;
    const LAST: u8 = 30;
    /// The host bridge.
    pub(crate) const HOST_BRIDGE: Self = Self { bus: 0, device: 0 };
    /// The ISA bridge.
    pub(crate) const ISA_BRIDGE: Self = Self { bus: 0, device: 31 };
    /// Functions of bus 0 that a machine can have besides its own.
    pub const MAX_ON_BUS_0: usize = 30;

    /// A place for a function: on bus 0 a `device` of 1 to 30, on another bus, which is behind a
    /// root port, device 0. `None` for all others.
    #[must_use]
    pub fn new(bus: u8, device: u8) -> Option<Self> {
        let devices = if bus == 0 {
            Self::FIRST..=Self::LAST
        } else {
            0..=0
        };
        devices.contains(&device).then_some(Self { bus, device })
    }

    /// Bus number: as the machine programs it at power-on; guests may choose others later.
    #[must_use]
    pub fn bus(self) -> u8 {
        self.bus
    }

    /// Device number.
    #[must_use]
    pub fn device(self) -> u8 {
        self.device
    }
}

impl std::fmt::Display for PciAddress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0000:{:02x}:{:02x}.0", self.bus, self.device)
    }
}

//! Addresses of PCI functions.

/// Where a PCI function sits. Segment 0, function 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    pub(super) bus: u8,
    pub(super) device: u8,
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

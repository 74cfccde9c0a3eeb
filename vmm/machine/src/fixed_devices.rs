//! What configuration, chipset and tables say of devices at fixed I/O ports.

/// Devices at fixed I/O ports that only some machines have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FixedDevices {
    /// A panic device at I/O port 0x505.
    pub isa_pvpanic: bool,
}

impl FixedDevices {
    /// Every one, as tests and fuzz targets want them.
    pub const ALL: Self = Self { isa_pvpanic: true };
}

//! What SMBIOS says of the machine.

/// Longest string, in bytes.
pub const MAX_SMBIOS_STRING_BYTES: usize = 1024;

/// Most OEM strings: they are counted in a byte (DMTF DSP0134, 7.12).
pub const MAX_OEM_STRINGS: usize = 255;

/// Strings of SMBIOS. Empty ones count as not specified; none has a NUL.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SmbiosConfig {
    /// The system as a whole.
    pub system: SystemInfo,
    /// Its base board.
    pub base_board: BaseBoardInfo,
    /// Chassis information (type 3).
    pub chassis: ChassisInfo,
    /// Free strings for whoever looks for them.
    pub oem_strings: Vec<String>,
}

/// System information (type 1).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemInfo {
    /// Manufacturer, as SMBIOS has it; empty for none.
    pub manufacturer: String,
    /// Its name.
    pub product: String,
    /// Version of the product.
    pub version: String,
    /// Serial number.
    pub serial: String,
    /// In the order in which a UUID is written (RFC 9562). All zero: not set.
    pub uuid: [u8; 16],
    /// Number of the stock keeping unit.
    pub sku: String,
    /// Product family, as SMBIOS has it; empty for none.
    pub family: String,
}

/// Base board information (type 2).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BaseBoardInfo {
    /// Manufacturer, as SMBIOS has it; empty for none.
    pub manufacturer: String,
    /// Its name.
    pub product: String,
    /// Version of the product.
    pub version: String,
    /// Serial number.
    pub serial: String,
    /// Asset tag.
    pub asset: String,
    /// Where it is in the chassis.
    pub location: String,
}

/// Chassis information (type 3).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChassisInfo {
    /// Manufacturer, as SMBIOS has it; empty for none.
    pub manufacturer: String,
    /// Chassis version, as SMBIOS has it; empty for none.
    pub version: String,
    /// Serial number.
    pub serial: String,
    /// Asset tag.
    pub asset: String,
    /// Number of the stock keeping unit.
    pub sku: String,
}

/// Whether SMBIOS has room for a string, and readers of it nothing to stumble over.
#[must_use]
pub fn is_legal(text: &str) -> bool {
    text.len() <= MAX_SMBIOS_STRING_BYTES && !text.chars().any(char::is_control)
}

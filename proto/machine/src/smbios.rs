//! What SMBIOS says of the machine.
//!
//! A new text is a field here and in both messages, and a line of [`for_each_smbios_text!`](crate::for_each_smbios_text).

use std::fmt;

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

/// Calls the macro `$each` with the table and the name of every text of a [`SmbiosConfig`], which are the names of fields. The
/// messages of hooks and of the VMM have fields of the same names, so that a text is copied between all three by this list
/// alone. OEM strings, which have no names, are not in it.
#[macro_export]
macro_rules! for_each_smbios_text {
    ($each:ident) => {
        $each!(system, manufacturer);
        $each!(system, product);
        $each!(system, version);
        $each!(system, serial);
        $each!(system, sku);
        $each!(system, family);
        $each!(base_board, manufacturer);
        $each!(base_board, product);
        $each!(base_board, version);
        $each!(base_board, serial);
        $each!(base_board, asset);
        $each!(base_board, location);
        $each!(chassis, manufacturer);
        $each!(chassis, version);
        $each!(chassis, serial);
        $each!(chassis, asset);
        $each!(chassis, sku);
    };
}

/// A rule of texts that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IllegalText {
    /// It has more bytes than it may have.
    TooLong {
        /// Those that it has.
        bytes: usize,
        /// Most that it may have.
        most: usize,
    },
    /// A reader that prints a line for each text would print another.
    ControlCharacter,
}

impl fmt::Display for IllegalText {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { bytes, most } => {
                write!(out, "is {bytes} bytes long: at most {most} are allowed")
            }
            Self::ControlCharacter => out.write_str("must be without control characters"),
        }
    }
}

/// Judges a text for SMBIOS, an OEM string too.
///
/// # Errors
/// The rule that it breaks.
pub fn check_text(text: &str) -> Result<(), IllegalText> {
    check_line(text, MAX_SMBIOS_STRING_BYTES)
}

/// Judges a text that may have `most` bytes and no control characters.
///
/// # Errors
/// The rule that it breaks.
pub fn check_line(text: &str, most: usize) -> Result<(), IllegalText> {
    let bytes = text.len();
    if bytes > most {
        return Err(IllegalText::TooLong { bytes, most });
    }
    if text.chars().any(char::is_control) {
        return Err(IllegalText::ControlCharacter);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_text_is_in_the_list() {
        let mut config = SmbiosConfig::default();
        macro_rules! fill {
            ($table:ident, $text:ident) => {
                config.$table.$text = stringify!($text).to_owned();
            };
        }
        for_each_smbios_text!(fill);
        let shown = format!("{config:?}");
        assert!(!shown.contains("\"\""), "{shown}");
    }

    #[test]
    fn a_text_is_short_and_of_one_line() {
        let longest = "x".repeat(MAX_SMBIOS_STRING_BYTES);
        assert_eq!(check_text(&longest), Ok(()));
        let broken = check_text(&(longest + "x")).unwrap_err();
        let shown = "is 1025 bytes long: at most 1024 are allowed";
        assert_eq!(broken.to_string(), shown);
        assert_eq!(check_text("a\nb"), Err(IllegalText::ControlCharacter));
    }
}

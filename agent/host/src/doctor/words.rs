//! What checks read and say.

use std::io;
use std::path::Path;

use crate::os_error;

/// A file's text without the white space around it; nothing when it cannot be read.
pub(super) fn text_of(root: &Path, path: &str) -> Option<String> {
    let text = std::fs::read_to_string(root.join(path)).ok()?;
    Some(text.trim().to_owned())
}

/// Why something cannot be opened, for people.
pub(super) fn reason_of(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => String::from("it is not there"),
        io::ErrorKind::PermissionDenied => String::from("permission denied"),
        _ => os_error::words(error),
    }
}

/// An amount of bytes as people say it.
pub(super) fn sized(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    let mut unit = 0;
    let mut tenths = bytes.saturating_mul(10) / 1024;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let unit = UNITS.get(unit).copied().unwrap_or_default();
    format!("{}.{} {unit}", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_shown_without_numbers() {
        for (number, words) in [
            (2, "it is not there"),
            (13, "permission denied"),
            (16, "Device or resource busy"),
        ] {
            assert_eq!(reason_of(&io::Error::from_raw_os_error(number)), words);
        }
    }

    #[test]
    fn sizes_are_said_in_the_unit_that_fits() {
        assert_eq!(sized(1536), "1.5 KiB");
        assert_eq!(sized(3 << 30), "3.0 GiB");
        assert_eq!(sized(5 << 50), "5120.0 TiB");
        assert_eq!(sized(0), "0.0 KiB");
    }
}

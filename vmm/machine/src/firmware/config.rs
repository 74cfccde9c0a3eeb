//! Boot by firmware, as it is asked for.

use std::fs::File;

use crate::pci::address::PciAddress;

/// Firmware to boot by.
#[derive(Debug)]
pub struct FirmwareConfig {
    /// Its image, which ends at 4 GiB.
    pub code: File,
    /// Its variable store, open for reading and writing; it lies right below the image. `None`: it has
    /// none.
    pub variables: Option<File>,
    /// What is booted from, first choice first. Empty: as firmware likes.
    pub boot_order: Vec<PciAddress>,
    /// Whether firmware that has no serial console of its own is to use COM1.
    pub serial_console: bool,
    /// Where messages for people who debug firmware go.
    pub debug_log: Option<DebugLog>,
}

/// A file that takes what firmware writes to port 0x402.
#[derive(Debug)]
pub struct DebugLog {
    /// Open for writing.
    pub file: File,
    /// What it takes at most, in bytes; the rest is lost.
    pub max_bytes: u64,
}

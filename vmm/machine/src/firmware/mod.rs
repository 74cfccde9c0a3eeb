//! Boot by firmware: stock SeaBIOS and OVMF, unchanged.
//!
//! Owns what such firmware expects of a q35 machine beyond what every guest has: its image below
//! 4 GiB and its shadow below 1 MiB, flash memory for variables, what it is configured by, and
//! addresses that it chooses. A machine that boots a kernel directly has none of it.

mod cmos;
mod config;
mod debug;
mod decode;
mod flash;
mod image;
mod items;
mod order;
mod platform;
mod script;
mod shadow;
mod state;
mod tables;

use vmm_devices::fw_cfg::ItemError;
use vmm_devices::pflash::FlashError;
use vmm_memory::RomError;

pub use config::{DebugLog, FirmwareConfig};
pub(crate) use decode::Decode;
pub(crate) use items::Machine;
pub(crate) use order::BootOrder;
pub(crate) use platform::{Plan, Platform};
pub(crate) use shadow::{HOLE, REGISTERS as PAM_REGISTERS, Shadow};
#[cfg(test)]
pub(crate) use state::PlatformState;

/// Firmware cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    /// The image's length.
    #[error(
        "the firmware image has {0} bytes; it must be a multiple of 4096 from {min} to {max}",
        min = image::MIN_BYTES,
        max = image::MAX_BYTES
    )]
    Size(u64),
    /// The image cannot be read.
    #[error("the firmware image cannot be read")]
    Read(#[source] std::io::Error),
    /// There is no memory for it.
    #[error("the firmware image does not fit into memory")]
    Memory(#[from] RomError),
    /// The variable store.
    #[error("the variable store is not usable")]
    Variables(#[from] FlashError),
    /// A file could not be shared with the device that uses it.
    #[error("a second descriptor of {0}")]
    Descriptor(&'static str, #[source] std::io::Error),
    /// What firmware is configured by.
    #[error("firmware cannot be configured")]
    Items(#[from] ItemError),
    /// Boot order names a device that is not there, or cannot be booted from.
    #[error("{0} is in the boot order, but no disk or network card is there")]
    BootOrder(crate::pci::PciAddress),
    /// The machine's tables have no place for the address of the generation id.
    #[error("the ACPI tables have no place for the address of the generation id")]
    Generation,
}

//! Why firmware cannot be set up.

use vmm_devices::fw_cfg::ItemError;
use vmm_devices::pflash::FlashError;
use vmm_memory::RomError;

/// The last 64 KiB are always firmware's: that is where processors begin.
pub(super) const MIN_IMAGE_BYTES: u64 = 64 << 10;
/// With a variable store of as much, all stays above what KVM has below 4 GiB.
pub(super) const MAX_IMAGE_BYTES: u64 = 8 << 20;

/// Firmware cannot be set up.
#[derive(Debug, thiserror::Error)]
pub enum FirmwareError {
    /// The image's length.
    #[error(
        "the firmware image has {0} bytes; it must be a multiple of 4096 from {min} to {max}",
        min = MIN_IMAGE_BYTES,
        max = MAX_IMAGE_BYTES
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
    #[error("{0} is in the boot order, but no disk or network device is there")]
    BootOrder(crate::pci::address::PciAddress),
    /// The machine's tables have no place for the address of the generation id.
    #[error("the ACPI tables have no place for the address of the generation id")]
    Generation,
}

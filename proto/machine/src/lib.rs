//! What agent and VMM both have to know of a machine, defined once: CPU models ([`cpu_models`]), names of CPU features
//! ([`cpu_features`]), Hyper-V's enlightenments ([`hyperv`]), the strings that a guest finds in SMBIOS ([`smbios`]), and numbers of NICs.

#![forbid(unsafe_code)]

pub mod cpu_features;
pub mod cpu_models;
pub mod hyperv;
pub mod smbios;

/// The highest number by which ACPI names a NIC: guests take no higher one for a name (udev, QEMU).
pub const MAX_ACPI_INDEX: u16 = (16 << 10) - 1;

//! What lies in guest memory before the kernel runs.

/// A kernel in guest memory.
pub(super) struct LoadedKernel {
    /// First byte after the kernel, its .bss included.
    pub(super) end: u64,
    /// 64-bit entry point.
    pub(super) entry64: u64,
    /// 32-bit PVH entry point, if the kernel has one.
    pub(super) entry_pvh: Option<u64>,
    /// The 64-bit entry point is Linux' (`startup_64`).
    pub(super) is_linux: bool,
    /// Last address that an initrd may use.
    pub(super) initrd_max: u64,
    /// The setup header of a bzImage, for the zero page.
    pub(super) setup_header: Option<Vec<u8>>,
}

/// What boot protocols pass to a kernel beyond its own files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Firmware {
    /// Root of the ACPI tables.
    pub rsdp: u64,
}

/// Where an initrd lies in guest memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Initrd {
    pub(super) address: u64,
    pub(super) bytes: u64,
}

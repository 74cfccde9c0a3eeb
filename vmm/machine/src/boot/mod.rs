//! Direct boot: a kernel, an initrd and a command line into guest memory, and the registers to start
//! with.
//!
//! Kernel files come from users: every header field is checked against the file's and the guest's
//! size before it is used. Everything here runs at build and again at every reset.

mod bzimage;
mod early;
mod elf;
mod error;
mod image;
mod linux;
mod loaded;
mod map;
mod pvh;
mod registers;

use std::fs::File;

use vmm_kvm::StartState;
use vmm_memory::{GuestRam, Layout};

pub use error::{BootError, MAX_CMDLINE_BYTES};
pub(crate) use loaded::Firmware;
use loaded::{Initrd, LoadedKernel};
pub(crate) use map::{
    ACPI_BASE, ACPI_BYTES, GENERATION_PAGE, MP_POINTER, MP_TABLE, MP_TABLE_BYTES, SMBIOS_BASE,
    SMBIOS_BYTES,
};

/// How the kernel is entered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelEntry {
    /// Linux by the 64-bit protocol, whether ELF or bzImage; another ELF by PVH if it has the note, else
    /// at its entry point.
    #[default]
    Default,
    /// By the PVH note; an error for a kernel without.
    Pvh,
    /// 64-bit Linux boot protocol.
    Linux64,
}

/// A kernel that is booted directly.
#[derive(Debug)]
pub struct KernelConfig {
    /// ELF or bzImage.
    pub kernel: File,
    /// Initial RAM disk, if any.
    pub initrd: Option<File>,
    /// Command line without NUL, at most [`MAX_CMDLINE_BYTES`].
    pub cmdline: Vec<u8>,
    /// How the kernel is entered.
    pub entry: KernelEntry,
    /// Linux is to reach PCI's configuration space by memory alone, where reads are no exits.
    pub maps_pci: bool,
}

/// Loads everything and gives the registers of the boot processor.
pub(crate) fn load(
    ram: &GuestRam,
    layout: &Layout,
    config: &KernelConfig,
    firmware: Firmware,
) -> Result<StartState, BootError> {
    if config.cmdline.len() > MAX_CMDLINE_BYTES || config.cmdline.contains(&0) {
        return Err(BootError::Cmdline(config.cmdline.len()));
    }
    early::prepare(ram, layout);
    let kernel = load_kernel(ram, &config.kernel)?;
    let initrd = match &config.initrd {
        Some(file) => Some(load_initrd(ram, layout, &kernel, file)?),
        None => None,
    };
    map::write_cmdline(ram, &config.cmdline)?;
    let entry_pvh = match config.entry {
        KernelEntry::Pvh => Some(kernel.entry_pvh.ok_or(BootError::NoPvhEntry)?),
        // Linux that is entered by PVH looks for Xen first, which takes 256 exits.
        KernelEntry::Default => kernel.entry_pvh.filter(|_| !kernel.is_linux),
        KernelEntry::Linux64 => None,
    };
    if let Some(entry) = entry_pvh {
        pvh::write_start_info(ram, layout, initrd, config.cmdline.len(), firmware)?;
        return registers::protected_mode(ram, entry, pvh::START_INFO);
    }
    linux::write_zero_page(ram, layout, &kernel, initrd, config.cmdline.len(), firmware)?;
    registers::long_mode(ram, kernel.entry64, linux::ZERO_PAGE)
}

fn load_kernel(ram: &GuestRam, file: &File) -> Result<LoadedKernel, BootError> {
    let mut magic = [0u8; 4];
    std::os::unix::fs::FileExt::read_exact_at(file, &mut magic, 0)
        .map_err(|_| BootError::UnknownFormat)?;
    if magic == *b"\x7fELF" {
        elf::load(ram, file)
    } else {
        bzimage::load(ram, file)
    }
}

/// As high as the kernel allows, so that the kernel can unpack or move itself below.
fn load_initrd(
    ram: &GuestRam,
    layout: &Layout,
    kernel: &LoadedKernel,
    file: &File,
) -> Result<Initrd, BootError> {
    const WHAT: &str = "the initrd";
    let bytes = file
        .metadata()
        .map_err(|source| BootError::Stat(WHAT, source))?
        .len();
    let too_large = BootError::TooLarge { what: WHAT, bytes };
    let limit = layout
        .low_ram()
        .end()
        .min(kernel.initrd_max.saturating_add(1));
    let address = limit.checked_sub(bytes).map(|start| start & !0xfff);
    let (Some(address), Ok(length)) = (address, usize::try_from(bytes)) else {
        return Err(too_large);
    };
    if address < kernel.end {
        return Err(too_large);
    }
    vmm_memory::load_file(ram, address, file, 0, length)
        .map_err(|source| BootError::Load { what: WHAT, source })?;
    Ok(Initrd { address, bytes })
}

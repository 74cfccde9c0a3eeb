//! bzImage (Documentation/arch/x86/boot.rst), loaded by linux-loader and entered by its 64-bit
//! entry point.

use std::fs::File;
use std::os::unix::fs::FileExt;

use linux_loader::loader::KernelLoader;
use linux_loader::loader::bzimage::BzImage;
use vm_memory::GuestAddress;
use vmm_memory::GuestRam;

use super::error::BootError;
use super::image::KernelImage;
use super::loaded::LoadedKernel;
use super::map::HIGH_START;

const WHAT: &str = "the kernel";
/// The setup header within file and zero page.
pub(super) const SETUP_HEADER: usize = 0x1f1;
/// First offset behind all fields that we read.
const HEADER_END: usize = 0x268;
/// Protocol 2.12 brought `xloadflags`.
const MIN_VERSION: u16 = 0x20c;
const XLF_KERNEL_64: u16 = 1;
const SECTOR_BYTES: u64 = 512;
/// The 64-bit entry point lies this far into the protected-mode code.
const ENTRY64_OFFSET: u64 = 0x200;

/// Loads the protected-mode part at the address that the kernel prefers.
pub(super) fn load(ram: &GuestRam, file: &File) -> Result<LoadedKernel, BootError> {
    let mut head = [0u8; HEADER_END];
    file.read_exact_at(&mut head, 0)
        .map_err(|_| BootError::UnknownFormat)?;
    if head[0x202..0x206] != *b"HdrS" {
        return Err(BootError::UnknownFormat);
    }
    let half = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let word = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
    if half(0x206) < MIN_VERSION || half(0x236) & XLF_KERNEL_64 == 0 {
        return Err(BootError::Malformed(
            "the bzImage has no 64-bit entry point",
        ));
    }
    let setup_sectors = match head[SETUP_HEADER] {
        0 => 4,
        count => u64::from(count),
    };
    let code_at = (setup_sectors + 1) * SECTOR_BYTES;
    let file_bytes = file
        .metadata()
        .map_err(|source| BootError::Stat(WHAT, source))?
        .len();
    let code_bytes = file_bytes
        .checked_sub(code_at)
        .ok_or(BootError::Malformed("the file ends within its setup code"))?;
    let address = u64::from(word(0x258)) | u64::from(word(0x25c)) << 32;
    let memory_bytes = code_bytes.max(u64::from(word(0x260)));
    let too_large = || BootError::TooLarge {
        what: WHAT,
        bytes: memory_bytes,
    };
    if address < HIGH_START {
        return Err(BootError::Malformed("it wants to be loaded below 1 MiB"));
    }
    let end = address.checked_add(memory_bytes).ok_or_else(too_large)?;
    let mut image = KernelImage::new(file, ram);
    BzImage::load(ram, Some(GuestAddress(address)), &mut image, None).map_err(BootError::Loader)?;
    // The header ends where its jump instruction points to.
    let header_end = (0x202 + usize::from(head[0x201])).clamp(0x206, HEADER_END);
    Ok(LoadedKernel {
        end,
        entry64: address + ENTRY64_OFFSET,
        entry_pvh: None,
        is_linux: true,
        initrd_max: u64::from(word(0x22c)),
        setup_header: Some(head[SETUP_HEADER..header_end].to_vec()),
    })
}

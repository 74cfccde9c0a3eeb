//! ELF kernels (`vmlinux`, or any ELF64 with a PVH note), loaded by linux-loader.

use std::fs::File;
use std::os::unix::fs::FileExt;

use linux_loader::loader::KernelLoader;
use linux_loader::loader::elf::{Elf, PvhBootCapability};
use vm_memory::{Address, GuestAddress, GuestMemoryBackend};
use vmm_memory::GuestRam;

use super::error::BootError;
use super::image::KernelImage;
use super::loaded::LoadedKernel;
use super::map::HIGH_START;

const CLASS_64: u8 = 2;
const LITTLE_ENDIAN: u8 = 1;
const EM_X86_64: u16 = 62;
/// `Elf64_Ehdr` and `Elf64_Phdr`.
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
const PT_LOAD: u32 = 1;
/// Linux has no more than ten.
const MOST_SEGMENTS: u64 = 64;
/// `__START_KERNEL_map`.
const LINUX_KERNEL_MAP: u64 = 0xffff_ffff_8000_0000;

/// Loads the segments of `file` at their physical addresses. What a segment has in memory but not
/// in the file is left as it is: RAM is zero at power-on and after a reset.
pub(super) fn load(ram: &GuestRam, file: &File) -> Result<LoadedKernel, BootError> {
    let header = read_header(file)?;
    let mut image = KernelImage::new(file, ram);
    let loaded = Elf::load(ram, None, &mut image, Some(GuestAddress(HIGH_START)))
        .map_err(BootError::Loader)?;
    let end = loaded.kernel_end.max(HIGH_START);
    let bytes = end - HIGH_START;
    let fits =
        usize::try_from(bytes).is_ok_and(|bytes| ram.check_range(GuestAddress(HIGH_START), bytes));
    if !fits {
        return Err(BootError::TooLarge {
            what: "the kernel",
            bytes,
        });
    }
    let entry_pvh = match loaded.pvh_boot_cap {
        PvhBootCapability::PvhEntryPresent(address) => Some(address.raw_value()),
        PvhBootCapability::PvhEntryNotPresent | PvhBootCapability::PvhEntryIgnored => None,
    };
    Ok(LoadedKernel {
        end,
        entry64: loaded.kernel_load.raw_value(),
        entry_pvh,
        is_linux: is_linux(file, &header, loaded.kernel_load.raw_value()),
        initrd_max: u64::from(u32::MAX),
        setup_header: None,
    })
}

/// Whether a kernel that was loaded is x86-64 Linux (`arch/x86/kernel/vmlinux.lds.S`): its entry point is a
/// physical address, in a segment that is linked 2 GiB below the end of the address space.
fn is_linux(file: &File, header: &[u8; HEADER_BYTES], entry: u64) -> bool {
    let first = number(header, 32);
    let count = u64::from(u16::from_le_bytes([header[56], header[57]]));
    (0..count.min(MOST_SEGMENTS)).any(|index| {
        let mut segment = [0; PROGRAM_HEADER_BYTES];
        let at = first.saturating_add(index * PROGRAM_HEADER_BYTES as u64);
        let [linked, physical, bytes] = match file.read_exact_at(&mut segment, at) {
            Ok(()) => [16, 24, 40].map(|field| number(&segment, field)),
            Err(_) => return false,
        };
        segment.starts_with(&PT_LOAD.to_le_bytes())
            && linked.wrapping_sub(physical) == LINUX_KERNEL_MAP
            && entry
                .checked_sub(physical)
                .is_some_and(|within| within < bytes)
    })
}

/// The number of 64 bits at an offset.
fn number(bytes: &[u8], at: usize) -> u64 {
    let field = bytes
        .get(at..at + 8)
        .and_then(|field| field.try_into().ok());
    field.map_or(0, u64::from_le_bytes)
}

/// The file's header, of this machine: linux-loader takes every little-endian ELF for one.
fn read_header(file: &File) -> Result<[u8; HEADER_BYTES], BootError> {
    let mut header = [0; HEADER_BYTES];
    file.read_exact_at(&mut header, 0)
        .map_err(|_| BootError::Malformed("the file ends within its headers"))?;
    let machine = u16::from_le_bytes([header[18], header[19]]);
    if (header[4], header[5], machine) == (CLASS_64, LITTLE_ENDIAN, EM_X86_64) {
        Ok(header)
    } else {
        Err(BootError::Malformed("not a little-endian ELF for x86-64"))
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use vmm_memory::{Layout, create_ram};

    use vm_memory::Bytes;

    use super::*;

    const PT_NOTE: u32 = 4;
    /// `XEN_ELFNOTE_PHYS32_ENTRY` (xen/include/public/elfnote.h).
    const NOTE_PHYS32_ENTRY: u32 = 18;

    fn ram() -> GuestRam {
        create_ram(&Layout::new(4 << 20, 40).unwrap()).unwrap()
    }

    fn file(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    /// One loadable segment with `content` at 1 MiB and one note.
    fn image(content: &[u8], memory_bytes: u64) -> Vec<u8> {
        let mut image = vec![0; HEADER_BYTES + 2 * PROGRAM_HEADER_BYTES];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[18..20].copy_from_slice(&EM_X86_64.to_le_bytes());
        image[24..32].copy_from_slice(&0x10_0040u64.to_le_bytes());
        image[32..40].copy_from_slice(&64u64.to_le_bytes());
        image[54..56].copy_from_slice(&56u16.to_le_bytes());
        image[56..58].copy_from_slice(&2u16.to_le_bytes());
        let note_at = image.len() as u64;
        let note: Vec<u8> = [4u32, 4, NOTE_PHYS32_ENTRY]
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .chain(*b"Xen\0")
            .chain(0x10_0100u32.to_le_bytes())
            .collect();
        let mut program_header = |index: usize, kind: u32, fields: [u64; 4]| {
            let at = HEADER_BYTES + index * PROGRAM_HEADER_BYTES;
            image[at..at + 4].copy_from_slice(&kind.to_le_bytes());
            for (field, offset) in fields.iter().zip([8, 24, 32, 40]) {
                image[at + offset..at + offset + 8].copy_from_slice(&field.to_le_bytes());
            }
        };
        program_header(0, PT_NOTE, [note_at, 0, note.len() as u64, 0]);
        let content_at = note_at + note.len() as u64;
        program_header(
            1,
            PT_LOAD,
            [content_at, 0x10_0000, content.len() as u64, memory_bytes],
        );
        image.extend(note);
        image.extend(content);
        image
    }

    #[test]
    fn segments_bss_and_both_entries_are_found() {
        let ram = ram();
        let kernel = load(&ram, &file(&image(b"kernel", 32))).unwrap();
        assert_eq!(kernel.entry64, 0x10_0040);
        assert_eq!(kernel.entry_pvh, Some(0x10_0100));
        assert_eq!(kernel.end, 0x10_0020);
        let mut loaded = [0; 32];
        ram.read_slice(&mut loaded, GuestAddress(0x10_0000))
            .unwrap();
        assert_eq!(&loaded[..6], b"kernel");
        assert!(loaded[6..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn linux_is_known_by_where_it_is_linked_and_where_it_begins() {
        let mut image = image(b"kernel", 0x80);
        let is_linux = |image: &[u8]| load(&ram(), &file(image)).unwrap().is_linux;
        assert!(!is_linux(&image));
        let linked_at = HEADER_BYTES + PROGRAM_HEADER_BYTES + 16;
        let linked = LINUX_KERNEL_MAP + 0x10_0000;
        image[linked_at..linked_at + 8].copy_from_slice(&linked.to_le_bytes());
        assert!(is_linux(&image));
        // As others that are linked there, it begins elsewhere.
        image[24..32].copy_from_slice(&0x20_0000u64.to_le_bytes());
        assert!(!is_linux(&image));
    }

    #[test]
    fn a_kernel_beyond_ram_is_refused() {
        assert!(matches!(
            load(&ram(), &file(&image(b"kernel", 8 << 20))),
            Err(BootError::TooLarge { .. })
        ));
    }

    #[test]
    fn a_cut_off_kernel_is_refused() {
        let image = image(b"kernel", 6);
        for length in 4..image.len() {
            assert!(load(&ram(), &file(&image[..length])).is_err(), "{length}");
        }
    }

    proptest! {
        #[test]
        fn mutilated_headers_never_panic(at in 4usize..200, byte: u8) {
            let mut image = image(b"kernel", 6);
            if let Some(target) = image.get_mut(at) {
                *target = byte;
            }
            if let Ok(kernel) = load(&ram(), &file(&image)) {
                prop_assert!(kernel.end <= 4 << 20);
            }
        }

        #[test]
        fn noise_in_notes_never_panics(notes in proptest::collection::vec(any::<u8>(), 24)) {
            let mut image = image(b"kernel", 6);
            let at = HEADER_BYTES + 2 * PROGRAM_HEADER_BYTES;
            image[at..at + 24].copy_from_slice(&notes[..24]);
            if let Ok(kernel) = load(&ram(), &file(&image)) {
                prop_assert!(kernel.entry_pvh.is_none_or(|entry| entry <= u64::from(u32::MAX)));
            }
        }
    }
}

//! ELF kernels (`vmlinux`, or any ELF64 with a PVH note).

use std::fs::File;
use std::os::unix::fs::FileExt;

use vm_memory::{Bytes, GuestAddress};
use vmm_memory::GuestRam;

use super::map::HIGH_START;
use super::{BootError, LoadedKernel};

const WHAT: &str = "the kernel";
const HEADER_BYTES: usize = 64;
const PROGRAM_HEADER_BYTES: usize = 56;
/// More program headers than any kernel has.
const MAX_PROGRAM_HEADERS: u16 = 64;
/// Longer notes are not looked at.
const MAX_NOTE_BYTES: u64 = 64 << 10;
const PT_LOAD: u32 = 1;
const PT_NOTE: u32 = 4;
const EM_X86_64: u16 = 62;
/// `XEN_ELFNOTE_PHYS32_ENTRY` (xen/include/public/elfnote.h).
const NOTE_PHYS32_ENTRY: u32 = 18;

/// A program header (ELF-64 Object File Format, 9).
#[derive(Clone, Copy, Debug)]
struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    file_bytes: u64,
    memory_bytes: u64,
}

/// Loads the segments of `file` at their physical addresses.
pub(super) fn load(ram: &GuestRam, file: &File) -> Result<LoadedKernel, BootError> {
    let mut header = [0; HEADER_BYTES];
    read(file, &mut header, 0)?;
    let class_and_data = (header[4], header[5]);
    if class_and_data != (2, 1) || half(&header, 18) != EM_X86_64 {
        return Err(BootError::Malformed("not a little-endian ELF for x86-64"));
    }
    let mut end = HIGH_START;
    let mut entry_pvh = None;
    for segment in segments(file, &header)? {
        match segment.kind {
            PT_LOAD => end = end.max(load_segment(ram, file, segment)?),
            PT_NOTE => entry_pvh = entry_pvh.or(pvh_entry(file, segment)?),
            _ => {}
        }
    }
    Ok(LoadedKernel {
        end,
        entry64: long(&header, 24),
        entry_pvh,
        initrd_max: u64::from(u32::MAX),
        setup_header: None,
    })
}

fn segments(file: &File, header: &[u8; HEADER_BYTES]) -> Result<Vec<Segment>, BootError> {
    let count = half(header, 56);
    if count > MAX_PROGRAM_HEADERS {
        return Err(BootError::Malformed("more than 64 program headers"));
    }
    if usize::from(half(header, 54)) != PROGRAM_HEADER_BYTES {
        return Err(BootError::Malformed(
            "program headers of another size than 56 bytes",
        ));
    }
    let mut table = vec![0; usize::from(count) * PROGRAM_HEADER_BYTES];
    read(file, &mut table, long(header, 32))?;
    Ok(table
        .chunks_exact(PROGRAM_HEADER_BYTES)
        .map(|entry| Segment {
            kind: word(entry, 0),
            offset: long(entry, 8),
            address: long(entry, 24),
            file_bytes: long(entry, 32),
            memory_bytes: long(entry, 40),
        })
        .collect())
}

/// Returns the end of the segment in memory.
fn load_segment(ram: &GuestRam, file: &File, segment: Segment) -> Result<u64, BootError> {
    let too_large = || BootError::TooLarge {
        what: WHAT,
        bytes: segment.memory_bytes,
    };
    if segment.memory_bytes < segment.file_bytes {
        return Err(BootError::Malformed(
            "a segment is longer in the file than in memory",
        ));
    }
    if segment.memory_bytes == 0 {
        return Ok(HIGH_START);
    }
    if segment.address < HIGH_START {
        return Err(BootError::Malformed("a segment lies below 1 MiB"));
    }
    let end = segment
        .address
        .checked_add(segment.memory_bytes)
        .ok_or_else(too_large)?;
    let memory_bytes = usize::try_from(segment.memory_bytes).map_err(|_| too_large())?;
    let file_bytes = usize::try_from(segment.file_bytes).map_err(|_| too_large())?;
    vmm_memory::load_file(ram, segment.address, file, segment.offset, file_bytes)
        .map_err(|source| BootError::Load { what: WHAT, source })?;
    zero(
        ram,
        segment.address + segment.file_bytes,
        memory_bytes - file_bytes,
    )
    .map_err(|_| too_large())?;
    Ok(end)
}

/// Zeroes what is not yet zero: pages of fresh guest memory are not touched.
fn zero(ram: &GuestRam, address: u64, bytes: usize) -> Result<(), vm_memory::GuestMemoryError> {
    const PAGE: usize = 4096;
    const ZEROES: [u8; PAGE] = [0; PAGE];
    let mut at = address;
    let mut left = bytes;
    let mut present = [0; PAGE];
    while left > 0 {
        let chunk = left.min(PAGE);
        let (Some(seen), Some(zeroes)) = (present.get_mut(..chunk), ZEROES.get(..chunk)) else {
            break;
        };
        ram.read_slice(seen, GuestAddress(at))?;
        if seen != zeroes {
            ram.write_slice(zeroes, GuestAddress(at))?;
        }
        at += chunk as u64;
        left -= chunk;
    }
    Ok(())
}

/// The PVH entry point in a note segment, if it is there. A malformed note is no note.
fn pvh_entry(file: &File, segment: Segment) -> Result<Option<u64>, BootError> {
    if segment.file_bytes > MAX_NOTE_BYTES {
        return Ok(None);
    }
    let Ok(length) = usize::try_from(segment.file_bytes) else {
        return Ok(None);
    };
    let mut notes = vec![0; length];
    read(file, &mut notes, segment.offset)?;
    Ok(find_pvh_note(&notes))
}

fn find_pvh_note(mut notes: &[u8]) -> Option<u64> {
    loop {
        let (header, rest) = notes.split_first_chunk::<12>()?;
        let name_bytes = usize::try_from(word(header, 0)).ok()?;
        let value_bytes = usize::try_from(word(header, 4)).ok()?;
        let name = rest.get(..name_bytes)?;
        let rest = rest.get(name_bytes.checked_next_multiple_of(4)?..)?;
        let value = rest.get(..value_bytes)?;
        if word(header, 8) == NOTE_PHYS32_ENTRY && name == b"Xen\0" {
            return match *value {
                [a, b, c, d] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
                [a, b, c, d, 0, 0, 0, 0] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
                _ => None,
            };
        }
        notes = rest.get(value_bytes.checked_next_multiple_of(4)?..)?;
    }
}

fn read(file: &File, buffer: &mut [u8], offset: u64) -> Result<(), BootError> {
    file.read_exact_at(buffer, offset)
        .map_err(|_| BootError::Malformed("the file ends within its headers"))
}

/// Fields of tables whose length was checked; beyond the end is 0.
fn bytes<const N: usize>(table: &[u8], offset: usize) -> [u8; N] {
    table
        .get(offset..)
        .and_then(|rest| rest.first_chunk::<N>())
        .copied()
        .unwrap_or([0; N])
}

fn half(table: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes(bytes(table, offset))
}

fn word(table: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes(table, offset))
}

fn long(table: &[u8], offset: usize) -> u64 {
    u64::from_le_bytes(bytes(table, offset))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;
    use vmm_memory::{Layout, create_ram};

    use super::*;

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
        ram.write_slice(&[0xff; 64], GuestAddress(0x10_0000))
            .unwrap();
        let kernel = load(&ram, &file(&image(b"kernel", 32))).unwrap();
        assert_eq!(kernel.entry64, 0x10_0040);
        assert_eq!(kernel.entry_pvh, Some(0x10_0100));
        assert_eq!(kernel.end, 0x10_0020);
        let mut loaded = [0; 33];
        ram.read_slice(&mut loaded, GuestAddress(0x10_0000))
            .unwrap();
        assert_eq!(&loaded[..6], b"kernel");
        assert!(loaded[6..32].iter().all(|byte| *byte == 0));
        assert_eq!(loaded[32], 0xff);
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
        fn noise_in_notes_never_panics(notes in proptest::collection::vec(any::<u8>(), 0..80)) {
            find_pvh_note(&notes);
        }
    }
}

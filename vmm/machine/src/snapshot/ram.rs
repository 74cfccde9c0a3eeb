//! RAM to a file and back. What is zero stays a hole: pages that were never touched, and those that
//! were allocated beforehand but not used, such as a huge page of which the guest has a corner.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use vm_memory::bitmap::BitmapSlice;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion, VolatileSlice};
use vmm_memory::GuestRam;
use vmm_sys::guest_io;

use super::blocks::{BLOCK_BYTES, ZERO};
use super::checksums::{RAM_CHUNK_BYTES, Summing};

/// Bytes of one transfer.
const STEP_BYTES: u64 = 8 << 20;

/// Writes all RAM to `file`, which is empty from `offset` on, to there: a byte of RAM lies where it
/// lies in the memfd. What is zero stays a hole. Returns the checksum of each chunk.
///
/// # Errors
/// Those of either file.
pub fn save_ram(ram: &GuestRam, file: &File, offset: u64) -> io::Result<Vec<u32>> {
    let end = ram_bytes(ram);
    file.set_len(offset + end)?;
    let mut checksums = Vec::new();
    let mut summing = Summing::new(end, |_, checksum| {
        checksums.push(checksum);
        Ok(())
    });
    let mut block = vec![0; BLOCK_BYTES];
    for region in regions(ram)? {
        for extent in data_extents(region.memfd, region.offset, region.bytes)? {
            for (at, bytes) in steps(extent) {
                summing.take_zeros(at)?;
                let slice = slice(ram, region.base + (at - region.offset), bytes)?;
                for (start, length) in used_stretches(&slice, &mut block, &mut summing)? {
                    let part = slice.subslice(start, length).map_err(io::Error::other)?;
                    let done = guest_io::write_at(file, &[part], offset + at + start as u64)?;
                    complete(done, length)?;
                }
            }
        }
    }
    summing.finish()?;
    Ok(checksums)
}

/// Fills RAM, which is all zero, with what [`save_ram`] wrote. With `checksums`, each chunk is checked
/// before the next one is read.
///
/// # Errors
/// Those of the file, `UnexpectedEof` when it is too short, and `InvalidData` when a chunk is not as its
/// checksum says.
pub fn load_ram(
    ram: &GuestRam,
    file: &File,
    offset: u64,
    checksums: Option<&[u32]>,
) -> io::Result<()> {
    let end = ram_bytes(ram);
    if file.metadata()?.len() < offset.saturating_add(end) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let mut summing = checksums
        .map(|checksums| Summing::new(end, |number, found| check(checksums, number, found)));
    let mut block = vec![0; BLOCK_BYTES];
    for region in regions(ram)? {
        let start = offset + region.offset;
        for extent in data_extents(file, start, region.bytes)? {
            for (at, bytes) in steps(extent) {
                let slice = slice(ram, region.base + (at - start), bytes)?;
                let length = slice.len();
                let done = guest_io::read_at(file, std::slice::from_ref(&slice), at)?;
                complete(done, length)?;
                if let Some(summing) = &mut summing {
                    // What is in RAM now, not what the file may hold by then.
                    summing.take_zeros(at - offset)?;
                    for_blocks(&slice, &mut block, |_, bytes| summing.take(bytes))?;
                }
            }
        }
    }
    summing.map_or(Ok(()), Summing::finish)
}

/// Whether a chunk is as it was saved.
fn check(checksums: &[u32], number: u64, found: u32) -> io::Result<()> {
    let index = usize::try_from(number).map_err(io::Error::other)?;
    if checksums.get(index) == Some(&found) {
        return Ok(());
    }
    let start = number * RAM_CHUNK_BYTES;
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "the chunk at byte {start:#x} of RAM is not as its checksum says: the file is damaged"
        ),
    ))
}

struct Region<'a> {
    /// Guest-physical address.
    base: u64,
    bytes: u64,
    memfd: &'a File,
    /// Offset in the memfd.
    offset: u64,
}

fn regions(ram: &GuestRam) -> io::Result<Vec<Region<'_>>> {
    ram.iter()
        .map(|region| {
            let backing = region.file_offset().ok_or(io::ErrorKind::Unsupported)?;
            Ok(Region {
                base: region.start_addr().0,
                bytes: region.len(),
                memfd: backing.file(),
                offset: backing.start(),
            })
        })
        .collect()
}

/// Length of all RAM, and so of its image.
#[must_use]
pub fn ram_bytes(ram: &GuestRam) -> u64 {
    ram.iter().map(GuestMemoryRegion::len).sum()
}

/// A range of RAM, which lies within one region.
fn slice(
    ram: &GuestRam,
    address: u64,
    bytes: u64,
) -> io::Result<VolatileSlice<'_, impl BitmapSlice>> {
    let length = usize::try_from(bytes).map_err(io::Error::other)?;
    ram.get_slice(GuestAddress(address), length)
        .map_err(io::Error::other)
}

/// Where `slice` is not zero: offsets and lengths, in whole blocks but for the end. All of it is summed up.
fn used_stretches(
    slice: &VolatileSlice<'_, impl BitmapSlice>,
    block: &mut [u8],
    summing: &mut Summing<impl FnMut(u64, u32) -> io::Result<()>>,
) -> io::Result<Vec<(usize, usize)>> {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for_blocks(slice, block, |start, bytes| {
        summing.take(bytes)?;
        if Some(bytes) == ZERO.get(..bytes.len()) {
            return Ok(());
        }
        match stretches.last_mut() {
            Some((first, length)) if *first + *length == start => *length += bytes.len(),
            _ => stretches.push((start, bytes.len())),
        }
        Ok(())
    })?;
    Ok(stretches)
}

/// Copies `slice` block by block and gives each to `each`, with its offset.
fn for_blocks(
    slice: &VolatileSlice<'_, impl BitmapSlice>,
    block: &mut [u8],
    mut each: impl FnMut(usize, &[u8]) -> io::Result<()>,
) -> io::Result<()> {
    for start in (0..slice.len()).step_by(BLOCK_BYTES) {
        let length = BLOCK_BYTES.min(slice.len() - start);
        let part = slice.subslice(start, length).map_err(io::Error::other)?;
        part.copy_to(block);
        each(start, block.get(..length).unwrap_or_default())?;
    }
    Ok(())
}

fn complete(done: usize, length: usize) -> io::Result<()> {
    if done == length {
        Ok(())
    } else {
        Err(io::ErrorKind::UnexpectedEof.into())
    }
}

/// An extent cut into transfers: offset and length.
fn steps((start, end): (u64, u64)) -> impl Iterator<Item = (u64, u64)> {
    let mut at = start;
    std::iter::from_fn(move || {
        let bytes = end.saturating_sub(at).min(STEP_BYTES);
        let step = (at, bytes);
        at += bytes;
        (bytes > 0).then_some(step)
    })
}

/// Where `bytes` bytes at `start` hold data: start and end of each stretch.
fn data_extents(file: &File, start: u64, bytes: u64) -> io::Result<Vec<(u64, u64)>> {
    let end = start + bytes;
    let mut extents = Vec::new();
    let mut at = start;
    while at < end {
        let Some(data) = seek(file, at, Whence::SeekData)? else {
            break;
        };
        // After data there is always a hole, if only the end of the file.
        let hole = seek(file, data, Whence::SeekHole)?.unwrap_or(end);
        if data >= end {
            break;
        }
        extents.push((data, hole.min(end)));
        at = hole;
    }
    Ok(extents)
}

/// `None` when there is nothing of the kind up to the end of the file.
fn seek(file: &File, from: u64, whence: Whence) -> io::Result<Option<u64>> {
    let offset = i64::try_from(from).map_err(io::Error::other)?;
    match lseek(file, offset, whence) {
        Ok(found) => Ok(u64::try_from(found).ok()),
        Err(Errno::ENXIO) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{FileExt, MetadataExt};

    use vm_memory::Bytes;
    use vmm_memory::{Layout, create_ram};

    use super::super::checksums::ram_checksum_count;
    use super::*;

    #[test]
    fn ram_that_is_not_as_it_was_saved_is_refused_by_the_place_of_the_damage() {
        let before = ram(64 << 20);
        for place in [0x10_0000u64, (5 << 20) + 8, (63 << 20) + 0xff00] {
            before.write_obj(place, GuestAddress(place)).unwrap();
        }
        let file = tempfile::tempfile().unwrap();
        let checksums = save_ram(&before, &file, 4096).unwrap();
        assert_eq!(checksums.len() as u64, ram_checksum_count(64 << 20));
        load_ram(&ram(64 << 20), &file, 4096, Some(&checksums)).unwrap();
        // One bit of data, and one in what was a hole.
        for place in [(5 << 20) + 8, 33 << 20] {
            let mut byte = [0];
            file.read_exact_at(&mut byte, 4096 + place).unwrap();
            file.write_all_at(&[byte[0] ^ 1], 4096 + place).unwrap();
            let damaged = load_ram(&ram(64 << 20), &file, 4096, Some(&checksums)).unwrap_err();
            assert_eq!(damaged.kind(), io::ErrorKind::InvalidData);
            let chunk = place / RAM_CHUNK_BYTES * RAM_CHUNK_BYTES;
            assert!(
                damaged.to_string().contains(&format!("{chunk:#x} ")),
                "{damaged}"
            );
            file.write_all_at(&byte, 4096 + place).unwrap();
        }
        // A hole where data was, as after a file system lost a block.
        let (start, bytes) = (4096 + (5 << 20), 1 << 20);
        vmm_sys::image::allocate(&file, vmm_sys::image::PUNCH_HOLE, start, bytes).unwrap();
        load_ram(&ram(64 << 20), &file, 4096, Some(&checksums)).unwrap_err();
        // Snapshots of before had no checksums.
        load_ram(&ram(64 << 20), &file, 4096, None).unwrap();
    }

    fn ram(bytes: u64) -> GuestRam {
        create_ram(&Layout::new(bytes, 40).unwrap()).unwrap()
    }

    #[test]
    fn ram_on_both_sides_of_the_hole_comes_back_and_holes_stay_holes() {
        let before = ram(3 << 30);
        let places = [0u64, 0x1f_fff8, (2 << 30) - 8, 4 << 30, (5 << 30) - 8];
        for place in places {
            before
                .write_obj(place ^ 0x5a5a, GuestAddress(place))
                .unwrap();
        }
        let file = tempfile::tempfile().unwrap();
        let checksums = save_ram(&before, &file, 8192).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < 64 << 20);
        let after = ram(3 << 30);
        load_ram(&after, &file, 8192, Some(&checksums)).unwrap();
        for place in places {
            let value: u64 = after.read_obj(GuestAddress(place)).unwrap();
            assert_eq!(value, place ^ 0x5a5a);
        }
        let region = after.find_region(GuestAddress(0)).unwrap();
        let memfd = region.file_offset().unwrap().file();
        assert!(memfd.metadata().unwrap().blocks() * 512 < 64 << 20);
    }

    #[test]
    fn memory_that_was_allocated_and_not_used_stays_a_hole() {
        let before = ram(64 << 20);
        let threads = std::num::NonZeroUsize::MIN;
        let cancelled = &std::sync::atomic::AtomicBool::new(false);
        let options = vmm_memory::PopulateOptions { threads, cancelled };
        vmm_memory::populate(&before, vmm_memory::Pages::Ordinary, options).unwrap();
        let places = [
            (64 << 10) - 8,
            20 << 20,
            (20 << 20) + (64 << 10),
            (64 << 20) - 8,
        ];
        for place in places {
            before.write_obj(!place, GuestAddress(place)).unwrap();
        }
        let file = tempfile::tempfile().unwrap();
        let checksums = save_ram(&before, &file, 4096).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 <= 8 * BLOCK_BYTES as u64);
        let after = ram(64 << 20);
        load_ram(&after, &file, 4096, Some(&checksums)).unwrap();
        for place in places {
            let value: u64 = after.read_obj(GuestAddress(place)).unwrap();
            assert_eq!(value, !place);
        }
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let file = tempfile::tempfile().unwrap();
        save_ram(&ram(64 << 20), &file, 4096).unwrap();
        file.set_len(4096 + (64 << 20) - 1).unwrap();
        let error = load_ram(&ram(64 << 20), &file, 4096, None).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

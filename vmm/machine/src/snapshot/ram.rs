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

/// Bytes of one transfer.
const STEP_BYTES: u64 = 8 << 20;
/// What is looked at to find out whether it is zero, in bytes. Smaller holes would save little.
const BLOCK_BYTES: usize = 64 << 10;
static ZERO: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

/// Writes all RAM to `file`, which is empty from `offset` on, to there: a byte of RAM lies where it
/// lies in the memfd. What is zero stays a hole.
///
/// # Errors
/// Those of either file.
pub fn save_ram(ram: &GuestRam, file: &File, offset: u64) -> io::Result<()> {
    let end = ram_bytes(ram);
    file.set_len(offset + end)?;
    let mut block = vec![0; BLOCK_BYTES];
    for region in regions(ram)? {
        for extent in data_extents(region.memfd, region.offset, region.bytes)? {
            for (at, bytes) in steps(extent) {
                let slice = slice(ram, region.base + (at - region.offset), bytes)?;
                for (start, length) in used_stretches(&slice, &mut block)? {
                    let part = slice.subslice(start, length).map_err(io::Error::other)?;
                    let done = guest_io::write_at(file, &[part], offset + at + start as u64)?;
                    complete(done, length)?;
                }
            }
        }
    }
    Ok(())
}

/// Fills RAM, which is all zero, with what [`save_ram`] wrote.
///
/// # Errors
/// Those of the file, and `UnexpectedEof` when it is too short.
pub fn load_ram(ram: &GuestRam, file: &File, offset: u64) -> io::Result<()> {
    if file.metadata()?.len() < offset.saturating_add(ram_bytes(ram)) {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    for region in regions(ram)? {
        let start = offset + region.offset;
        for extent in data_extents(file, start, region.bytes)? {
            for (at, bytes) in steps(extent) {
                let slice = slice(ram, region.base + (at - start), bytes)?;
                let length = slice.len();
                let done = guest_io::read_at(file, &[slice], at)?;
                complete(done, length)?;
            }
        }
    }
    Ok(())
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

/// Where `slice` is not zero: offsets and lengths, in whole blocks but for the end.
fn used_stretches(
    slice: &VolatileSlice<'_, impl BitmapSlice>,
    block: &mut [u8],
) -> io::Result<Vec<(usize, usize)>> {
    let mut stretches: Vec<(usize, usize)> = Vec::new();
    for start in (0..slice.len()).step_by(BLOCK_BYTES) {
        let length = BLOCK_BYTES.min(slice.len() - start);
        let part = slice.subslice(start, length).map_err(io::Error::other)?;
        part.copy_to(block);
        if block.get(..length) == ZERO.get(..length) {
            continue;
        }
        match stretches.last_mut() {
            Some((first, bytes)) if *first + *bytes == start => *bytes += length,
            _ => stretches.push((start, length)),
        }
    }
    Ok(stretches)
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
    use std::os::unix::fs::MetadataExt;

    use vm_memory::Bytes;
    use vmm_memory::{Layout, create_ram};

    use super::*;

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
        save_ram(&before, &file, 8192).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 < 64 << 20);
        let after = ram(3 << 30);
        load_ram(&after, &file, 8192).unwrap();
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
        let effort = vmm_memory::Effort { threads, cancelled };
        vmm_memory::populate(&before, vmm_memory::Pages::Ordinary, effort).unwrap();
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
        save_ram(&before, &file, 4096).unwrap();
        assert!(file.metadata().unwrap().blocks() * 512 <= 8 * BLOCK_BYTES as u64);
        let after = ram(64 << 20);
        load_ram(&after, &file, 4096).unwrap();
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
        let error = load_ram(&ram(64 << 20), &file, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

//! RAM to a file and back, holes as holes.

use std::fs::File;
use std::io;

use nix::errno::Errno;
use nix::unistd::{Whence, lseek};
use vm_memory::{GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryRegion, Permissions};
use vmm_memory::GuestRam;
use vmm_sys::guest_io;

/// Bytes of one transfer.
const STEP_BYTES: u64 = 8 << 20;

/// Writes all RAM to `file` from `offset` on: a byte of RAM lies where it lies in the memfd. What was
/// never touched stays a hole.
///
/// # Errors
/// Those of either file.
pub fn save_ram(ram: &GuestRam, file: &File, offset: u64) -> io::Result<()> {
    let end = ram_bytes(ram);
    file.set_len(offset + end)?;
    for region in regions(ram)? {
        for extent in data_extents(region.memfd, region.offset, region.bytes)? {
            for (at, bytes) in steps(extent) {
                let address = region.base + (at - region.offset);
                let slices = slices(ram, address, bytes)?;
                let done = guest_io::write_at(file, &slices, offset + at)?;
                complete(done, bytes)?;
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
                let address = region.base + (at - start);
                let slices = slices(ram, address, bytes)?;
                let done = guest_io::read_at(file, &slices, at)?;
                complete(done, bytes)?;
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

fn slices(
    ram: &GuestRam,
    address: u64,
    bytes: u64,
) -> io::Result<Vec<vm_memory::VolatileSlice<'_, impl vm_memory::bitmap::BitmapSlice>>> {
    let length = usize::try_from(bytes).map_err(io::Error::other)?;
    let range = GuestAddress(address);
    GuestMemory::get_slices(ram, range, length, Permissions::ReadWrite)
        .map_err(io::Error::other)?
        .map(|slice| slice.map_err(io::Error::other))
        .collect()
}

fn complete(done: usize, bytes: u64) -> io::Result<()> {
    if done as u64 == bytes {
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
    fn a_file_that_is_too_short_is_refused() {
        let file = tempfile::tempfile().unwrap();
        save_ram(&ram(64 << 20), &file, 4096).unwrap();
        file.set_len(4096 + (64 << 20) - 1).unwrap();
        let error = load_ram(&ram(64 << 20), &file, 4096).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }
}

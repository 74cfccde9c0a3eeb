//! Files into guest memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use vm_memory::bitmap::BitmapSlice;
use vm_memory::{GuestAddress, GuestMemoryBackend, GuestMemoryRegion, VolatileSlice};

use crate::guest_ram::GuestRam;
use crate::huge::prefer_huge;
use crate::layout::Window;

/// A part of a file could not be read into guest memory.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// The destination is not RAM.
    #[error("{bytes} bytes at {address:#x} are not within guest memory")]
    NotRam {
        /// Guest-physical address.
        address: u64,
        /// Length.
        bytes: usize,
    },
    /// The file is shorter than its headers say.
    #[error("the file ends {missing} bytes early")]
    Truncated {
        /// Bytes that are not there.
        missing: usize,
    },
    /// The file cannot be read at that offset.
    #[error("reading the file at offset {offset} failed")]
    Read {
        /// Offset within the file.
        offset: u64,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
}

/// Reads `bytes` bytes at `offset` of `file` to guest-physical `address`, straight from the page
/// cache. The file's own position, which other processes may share, is neither used nor moved.
///
/// # Errors
/// When the destination is not one stretch of RAM or the file does not have the bytes.
pub fn load_file(
    ram: &GuestRam,
    address: u64,
    file: &File,
    offset: u64,
    bytes: usize,
) -> Result<(), LoadError> {
    let slice = ram
        .get_slice(GuestAddress(address), bytes)
        .map_err(|_| LoadError::NotRam { address, bytes })?;
    let mut done = 0;
    while done < bytes {
        let position = offset.saturating_add(done as u64);
        let rest = slice
            .offset(done)
            .map_err(|_| LoadError::NotRam { address, bytes })?;
        match load_part(ram, &rest, file, position) {
            Ok(0) => {
                return Err(LoadError::Truncated {
                    missing: bytes - done,
                });
            }
            Ok(count) => done += count,
            Err(source) => {
                return Err(LoadError::Read {
                    offset: position,
                    source,
                });
            }
        }
    }
    Ok(())
}

/// Reads what `file` has at `offset` to `slice`, which is a part of `ram`, and returns how many bytes
/// that were: fewer than the slice has where the file ends.
///
/// # Errors
/// The file's.
pub fn load_part<B: BitmapSlice>(
    ram: &GuestRam,
    slice: &VolatileSlice<'_, B>,
    file: &File,
    offset: u64,
) -> io::Result<usize> {
    if slice.len() >= MIN_HUGE
        && let Some(range) = range_of(ram, slice)
    {
        prefer_huge(ram, range);
    }
    read(slice, file, offset)
}

/// From this size on huge pages are made for what is loaded.
const MIN_HUGE: usize = 512 << 10;

/// Where `slice` lies.
fn range_of<B: BitmapSlice>(ram: &GuestRam, slice: &VolatileSlice<'_, B>) -> Option<Window> {
    let address = slice.ptr_guard().as_ptr().addr();
    ram.iter().find_map(|region| {
        let within = address.checked_sub(region.get_mmap().as_ptr().addr())?;
        let within = u64::try_from(within).ok().filter(|at| *at < region.len())?;
        Some(Window {
            base: region.start_addr().0 + within,
            bytes: u64::try_from(slice.len()).ok()?,
        })
    })
}

/// Reads into mapped memory.
fn read<B: BitmapSlice>(
    slice: &VolatileSlice<'_, B>,
    file: &File,
    offset: u64,
) -> io::Result<usize> {
    let seek = i64::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let guard = slice.ptr_guard_mut();
    loop {
        // SAFETY: the guard is valid for writes of `slice.len()` bytes; the guest does not run yet
        // or sees, as with any DMA, bytes change under it. Nothing in this process refers to them.
        let count =
            unsafe { libc::pread(file.as_raw_fd(), guard.as_ptr().cast(), slice.len(), seek) };
        if let Ok(count) = usize::try_from(count) {
            return Ok(count);
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use vm_memory::Bytes;

    use super::*;
    use crate::{Layout, create_ram};

    fn file_with(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    #[test]
    fn a_part_of_a_file_lands_where_it_was_asked_for() {
        let ram = create_ram(&Layout::new(1 << 20, 40).unwrap()).unwrap();
        load_file(&ram, 0x1000, &file_with(b"kernel image"), 7, 5).unwrap();
        assert_eq!(
            ram.read_obj::<[u8; 5]>(GuestAddress(0x1000)).unwrap(),
            *b"image"
        );
    }

    #[test]
    fn a_large_part_at_an_odd_offset_lands_whole() {
        let ram = create_ram(&Layout::new(4 << 20, 40).unwrap()).unwrap();
        let content: Vec<u8> = (0..=250).cycle().take(3 * MIN_HUGE).collect();
        let file = file_with(&content);
        load_file(&ram, 0x1234, &file, 4099, 2 * MIN_HUGE).unwrap();
        let mut loaded = vec![0; 2 * MIN_HUGE];
        ram.read_slice(&mut loaded, GuestAddress(0x1234)).unwrap();
        assert_eq!(loaded, content[4099..4099 + 2 * MIN_HUGE]);
        // What is beyond the file's end is not there, however large the part is.
        let end = content.len() as u64;
        let missing = MIN_HUGE + 5;
        assert!(matches!(
            load_file(&ram, 0, &file, end - 7, MIN_HUGE + 12),
            Err(LoadError::Truncated { missing: seen }) if seen == missing
        ));
    }

    #[test]
    fn a_short_file_or_a_wild_address_is_an_error() {
        let ram = create_ram(&Layout::new(1 << 20, 40).unwrap()).unwrap();
        let file = file_with(b"abc");
        assert!(matches!(
            load_file(&ram, 0, &file, 1, 5),
            Err(LoadError::Truncated { missing: 3 })
        ));
        assert!(matches!(
            load_file(&ram, (1 << 20) - 1, &file, 0, 2),
            Err(LoadError::NotRam { .. })
        ));
        assert!(matches!(
            load_file(&ram, u64::MAX, &file, 0, 2),
            Err(LoadError::NotRam { .. })
        ));
    }
}

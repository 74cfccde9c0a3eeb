//! Files into guest memory.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

use vm_memory::{GuestAddress, GuestMemoryBackend};

use crate::ram::GuestRam;

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
    /// The file can not be read at that offset.
    #[error("reading the file at offset {offset} failed")]
    Read {
        /// Offset within the file.
        offset: u64,
        /// Why.
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
        let failed = |source| LoadError::Read {
            offset: position,
            source,
        };
        let seek = i64::try_from(position)
            .map_err(|_| failed(io::Error::from(io::ErrorKind::InvalidInput)))?;
        let rest = slice
            .offset(done)
            .map_err(|_| LoadError::NotRam { address, bytes })?;
        let guard = rest.ptr_guard_mut();
        // SAFETY: the guard is valid for writes of `rest.len()` bytes; the guest does not run yet
        // or sees, as with any DMA, bytes change under it. Nothing in this process refers to them.
        let read =
            unsafe { libc::pread(file.as_raw_fd(), guard.as_ptr().cast(), rest.len(), seek) };
        match usize::try_from(read) {
            Ok(0) => {
                return Err(LoadError::Truncated {
                    missing: bytes - done,
                });
            }
            Ok(read) => done += read,
            Err(_) => {
                let source = io::Error::last_os_error();
                if source.kind() != io::ErrorKind::Interrupted {
                    return Err(failed(source));
                }
            }
        }
    }
    Ok(())
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

//! What the DHCP server dropped of each guest: numbers in a file that has no name, which the server writes and the agent reads.
//!
//! The server may have been taken over by a guest, so the agent waits for nothing: the size of the file is sealed, and whatever is in it
//! is a number.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{pread, pwrite};

/// Guests that have a place in the file. There is memory for those that dropped something.
pub const PLACES: u32 = 1 << 16;

/// Two numbers.
const PLACE_BYTES: u64 = 16;

/// Messages of a guest that came to nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// They made no sense.
    pub malformed: u64,
    /// They came too often.
    pub excess: u64,
}

/// A new file, in which nothing was dropped.
///
/// # Errors
/// When the kernel has no memory for it.
pub fn create() -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("dhcp-counts", flags)?;
    ftruncate(&file, u64::from(PLACES) * PLACE_BYTES)?;
    fcntl_add_seals(&file, SealFlags::GROW | SealFlags::SHRINK | SealFlags::SEAL)?;
    Ok(file)
}

/// Numbers of the guest at a place.
///
/// # Errors
/// When there is no such place.
pub fn read(file: &impl AsFd, place: u32) -> io::Result<Dropped> {
    let mut bytes = [0; 16];
    let read = pread(file, &mut bytes, u64::from(place) * PLACE_BYTES)?;
    if read != bytes.len() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let (numbers, _) = bytes.as_chunks::<8>();
    let [malformed, excess] =
        [0, 1].map(|index| numbers.get(index).copied().map(u64::from_ne_bytes));
    Ok(Dropped {
        malformed: malformed.unwrap_or(0),
        excess: excess.unwrap_or(0),
    })
}

/// Writes them.
///
/// # Errors
/// When there is no such place.
pub fn write(file: &impl AsFd, place: u32, dropped: Dropped) -> io::Result<()> {
    let mut bytes = [0; 16];
    let (malformed, excess) = bytes.split_at_mut(8);
    malformed.copy_from_slice(&dropped.malformed.to_ne_bytes());
    excess.copy_from_slice(&dropped.excess.to_ne_bytes());
    let written = pwrite(file, &bytes, u64::from(place) * PLACE_BYTES)?;
    if written != bytes.len() {
        return Err(io::ErrorKind::WriteZero.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_written_and_there_are_no_more_places_than_that() {
        let file = create().unwrap();
        let dropped = Dropped {
            malformed: 3,
            excess: u64::MAX,
        };
        write(&file, PLACES - 1, dropped).unwrap();
        assert_eq!(read(&file, PLACES - 1).unwrap(), dropped);
        assert_eq!(read(&file, 0).unwrap(), Dropped::default());
        assert!(write(&file, PLACES, dropped).is_err());
        assert!(read(&file, PLACES).is_err());
        assert!(ftruncate(&file, 0).is_err());
    }
}

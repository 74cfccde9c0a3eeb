//! Transfers between a descriptor and guest memory, without a copy in between.
//!
//! Guest memory is shared with running vCPUs: its bytes may change at any moment, so no Rust
//! reference to them is ever made. The kernel copies, and copies once.

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd};

use vm_memory::VolatileSlice;
use vm_memory::bitmap::BitmapSlice;

/// The kernel's `UIO_MAXIOV`: most parts of one transfer.
const MAX_PARTS: usize = 1024;

/// Reads from `file` at `offset` until `parts` are full or the file ends; returns the bytes read.
/// Memory written is marked dirty.
///
/// # Errors
/// The file's. Part of the memory may have been written.
pub fn read_at<B: BitmapSlice>(
    file: &impl AsFd,
    parts: &[VolatileSlice<'_, B>],
    offset: u64,
) -> io::Result<usize> {
    let fd = file.as_fd().as_raw_fd();
    let mut vector = IoVector::new(parts);
    let result = vector.transfer_all(offset, |part, count, at| {
        // SAFETY: the vector holds ranges of guest memory that stay mapped and writable while
        // `parts` is borrowed.
        unsafe { libc::preadv(fd, part, count, at) }
    });
    mark_dirty(parts, vector.done);
    result
}

/// Writes all of `parts` to `file` at `offset`; returns the bytes written, which are fewer than
/// offered only when the file takes no more.
///
/// # Errors
/// The file's. Part of the data may have been written.
pub fn write_at<B: BitmapSlice>(
    file: &impl AsFd,
    parts: &[VolatileSlice<'_, B>],
    offset: u64,
) -> io::Result<usize> {
    let fd = file.as_fd().as_raw_fd();
    IoVector::new(parts).transfer_all(offset, |part, count, at| {
        // SAFETY: the vector holds ranges of guest memory that stay mapped and readable while
        // `parts` is borrowed.
        unsafe { libc::pwritev(fd, part, count, at) }
    })
}

/// Sends all of `parts` as one packet by one `writev(2)`, as a tap wants it.
///
/// # Errors
/// The descriptor's, such as `WouldBlock`; more than 1024 parts are `InvalidInput`.
pub fn write_packet<B: BitmapSlice>(
    packet_fd: &impl AsFd,
    parts: &[VolatileSlice<'_, B>],
) -> io::Result<usize> {
    let vector = IoVector::new(parts);
    if vector.parts.len() > MAX_PARTS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    loop {
        // SAFETY: the vector holds ranges of guest memory that stay mapped and readable while
        // `parts` is borrowed; its length is at most 1024.
        let sent = unsafe {
            libc::writev(
                packet_fd.as_fd().as_raw_fd(),
                vector.parts.as_ptr(),
                count_of(vector.parts.len()),
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => return Ok(sent),
            Err(_) => interrupted_or_error()?,
        }
    }
}

/// Receives one packet by one `readv(2)`, as a tap wants it: into `parts`, and what does not fit there
/// into `rest`. Returns the packet's length as far as there was room. Memory written is marked dirty.
///
/// # Errors
/// The descriptor's, such as `WouldBlock`; more than 1023 parts are `InvalidInput`.
pub fn read_packet<B: BitmapSlice>(
    packet_fd: &impl AsFd,
    parts: &[VolatileSlice<'_, B>],
    rest: &mut [u8],
) -> io::Result<usize> {
    let mut vector = IoVector::new(parts);
    if vector.parts.len() >= MAX_PARTS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    vector.parts.push(libc::iovec {
        iov_base: rest.as_mut_ptr().cast(),
        iov_len: rest.len(),
    });
    loop {
        // SAFETY: the vector holds ranges of guest memory that stay mapped and writable while
        // `parts` is borrowed, and `rest`, which is borrowed for writing; its length is at most 1024.
        let received = unsafe {
            libc::readv(
                packet_fd.as_fd().as_raw_fd(),
                vector.parts.as_ptr(),
                count_of(vector.parts.len()),
            )
        };
        match usize::try_from(received) {
            Ok(received) => {
                mark_dirty(parts, received);
                return Ok(received);
            }
            Err(_) => interrupted_or_error()?,
        }
    }
}

/// Guest memory as the kernel wants it, less what is already done.
struct IoVector<'a> {
    parts: Vec<libc::iovec>,
    /// Index of the first part that is not done.
    first: usize,
    /// Bytes done.
    done: usize,
    memory: PhantomData<&'a ()>,
}

impl<'a> IoVector<'a> {
    fn new<B: BitmapSlice>(slices: &'a [VolatileSlice<'_, B>]) -> Self {
        let parts = slices
            .iter()
            .filter(|slice| !slice.is_empty())
            .map(|slice| libc::iovec {
                iov_base: slice.ptr_guard_mut().as_ptr().cast(),
                iov_len: slice.len(),
            })
            .collect();
        Self {
            parts,
            first: 0,
            done: 0,
            memory: PhantomData,
        }
    }

    /// Repeats `call` until everything is transferred or it transfers nothing.
    fn transfer_all(
        &mut self,
        offset: u64,
        call: impl Fn(*const libc::iovec, libc::c_int, libc::off_t) -> libc::ssize_t,
    ) -> io::Result<usize> {
        while let Some(rest) = self.parts.get(self.first..).filter(|rest| !rest.is_empty()) {
            let at = u64::try_from(self.done)
                .ok()
                .and_then(|done| offset.checked_add(done))
                .and_then(|at| libc::off_t::try_from(at).ok())
                .ok_or(io::ErrorKind::InvalidInput)?;
            match usize::try_from(call(rest.as_ptr(), count_of(rest.len()), at)) {
                Ok(0) => break,
                Ok(count) => self.advance(count),
                Err(_) => interrupted_or_error()?,
            }
        }
        Ok(self.done)
    }

    fn advance(&mut self, mut count: usize) {
        self.done += count;
        while let Some(part) = self.parts.get_mut(self.first) {
            if count < part.iov_len {
                // The part's start moves within the part.
                part.iov_base = part.iov_base.cast::<u8>().wrapping_add(count).cast();
                part.iov_len -= count;
                return;
            }
            count -= part.iov_len;
            self.first += 1;
        }
    }
}

/// The number of parts for one call; the rest is for the next.
fn count_of(parts: usize) -> libc::c_int {
    libc::c_int::try_from(parts.min(MAX_PARTS)).unwrap_or(0)
}

fn mark_dirty<B: BitmapSlice>(parts: &[VolatileSlice<'_, B>], mut count: usize) {
    for part in parts {
        let here = count.min(part.len());
        if here == 0 {
            return;
        }
        part.bitmap().mark_dirty(0, here);
        count -= here;
    }
}

fn interrupted_or_error() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        Ok(())
    } else {
        Err(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::io::{Read, Seek, SeekFrom, Write};
    use std::os::fd::FromRawFd;
    use vm_memory::{Bytes, GuestAddress, GuestMemory, GuestMemoryMmap, Permissions};

    fn temporary_file(content: &[u8]) -> File {
        // SAFETY: memfd_create gives a new descriptor, owned by the file made of it.
        let mut file = unsafe {
            let fd = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC);
            assert!(fd >= 0);
            File::from_raw_fd(fd)
        };
        file.write_all(content).unwrap();
        file
    }

    fn slices<'a>(
        memory: &'a GuestMemoryMmap,
        ranges: &[(u64, usize)],
    ) -> Vec<VolatileSlice<'a, ()>> {
        ranges
            .iter()
            .flat_map(|(address, len)| {
                let address = GuestAddress(*address);
                memory
                    .get_slices(address, *len, Permissions::ReadWrite)
                    .unwrap()
            })
            .map(|slice| slice.unwrap())
            .collect()
    }

    fn memory() -> GuestMemoryMmap {
        GuestMemoryMmap::from_ranges(&[(GuestAddress(0), 0x10000)]).unwrap()
    }

    #[test]
    fn a_scattered_read_stops_at_the_end_of_the_file() {
        let file = temporary_file(b"0123456789");
        let memory = memory();
        let parts = slices(&memory, &[(0x100, 3), (0x200, 0), (0x300, 100)]);
        assert_eq!(read_at(&file, &parts, 2).unwrap(), 8);
        let mut head = [0u8; 3];
        memory.read_slice(&mut head, GuestAddress(0x100)).unwrap();
        let mut tail = [0u8; 6];
        memory.read_slice(&mut tail, GuestAddress(0x300)).unwrap();
        assert_eq!((&head, &tail), (b"234", b"56789\0"));
    }

    #[test]
    fn more_parts_than_one_call_takes_are_transferred() {
        let content: Vec<u8> = (0..3000u32).map(|i| i.to_le_bytes()[0]).collect();
        let source = temporary_file(&content);
        let mut target = temporary_file(b"");
        let memory = memory();
        let ranges: Vec<(u64, usize)> = (0..3000).map(|i| (i * 2, 1)).collect();
        let parts = slices(&memory, &ranges);
        assert_eq!(read_at(&source, &parts, 0).unwrap(), 3000);
        assert_eq!(write_at(&target, &parts, 0).unwrap(), 3000);
        let mut copy = Vec::new();
        target.seek(SeekFrom::Start(0)).unwrap();
        target.read_to_end(&mut copy).unwrap();
        assert_eq!(copy, content);
        assert!(write_packet(&target, &parts).is_err());
    }

    #[test]
    fn a_packet_that_does_not_fit_goes_on_in_the_buffer() {
        let memory = memory();
        for (ranges, in_memory) in [
            (vec![(0x100, 3), (0x200, 0), (0x300, 4)], 7),
            (vec![(0x100, 10)], 10),
            (vec![], 0),
        ] {
            let file = temporary_file(b"0123456789");
            (&file).seek(SeekFrom::Start(0)).unwrap();
            let parts = slices(&memory, &ranges);
            let mut rest = [0; 16];
            assert_eq!(read_packet(&file, &parts, &mut rest).unwrap(), 10);
            let mut packet = Vec::new();
            for (address, bytes) in ranges {
                let mut part = vec![0; bytes];
                memory.read_slice(&mut part, GuestAddress(address)).unwrap();
                packet.extend(part);
            }
            packet.extend(&rest[..10 - in_memory]);
            assert_eq!(packet, b"0123456789");
        }
        let file = temporary_file(b"");
        let ranges: Vec<(u64, usize)> = (0..1024).map(|i| (i * 2, 1)).collect();
        let parts = slices(&memory, &ranges);
        assert!(read_packet(&file, &parts, &mut [0; 4]).is_err());
    }

    #[test]
    fn an_offset_beyond_what_files_have_is_an_error() {
        let file = temporary_file(b"x");
        let memory = memory();
        let parts = slices(&memory, &[(0, 4)]);
        assert!(read_at(&file, &parts, u64::MAX).is_err());
        assert!(write_at(&file, &parts, i64::MAX as u64).is_err());
    }
}

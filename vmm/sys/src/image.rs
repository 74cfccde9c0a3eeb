//! What can be asked of a disk image besides reading and writing: how it was opened, what alignment
//! it wants, giving space back.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::fcntl::{FallocateFlags, FcntlArg, OFlag, fallocate, fcntl};
use nix::sys::statfs::{FsType, HUGETLBFS_MAGIC, TMPFS_MAGIC, fstatfs};

/// `RAMFS_MAGIC` of `linux/magic.h`.
const RAMFS_MAGIC: FsType = FsType(0x8584_58f6);

/// `fallocate(2)` mode that frees a range, which reads as zeros afterwards.
pub const PUNCH_HOLE: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
/// `fallocate(2)` mode that makes a range read as zeros and keeps its space.
pub const ZERO_RANGE: i32 = libc::FALLOC_FL_ZERO_RANGE | libc::FALLOC_FL_KEEP_SIZE;

mod ioctl {
    // <linux/fs.h>, type 0x12: BLKSSZGET 104, BLKDISCARD 119, BLKPBSZGET 123, BLKZEROOUT 127.
    nix::ioctl_read_bad!(blksszget, nix::request_code_none!(0x12, 104), libc::c_int);
    nix::ioctl_read_bad!(blkpbszget, nix::request_code_none!(0x12, 123), libc::c_uint);
    nix::ioctl_write_ptr_bad!(blkdiscard, nix::request_code_none!(0x12, 119), [u64; 2]);
    nix::ioctl_write_ptr_bad!(blkzeroout, nix::request_code_none!(0x12, 127), [u64; 2]);
}

/// How an image was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// `O_DIRECT`: past the host's page cache.
    pub direct: bool,
    /// `O_DSYNC` (which `O_SYNC` contains): a write is durable when it returns.
    pub durable: bool,
}

/// Reads how `image` was opened.
///
/// # Errors
/// The descriptor's.
pub fn open_mode(image: &impl AsFd) -> io::Result<OpenMode> {
    let flags = OFlag::from_bits_retain(fcntl(image, FcntlArg::F_GETFL)?);
    Ok(OpenMode {
        direct: flags.contains(OFlag::O_DIRECT),
        durable: flags.contains(OFlag::O_DSYNC),
    })
}

/// Whether `image` is a file of a file system that keeps its files in memory (tmpfs, hugetlbfs, ramfs):
/// nothing waits for a disk there, but for what was swapped out.
///
/// # Errors
/// The descriptor's.
pub fn is_in_memory(image: &impl AsFd) -> io::Result<bool> {
    let kind = fstatfs(image)?.filesystem_type();
    Ok([TMPFS_MAGIC, HUGETLBFS_MAGIC, RAMFS_MAGIC].contains(&kind))
}

/// What transfers with `O_DIRECT` have to be aligned to, in bytes; powers of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Addresses in memory.
    pub memory: u32,
    /// Offsets and lengths.
    pub offset: u32,
}

/// Alignment of `image`, which is opened with `O_DIRECT`. Where the kernel (before 6.1) or the file
/// system does not tell: pages in memory, and sectors of 512 bytes in the image.
///
/// # Errors
/// The descriptor's.
pub fn direct_alignment(image: &impl AsFd) -> io::Result<Alignment> {
    // SAFETY: all zeros is a value of this structure of integers.
    let mut facts: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: the path is an empty string that ends with NUL, and the kernel writes one `statx`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_statx,
            image.as_fd().as_raw_fd(),
            c"".as_ptr(),
            libc::AT_EMPTY_PATH,
            libc::STATX_DIOALIGN,
            &raw mut facts,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    let or = |it: u32, usual| if it.is_power_of_two() { it } else { usual };
    Ok(Alignment {
        memory: or(facts.stx_dio_mem_align, 4096),
        offset: or(facts.stx_dio_offset_align, 512),
    })
}

/// Logical and physical block size of a block device in bytes.
///
/// # Errors
/// `image` is no block device.
pub fn block_sizes(image: &impl AsFd) -> io::Result<(u32, u32)> {
    let fd = image.as_fd().as_raw_fd();
    let (mut logical, mut physical) = (0, 0);
    // SAFETY: the kernel writes one int.
    unsafe { ioctl::blksszget(fd, &raw mut logical) }?;
    // SAFETY: the kernel writes one unsigned int.
    unsafe { ioctl::blkpbszget(fd, &raw mut physical) }?;
    let logical = u32::try_from(logical).map_err(|_| io::ErrorKind::InvalidData)?;
    Ok((logical, physical))
}

/// `fallocate(2)` with [`PUNCH_HOLE`] or [`ZERO_RANGE`].
///
/// # Errors
/// `EOPNOTSUPP`: the file system or device has no such thing; or the host's failure.
pub fn allocate(image: &impl AsFd, mode: i32, offset: u64, bytes: u64) -> io::Result<()> {
    let out_of_range = |_| io::Error::from(io::ErrorKind::InvalidInput);
    let offset = i64::try_from(offset).map_err(out_of_range)?;
    let bytes = i64::try_from(bytes).map_err(out_of_range)?;
    loop {
        match fallocate(image, FallocateFlags::from_bits_retain(mode), offset, bytes) {
            Err(nix::errno::Errno::EINTR) => {}
            other => return other.map_err(io::Error::from),
        }
    }
}

/// Tells a block device that a range is not needed any more (`BLKDISCARD`).
///
/// # Errors
/// `EOPNOTSUPP`: the device has no such thing; or the host's failure.
pub fn discard_blocks(device: &impl AsFd, offset: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: the kernel reads two u64.
    unsafe { ioctl::blkdiscard(device.as_fd().as_raw_fd(), &[offset, bytes]) }?;
    Ok(())
}

/// Makes a range of a block device read as zeros (`BLKZEROOUT`), by writing them if need be.
///
/// # Errors
/// The host's failure.
pub fn zero_blocks(device: &impl AsFd, offset: u64, bytes: u64) -> io::Result<()> {
    // SAFETY: the kernel reads two u64.
    unsafe { ioctl::blkzeroout(device.as_fd().as_raw_fd(), &[offset, bytes]) }?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};

    use super::*;

    #[test]
    fn open_modes_are_read_back() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image");
        let open = |flags| {
            let mut options = File::options();
            options.read(true).write(true).create(true);
            options.custom_flags(flags).open(&path).unwrap()
        };
        let mode = |direct, durable| OpenMode { direct, durable };
        assert_eq!(open_mode(&open(0)).unwrap(), mode(false, false));
        assert_eq!(open_mode(&open(libc::O_DSYNC)).unwrap(), mode(false, true));
        assert_eq!(open_mode(&open(libc::O_SYNC)).unwrap(), mode(false, true));
    }

    #[test]
    fn a_hole_reads_as_zeros_and_costs_nothing() {
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[1; 1 << 20], 0).unwrap();
        file.sync_all().unwrap();
        let before = file.metadata().unwrap().blocks();
        allocate(&file, PUNCH_HOLE, 1 << 16, 1 << 19).unwrap();
        assert!(file.metadata().unwrap().blocks() < before);
        assert_eq!(file.metadata().unwrap().len(), 1 << 20);
        let mut byte = [9];
        file.read_exact_at(&mut byte, 1 << 18).unwrap();
        assert_eq!(byte, [0]);
    }

    #[test]
    fn a_memfd_is_in_memory_and_what_the_kernel_makes_up_is_not() {
        let name = c"in-memory";
        let flags = nix::sys::memfd::MFdFlags::MFD_CLOEXEC;
        let memfd = nix::sys::memfd::memfd_create(name, flags).unwrap();
        assert!(is_in_memory(&memfd).unwrap());
        assert!(!is_in_memory(&File::open("/proc/self/status").unwrap()).unwrap());
    }

    #[test]
    fn files_are_no_block_devices() {
        let file = tempfile::tempfile().unwrap();
        assert!(block_sizes(&file).is_err());
        assert!(discard_blocks(&file, 0, 512).is_err());
        assert!(zero_blocks(&file, 0, 512).is_err());
        assert!(allocate(&file, PUNCH_HOLE, u64::MAX, 1).is_err());
    }
}

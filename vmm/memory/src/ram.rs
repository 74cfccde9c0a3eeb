//! RAM of a guest: one sealed-size memfd, mapped shared.

use std::fs::File;
use std::io;
use std::sync::Arc;

use nix::fcntl::{FallocateFlags, FcntlArg, SealFlag, fallocate, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion};

use crate::dirty::DirtyLog;
use crate::layout::{Layout, Window};

/// Guest memory as everybody sees it.
pub type GuestRam = GuestMemoryMmap<DirtyLog>;

/// RAM could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RamError {
    /// A system call failed.
    #[error("{call} failed for {bytes} bytes of guest memory")]
    System {
        /// Which one.
        call: &'static str,
        /// How much it was asked for.
        bytes: u64,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The memfd could not be mapped.
    #[error("guest memory could not be mapped")]
    Map(#[source] vm_memory::mmap::FromRangesError),
    /// The host's address space is too small.
    #[error("guest memory of {0} bytes does not fit into the address space of this process")]
    AddressSpace(u64),
}

/// Makes the RAM of `layout`: a memfd with its pages not yet allocated, mapped shared, left out of
/// core dumps.
///
/// # Errors
/// When the host refuses the memfd or its mapping.
pub fn create_ram(layout: &Layout) -> Result<GuestRam, RamError> {
    let total: u64 = layout.ram().map(|window| window.bytes).sum();
    let file = Arc::new(create_memfd(total)?);
    let mut offset = 0;
    let mut ranges = Vec::new();
    for Window { base, bytes } in layout.ram() {
        let length = usize::try_from(bytes).map_err(|_| RamError::AddressSpace(bytes))?;
        let backing = FileOffset::from_arc(Arc::clone(&file), offset);
        ranges.push((GuestAddress(base), length, Some(backing)));
        offset += bytes;
    }
    let ram = GuestRam::from_ranges_with_files(&ranges).map_err(RamError::Map)?;
    for region in ram.iter() {
        exclude_from_dumps(region)?;
    }
    Ok(ram)
}

/// Makes all RAM zero again, as at power-on, and gives its pages back to the host.
///
/// # Errors
/// When the host refuses.
pub fn clear_ram(ram: &GuestRam) -> Result<(), RamError> {
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    for region in ram.iter() {
        let bytes = region.len();
        let Some(backing) = region.file_offset() else {
            continue;
        };
        let offset = i64::try_from(backing.start()).map_err(|_| RamError::AddressSpace(bytes))?;
        let length = i64::try_from(bytes).map_err(|_| RamError::AddressSpace(bytes))?;
        fallocate(backing.file(), flags, offset, length).map_err(|errno| RamError::System {
            call: "fallocate",
            bytes,
            source: errno.into(),
        })?;
    }
    Ok(())
}

fn create_memfd(bytes: u64) -> Result<File, RamError> {
    let failed = |call| {
        move |source: io::Error| RamError::System {
            call,
            bytes,
            source,
        }
    };
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING;
    let file = memfd_create(c"kvmlet-guest-ram", flags)
        .map(File::from)
        .map_err(|errno| failed("memfd_create")(errno.into()))?;
    file.set_len(bytes).map_err(failed("ftruncate"))?;
    // Whoever is handed the memfd later must not be able to make our accesses fault.
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))
        .map_err(|errno| failed("fcntl(F_ADD_SEALS)")(errno.into()))?;
    Ok(file)
}

fn exclude_from_dumps(region: &vm_memory::GuestRegionMmap<DirtyLog>) -> Result<(), RamError> {
    let mapping = region.get_mmap();
    // SAFETY: address and length are those of a live mapping; MADV_DONTDUMP changes no content.
    let result =
        unsafe { libc::madvise(mapping.as_ptr().cast(), mapping.size(), libc::MADV_DONTDUMP) };
    if result == 0 {
        return Ok(());
    }
    Err(RamError::System {
        call: "madvise",
        bytes: region.len(),
        source: io::Error::last_os_error(),
    })
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    #[test]
    fn ram_on_both_sides_of_the_hole_is_one_memfd() {
        let layout = Layout::new(3 << 30, 40).unwrap();
        let ram = create_ram(&layout).unwrap();
        ram.write_obj(0x1122_3344u32, GuestAddress((4 << 30) + 16))
            .unwrap();
        assert_eq!(ram.num_regions(), 2);
        assert!(ram.read_obj::<u32>(GuestAddress(2 << 30)).is_err());
        let mut word = [0; 4];
        let region = ram.find_region(GuestAddress(4 << 30)).unwrap();
        let backing = region.file_offset().unwrap();
        std::os::unix::fs::FileExt::read_exact_at(backing.file(), &mut word, backing.start() + 16)
            .unwrap();
        assert_eq!(u32::from_le_bytes(word), 0x1122_3344);
    }

    #[test]
    fn cleared_ram_is_zero_and_costs_nothing() {
        use std::os::unix::fs::MetadataExt;

        let ram = create_ram(&Layout::new(64 << 20, 40).unwrap()).unwrap();
        ram.write_slice(&vec![0xff; 16 << 20], GuestAddress(1 << 20))
            .unwrap();
        clear_ram(&ram).unwrap();
        assert_eq!(ram.read_obj::<u64>(GuestAddress(4 << 20)).unwrap(), 0);
        let region = ram.find_region(GuestAddress(0)).unwrap();
        let memfd = region.file_offset().unwrap().file();
        // One page was read since.
        assert!(memfd.metadata().unwrap().blocks() * 512 <= 2 << 20);
    }
}

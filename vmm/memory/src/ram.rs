//! RAM of a guest: one sealed-size memfd, mapped shared.

use std::fs::File;
use std::io;
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, SealFlag, fcntl};
use nix::sys::memfd::{MFdFlags, memfd_create};
use vm_memory::bitmap::NewBitmap;
use vm_memory::mmap::{MmapRegionBuilder, MmapRegionError};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryRegion};

use crate::dirty::log::DirtyLog;
use crate::guest_ram::{GuestRam, RamError, Region};
use crate::huge;
use crate::layout::{Layout, Window};
use crate::pages::Pages;
use crate::release::punch;

/// Makes the RAM of `layout` of ordinary pages, see [`create_ram_of`].
///
/// # Errors
/// When the host refuses the memfd or its mapping.
pub fn create_ram(layout: &Layout) -> Result<GuestRam, RamError> {
    create_ram_of(layout, Pages::Ordinary)
}

/// Makes the RAM of `layout` of such pages: a memfd with its pages reserved where there is a pool but
/// not yet allocated, mapped shared, left out of core dumps.
///
/// # Errors
/// When the host refuses the memfd or its mapping, or has too few huge pages.
pub fn create_ram_of(layout: &Layout, pages: Pages) -> Result<GuestRam, RamError> {
    let total: u64 = layout.ram().map(|window| window.bytes).sum();
    let file = Arc::new(create_memfd(total, pages)?);
    let mut offset = 0;
    let mut regions = Vec::new();
    for window in layout.ram() {
        let backing = FileOffset::from_arc(Arc::clone(&file), offset);
        let region = map_region(window, backing, pages)?;
        advise(&region, libc::MADV_DONTDUMP, "madvise(MADV_DONTDUMP)")?;
        if pages == Pages::Transparent {
            huge::ask_for(&region);
        }
        regions.push(region);
        offset += window.bytes;
    }
    GuestRam::from_regions(regions).map_err(RamError::Regions)
}

fn map_region(window: Window, backing: FileOffset, pages: Pages) -> Result<Region, RamError> {
    let bytes = window.bytes;
    let length = usize::try_from(bytes).map_err(|_| RamError::AddressSpace(bytes))?;
    // Pools give aligned mappings by themselves.
    let lid = if pages.are_pooled() {
        None
    } else {
        huge::align_next(length, backing.start())
    };
    let mapping = MmapRegionBuilder::new_with_bitmap(length, DirtyLog::with_len(length))
        .with_file_offset(backing)
        .with_mmap_prot(libc::PROT_READ | libc::PROT_WRITE)
        .with_mmap_flags(pages.map_flags())
        .with_hugetlbfs(pages.are_pooled())
        .build()
        .map_err(|source| match source {
            MmapRegionError::Mmap(error)
                if pages.are_pooled() && error.raw_os_error() == Some(libc::ENOMEM) =>
            {
                RamError::PoolTooSmall {
                    page_bytes: pages.bytes(),
                    bytes,
                }
            }
            source => RamError::Map { bytes, source },
        })?;
    drop(lid);
    Region::new(mapping, GuestAddress(window.base)).ok_or(RamError::AddressSpace(bytes))
}

/// Makes all RAM zero again, as at power-on, and gives its pages back to the host. Not for pooled
/// pages, which might not be had again, nor for others that are to stay: see
/// [`crate::clear_populated`].
///
/// # Errors
/// When the host refuses.
pub fn clear_ram(ram: &GuestRam) -> Result<(), RamError> {
    ram.iter().try_for_each(|region| {
        let (base, bytes) = (0, region.len());
        punch(region, Window { base, bytes })
    })
}

fn create_memfd(bytes: u64, pages: Pages) -> Result<File, RamError> {
    let failed = |call| RamError::system(call, bytes);
    let flags = MFdFlags::MFD_CLOEXEC | MFdFlags::MFD_ALLOW_SEALING | pages.memfd_flags();
    let file = memfd_create(c"kvmlet-guest-ram", flags)
        .map(File::from)
        .map_err(|errno| match errno {
            // The kernel has none of the kind, whatever the pool's size.
            Errno::ENODEV | Errno::ENOSYS if pages.are_pooled() => RamError::NoPool(pages.bytes()),
            errno => failed("memfd_create")(errno.into()),
        })?;
    file.set_len(bytes).map_err(failed("ftruncate"))?;
    // Whoever is handed the memfd later must not be able to make our accesses fault.
    let seals = SealFlag::F_SEAL_SHRINK | SealFlag::F_SEAL_GROW | SealFlag::F_SEAL_SEAL;
    fcntl(&file, FcntlArg::F_ADD_SEALS(seals))
        .map_err(|errno| failed("fcntl(F_ADD_SEALS)")(errno.into()))?;
    Ok(file)
}

/// Advice that changes no content.
fn advise(region: &Region, advice: libc::c_int, call: &'static str) -> Result<(), RamError> {
    let mapping = region.get_mmap();
    // SAFETY: address and length are those of a live mapping; MADV_DONTDUMP, which is all that this is
    // called with, changes no content.
    let result = unsafe { libc::madvise(mapping.as_ptr().cast(), mapping.size(), advice) };
    if result == 0 {
        return Ok(());
    }
    Err(RamError::system(call, region.len())(
        io::Error::last_os_error(),
    ))
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
    fn nobody_changes_the_size_of_a_guests_memory() {
        let layout = Layout::new(8 << 20, 40).unwrap();
        let ram = create_ram(&layout).unwrap();
        let region = ram.iter().next().unwrap();
        let file = region.file_offset().unwrap().file();
        for bytes in [4 << 20, 16 << 20] {
            let refused = file.set_len(bytes).unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
        }
        assert_eq!(file.metadata().unwrap().len(), 8 << 20);
    }

    #[test]
    fn a_pool_that_is_too_small_is_known_at_once() {
        // More than any machine that runs tests has in huge pages.
        let layout = Layout::new(1 << 42, 46).unwrap();
        for pages in [Pages::Huge2Mib, Pages::Huge1Gib] {
            match create_ram_of(&layout, pages).unwrap_err() {
                RamError::NoPool(bytes) => assert_eq!(bytes, pages.bytes()),
                RamError::PoolTooSmall { page_bytes, .. } => assert_eq!(page_bytes, pages.bytes()),
                error => panic!("{error:?}"),
            }
        }
    }

    #[test]
    fn ram_may_be_made_of_transparent_huge_pages() {
        let ram = create_ram_of(&Layout::new(8 << 20, 40).unwrap(), Pages::Transparent).unwrap();
        let start = ram.iter().next().unwrap().as_ptr() as u64;
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let ours = smaps.split_once(&format!("{start:x}-")).unwrap().1;
        let flags = ours.lines().find(|line| line.starts_with("VmFlags:"));
        let flags: Vec<&str> = flags.unwrap().split_whitespace().collect();
        assert!(flags.contains(&"hg") && flags.contains(&"dd"), "{flags:?}");
    }

    #[allow(
        clippy::disallowed_methods,
        reason = "a thread of a test, not of a VMM"
    )]
    #[test]
    fn whoever_copies_ram_that_is_cleared_ends_with_what_it_is() {
        use crate::{start_dirty_log, take_dirty_log};
        use std::sync::atomic::{AtomicBool, Ordering};

        // The last page is punched long after its mark, if the mark comes first.
        let bytes = 32 << 20;
        let last = GuestAddress(bytes - 8);
        let ram = create_ram(&Layout::new(bytes, 40).unwrap()).unwrap();
        let is_dirty = || {
            let log = take_dirty_log(&ram);
            let words = log.iter().flat_map(|region| &region.words);
            words.last().is_some_and(|word| word >> 63 != 0)
        };
        for _ in 0..20 {
            ram.write_slice(&vec![0xff; 32 << 20], GuestAddress(0))
                .unwrap();
            start_dirty_log(&ram);
            let mut copy = u64::MAX;
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                let copier = scope.spawn(|| {
                    let mut copy = u64::MAX;
                    loop {
                        // The last look comes after the end.
                        let was_over = is_over.load(Ordering::SeqCst);
                        if is_dirty() {
                            copy = ram.read_obj(last).unwrap();
                        }
                        if was_over {
                            return copy;
                        }
                    }
                });
                clear_ram(&ram).unwrap();
                is_over.store(true, Ordering::SeqCst);
                copy = copier.join().unwrap();
            });
            assert_eq!(copy, 0);
        }
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

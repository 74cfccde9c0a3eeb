//! Huge pages where a guest is going to be at once: under its kernel.
//!
//! Ordinary shared memory comes in pages of 4 KiB, each zeroed, accounted and mapped by itself, first
//! for this process and then for the guest, which costs thousands of instructions a page. Of a stretch
//! that will be used as a whole one huge page is made instead (`MADV_COLLAPSE`, Linux 6.1), whatever
//! the host does by itself. It is a matter of speed alone: what is not possible is left as it is.

use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::guest_ram::{GuestRam, Region};
use crate::layout::Window;

/// Size of a huge page.
pub(crate) const HUGE_BYTES: u64 = 2 << 20;
/// `MADV_COLLAPSE` of `linux/mman.h`, which libc does not name everywhere.
const MADV_COLLAPSE: libc::c_int = 25;
const PAGE_BYTES: usize = 4096;

/// Makes huge pages of the parts of `ram` that touch `range`, as far as the host can. Nothing changes
/// its content.
pub fn prefer_huge(ram: &GuestRam, range: Window) {
    for region in ram.iter() {
        if let Some((from, bytes)) = whole_pages(region, range) {
            collapse(region, from, bytes);
        }
    }
}

/// Has the host make huge pages of whatever is touched of `region`, where it makes any of shared memory.
pub(crate) fn ask_for(region: &Region) {
    advise(region, 0, region.get_mmap().size(), libc::MADV_HUGEPAGE);
}

/// The huge pages of `region` that touch `range`: where they begin within it and how long they are.
fn whole_pages(region: &Region, range: Window) -> Option<(usize, usize)> {
    let base = region.start_addr().0;
    let from = range.base.max(base).checked_sub(base)? / HUGE_BYTES * HUGE_BYTES;
    let end = range.end().checked_sub(base)?.next_multiple_of(HUGE_BYTES);
    // A last page that the region does not have whole stays ordinary.
    let end = end.min(region.len() / HUGE_BYTES * HUGE_BYTES);
    let bytes = end.checked_sub(from).filter(|bytes| *bytes > 0)?;
    Some((usize::try_from(from).ok()?, usize::try_from(bytes).ok()?))
}

fn collapse(region: &Region, from: usize, bytes: usize) {
    let Ok(step) = usize::try_from(HUGE_BYTES) else {
        return;
    };
    // Pages that are all missing are not made into one.
    for first in (from..from + bytes).step_by(step) {
        advise(region, first, PAGE_BYTES, libc::MADV_POPULATE_WRITE);
    }
    advise(region, from, bytes, MADV_COLLAPSE);
}

/// Refusals are expected: of kernels that do not know it, hosts without huge pages, mappings that are
/// not aligned.
fn advise(region: &Region, from: usize, bytes: usize, advice: libc::c_int) {
    let address = region.get_mmap().as_ptr().wrapping_add(from);
    // SAFETY: the caller's range is within the region's mapping; none of these advices changes any content.
    unsafe { libc::madvise(address.cast(), bytes, advice) };
}

/// Makes the next mapping of `bytes` bytes of a file, from `offset` on, likely to be where huge pages
/// are possible: at an address that is as far into a huge page as the offset. Keep the value until the
/// mapping is made.
pub(crate) fn align_next(bytes: usize, offset: u64) -> Option<Lid> {
    let huge = usize::try_from(HUGE_BYTES).ok()?;
    let within = usize::try_from(offset % HUGE_BYTES).ok()?;
    let reserved = bytes.checked_add(huge)?;
    // SAFETY: a new mapping at an address that the kernel chooses.
    let start = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            reserved,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        )
    };
    if start == libc::MAP_FAILED {
        return None;
    }
    // The kernel maps downwards from the top of a gap: what stays above the place is a lid on it.
    let lead = within.wrapping_sub(start.addr()) % huge;
    let below = lead + bytes;
    // SAFETY: a part of the mapping just made, which nothing refers to.
    unsafe { libc::munmap(start, below) };
    let lid = Lid {
        start: start.wrapping_byte_add(below),
        bytes: reserved - below,
    };
    (lid.bytes > 0).then_some(lid)
}

/// Keeps addresses above a mapping-to-be from being used.
pub(crate) struct Lid {
    start: *mut libc::c_void,
    bytes: usize,
}

impl Drop for Lid {
    fn drop(&mut self) {
        // SAFETY: the rest of a mapping of our own, which nothing refers to.
        unsafe { libc::munmap(self.start, self.bytes) };
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::{Bytes, GuestAddress};

    use super::*;
    use crate::{Layout, create_ram};

    #[test]
    fn pages_that_a_range_touches_are_taken_whole_as_far_as_they_are_there() {
        let ram = create_ram(&Layout::new(5 << 20, 40).unwrap()).unwrap();
        let region = ram.iter().next().unwrap();
        let window = |base, bytes| Window { base, bytes };
        let mib = 1 << 20;
        assert_eq!(
            whole_pages(region, window(3 << 20, 4096)),
            Some((2 * mib, 2 * mib))
        );
        assert_eq!(whole_pages(region, window(0, 3 << 20)), Some((0, 4 * mib)));
        assert_eq!(whole_pages(region, window(4 << 20, 4096)), None);
        assert_eq!(whole_pages(region, window(1 << 40, 4096)), None);
    }

    #[test]
    fn content_stays() {
        let ram = create_ram(&Layout::new(8 << 20, 40).unwrap()).unwrap();
        ram.write_obj(0x1234_5678_u32, GuestAddress(0x30_0000))
            .unwrap();
        prefer_huge(
            &ram,
            Window {
                base: 0x20_0000,
                bytes: 4 << 20,
            },
        );
        let seen: u32 = ram.read_obj(GuestAddress(0x30_0000)).unwrap();
        assert_eq!(seen, 0x1234_5678);
        assert_eq!(ram.read_obj::<u32>(GuestAddress(0x50_0000)).unwrap(), 0);
    }
}

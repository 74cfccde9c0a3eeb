//! Pages that the guest does without for now: back to the host, and zero when they are next looked at.

use nix::fcntl::{FallocateFlags, fallocate};
use vm_memory::bitmap::Bitmap;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion, GuestRegionMmap};

use crate::dirty::log::DirtyLog;
use crate::dirty::pages::DIRTY_PAGE_BYTES;
use crate::guest_ram::{GuestRam, RamError};
use crate::layout::Window;

/// Gives the pages of `range` back to the host, as far as they are RAM; returns how many bytes that
/// were. Only whole pages of what backs them are given back: the range is rounded inwards, region by
/// region. They read as zero from then on, and so are marked in the dirty log.
///
/// Pages of a pool stay: once given back, another process may take the last one, and the guest's next
/// access would be a SIGBUS. Whoever grants memory of the node counts them as the guest's all the time.
///
/// # Errors
/// When the host refuses; some of the pages may be gone.
pub fn release(ram: &GuestRam, range: Window) -> Result<u64, RamError> {
    let mut released = 0;
    for region in ram.iter().filter(|region| !is_pooled(region)) {
        let (start, bytes) = (region.start_addr().0, region.len());
        let first = range.base.max(start);
        // A range that a guest named may end beyond all addresses.
        let end = (range.base.saturating_add(range.bytes)).min(start.saturating_add(bytes));
        if let Some(within) = whole_pages(
            first.saturating_sub(start),
            end.saturating_sub(start),
            DIRTY_PAGE_BYTES,
        ) {
            punch(region, within)?;
            released += within.bytes;
        }
    }
    Ok(released)
}

/// The pages of these numbers as runs: ascending, none twice, no two of them side by side. Sorts
/// `numbers`.
pub fn page_runs(numbers: &mut [u32]) -> impl Iterator<Item = Window> + '_ {
    numbers.sort_unstable();
    numbers
        // A number that comes twice stays with its run.
        .chunk_by(|page, next| next - page <= 1)
        .filter_map(|run| {
            let (first, last) = (u64::from(*run.first()?), u64::from(*run.last()?));
            Some(Window {
                base: first * DIRTY_PAGE_BYTES,
                bytes: (last - first + 1) * DIRTY_PAGE_BYTES,
            })
        })
}

/// Makes a range within a region zero and gives its pages back. Whole pages of what backs it.
pub(crate) fn punch(region: &GuestRegionMmap<DirtyLog>, within: Window) -> Result<(), RamError> {
    let Some(backing) = region.file_offset() else {
        return Ok(());
    };
    let bytes = within.bytes;
    let flags = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
    let too_large = |_| RamError::AddressSpace(bytes);
    let offset = i64::try_from(backing.start() + within.base).map_err(too_large)?;
    let length = i64::try_from(bytes).map_err(too_large)?;
    let punched = fallocate(backing.file(), flags, offset, length);
    // After the change, as every mark; and also when only a part of it came about.
    GuestMemoryRegion::bitmap(region).mark_dirty(
        usize::try_from(within.base).map_err(too_large)?,
        usize::try_from(bytes).map_err(too_large)?,
    );
    punched.map_err(|errno| RamError::System {
        call: "fallocate",
        bytes,
        source: errno.into(),
    })
}

/// Whether the region's pages are of a pool.
fn is_pooled(region: &GuestRegionMmap<DirtyLog>) -> bool {
    region.get_mmap().is_hugetlbfs() == Some(true)
}

/// The whole pages between two offsets.
fn whole_pages(from: u64, to: u64, page_bytes: u64) -> Option<Window> {
    let base = from.checked_next_multiple_of(page_bytes)?;
    let bytes = (to - to % page_bytes).checked_sub(base)?;
    (bytes > 0).then_some(Window { base, bytes })
}

#[cfg(test)]
mod tests;

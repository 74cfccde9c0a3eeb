//! All of guest memory at once, by several threads: allocated before the guest runs, or zeroed where
//! it must stay allocated.
//!
//! Pages from a pool are always allocated before the guest runs. A reservation (what `mmap` makes of
//! them) is only a count: it does not look at the nodes that memory is bound to, nor at those that the
//! process may use, nor at its cgroup's limit, and a page that is then not to be had is a SIGBUS in the
//! midst of the guest's life. They are allocated through the mapping (`MADV_POPULATE_WRITE`) and not
//! by `fallocate` on the memfd: that knows nothing of `mbind`, which for huge pages is a property of
//! the mapping.

use std::io;
use std::num::NonZeroUsize;
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use vm_memory::bitmap::Bitmap;
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::guest_ram::{GuestRam, RamError, Region};
use crate::pages::Pages;

/// What a thread does at a time, if pages are not larger. It looks in between whether it is to stop.
const STEP_BYTES: usize = 64 << 20;
/// More threads than this do not write memory any faster.
const MAX_THREADS: usize = 16;
const STACK_BYTES: usize = 64 << 10;

/// Who works, and until when.
#[derive(Clone, Copy, Debug)]
pub struct PopulateOptions<'a> {
    /// Threads, at most; the fewer the less memory there is.
    pub threads: NonZeroUsize,
    /// Set by whoever does not want the guest any more.
    pub cancelled: &'a AtomicBool,
}

/// Allocates all of `ram`, which is made of such pages.
///
/// # Errors
/// When the host has not enough memory or huge pages, knows no `MADV_POPULATE_WRITE` (Linux 5.14), or
/// it was cancelled.
pub fn populate(
    ram: &GuestRam,
    pages: Pages,
    options: PopulateOptions<'_>,
) -> Result<(), RamError> {
    for_all(ram, pages, options, &|piece| piece.populate(pages))
}

/// Makes all of `ram` zero, as at power-on, keeping its pages; those that were given back meanwhile
/// are allocated again. No vCPU and no device may be running.
///
/// # Errors
/// As of [`populate`].
pub fn clear_populated(
    ram: &GuestRam,
    pages: Pages,
    options: PopulateOptions<'_>,
) -> Result<(), RamError> {
    for_all(ram, pages, options, &|piece| {
        // A page that is missing would be a SIGBUS if the pool is empty now; this is an error.
        piece.populate(pages)?;
        piece.clear();
        Ok(())
    })
}

/// A part of a region, in whole pages.
struct Piece<'a> {
    region: &'a Region,
    offset: usize,
    bytes: usize,
}

impl Piece<'_> {
    fn populate(&self, pages: Pages) -> Result<(), RamError> {
        loop {
            let start = self.region.as_ptr().wrapping_add(self.offset);
            // SAFETY: the range lies within a live mapping; populating changes no content.
            let result =
                unsafe { libc::madvise(start.cast(), self.bytes, libc::MADV_POPULATE_WRITE) };
            if result == 0 {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            let bytes = self.bytes as u64;
            match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN) => {}
                // What a page fault would have made a SIGBUS.
                Some(libc::EFAULT | libc::ENOMEM) if pages.are_pooled() => {
                    let page_bytes = pages.bytes();
                    return Err(RamError::PoolTooSmall { page_bytes, bytes });
                }
                _ => {
                    return Err(RamError::system("madvise(MADV_POPULATE_WRITE)", bytes)(
                        error,
                    ));
                }
            }
        }
    }

    fn clear(&self) {
        let start = self.region.as_ptr().wrapping_add(self.offset);
        // SAFETY: the range lies within a live mapping that may be written; no Rust object is there.
        // Pages are present, so nothing faults.
        unsafe { start.write_bytes(0, self.bytes) };
        self.region.bitmap().mark_dirty(self.offset, self.bytes);
    }
}

fn pieces(ram: &GuestRam, pages: Pages) -> Vec<Piece<'_>> {
    let step = usize::try_from(pages.bytes()).map_or(STEP_BYTES, |page| page.max(STEP_BYTES));
    ram.iter()
        .flat_map(|region| {
            let size = region.size();
            (0..size).step_by(step).map(move |offset| Piece {
                region,
                offset,
                bytes: step.min(size - offset),
            })
        })
        .collect()
}

/// Does `work` on every piece of `ram`; the first error ends it.
fn for_all(
    ram: &GuestRam,
    pages: Pages,
    options: PopulateOptions<'_>,
    work: &(dyn Fn(&Piece<'_>) -> Result<(), RamError> + Sync),
) -> Result<(), RamError> {
    let pieces = pieces(ram, pages);
    let next = AtomicUsize::new(0);
    let failure = Mutex::new(None);
    let failed = AtomicBool::new(false);
    let run = || {
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            if failed.load(Ordering::Relaxed) {
                return;
            }
            let outcome = if options.cancelled.load(Ordering::Relaxed) {
                Err(RamError::Cancelled)
            } else {
                work(piece)
            };
            if let Err(error) = outcome {
                failed.store(true, Ordering::Relaxed);
                let mut first = failure.lock().unwrap_or_else(PoisonError::into_inner);
                first.get_or_insert(error);
                return;
            }
        }
    };
    // This thread is one of them.
    let workers = options.threads.get().min(MAX_THREADS).min(pieces.len());
    let helpers = workers.saturating_sub(1);
    #[allow(
        clippy::disallowed_methods,
        reason = "they have the filter of whoever calls, and end before it goes on"
    )]
    std::thread::scope(|scope| {
        for _ in 0..helpers {
            let thread = std::thread::Builder::new()
                .name("prefault".to_owned())
                .stack_size(STACK_BYTES);
            // With fewer threads it takes longer; that is all.
            drop(thread.spawn_scoped(scope, run));
        }
        run();
    });
    let failure = failure.into_inner().unwrap_or_else(PoisonError::into_inner);
    failure.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use vm_memory::{Bytes, GuestAddress};

    use super::*;
    use crate::{Layout, create_ram, start_dirty_log, take_dirty_log};

    const RAM_BYTES: u64 = 200 << 20;

    fn options(cancelled: &AtomicBool) -> PopulateOptions<'_> {
        let threads = NonZeroUsize::new(3).unwrap();
        PopulateOptions { threads, cancelled }
    }

    fn allocated(ram: &GuestRam) -> u64 {
        let region = ram.find_region(GuestAddress(0)).unwrap();
        let memfd = region.file_offset().unwrap().file();
        memfd.metadata().unwrap().blocks() * 512
    }

    #[test]
    fn populated_ram_is_all_there_and_stays_when_it_is_cleared() {
        let ram = create_ram(&Layout::new(RAM_BYTES, 40).unwrap()).unwrap();
        let go_on = AtomicBool::new(false);
        assert_eq!(allocated(&ram), 0);
        populate(&ram, Pages::Ordinary, options(&go_on)).unwrap();
        assert_eq!(allocated(&ram), RAM_BYTES);
        for address in [0, 77 << 20, RAM_BYTES - 8] {
            ram.write_obj(u64::MAX, GuestAddress(address)).unwrap();
        }
        start_dirty_log(&ram);
        clear_populated(&ram, Pages::Ordinary, options(&go_on)).unwrap();
        for address in [0, 77 << 20, RAM_BYTES - 8] {
            assert_eq!(ram.read_obj::<u64>(GuestAddress(address)).unwrap(), 0);
        }
        assert_eq!(allocated(&ram), RAM_BYTES);
        let dirty: u32 = take_dirty_log(&ram)[0]
            .words
            .iter()
            .map(|w| w.count_ones())
            .sum();
        assert_eq!(u64::from(dirty) * 4096, RAM_BYTES);
    }

    #[test]
    fn a_populate_that_is_cancelled_fails_and_allocates_nothing() {
        let ram = create_ram(&Layout::new(RAM_BYTES, 40).unwrap()).unwrap();
        let cancelled = AtomicBool::new(true);
        let outcome = populate(&ram, Pages::Ordinary, options(&cancelled));
        assert!(matches!(outcome, Err(RamError::Cancelled)));
        assert_eq!(allocated(&ram), 0);
    }

    #[test]
    fn pieces_cover_all_ram_once_in_whole_pages() {
        let ram = create_ram(&Layout::new(3 << 30, 40).unwrap()).unwrap();
        for pages in [Pages::Ordinary, Pages::Huge2Mib, Pages::Huge1Gib] {
            let pieces = pieces(&ram, pages);
            let total: usize = pieces.iter().map(|piece| piece.bytes).sum();
            assert_eq!(total as u64, 3 << 30);
            for piece in pieces {
                assert_eq!(piece.offset as u64 % pages.bytes(), 0);
                assert_eq!(piece.bytes as u64 % pages.bytes(), 0);
                assert!(piece.offset + piece.bytes <= piece.region.size());
            }
        }
    }
}

//! The part of the dirty log that the kernel writes by itself, for devices that it serves (vhost).

use std::sync::atomic::{AtomicU64, Ordering};

use crate::dirty::pages::{DIRTY_PAGE_BYTES, DirtyPages};

/// A bit for each page of guest-physical addresses from 0 to the end of RAM: bit `n` of word `w` is
/// page `64 w + n`, as `VHOST_SET_LOG_BASE` wants it on x86.
#[derive(Debug)]
pub struct KernelLog {
    words: Box<[AtomicU64]>,
}

impl KernelLog {
    /// A clean log of all pages up to that of the guest-physical address `last`.
    pub(crate) fn new(last: u64) -> Self {
        let pages = last / DIRTY_PAGE_BYTES + 1;
        let words = usize::try_from(pages.div_ceil(64)).unwrap_or(0);
        Self {
            words: (0..words).map(|_| AtomicU64::new(0)).collect(),
        }
    }

    /// The bits.
    #[must_use]
    pub fn words(&self) -> &[AtomicU64] {
        &self.words
    }

    /// Makes everything clean.
    pub(crate) fn clear(&self) {
        for word in &self.words {
            word.store(0, Ordering::Relaxed);
        }
    }

    /// Moves what is dirty to `log`.
    pub(crate) fn move_to(&self, log: &mut [DirtyPages]) {
        for (index, word) in (0u64..).zip(&self.words) {
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            let bits = word.swap(0, Ordering::AcqRel);
            let dirty = (0..64).filter(|bit| bits >> bit & 1 != 0);
            for page in dirty.map(|bit| index * 64 + bit) {
                mark(log, page);
            }
        }
    }
}

/// Marks a page in the log of its region; one that is nowhere is dropped.
fn mark(log: &mut [DirtyPages], page: u64) {
    for region in log {
        let Some(within) = page.checked_sub(region.base / DIRTY_PAGE_BYTES) else {
            continue;
        };
        let word = usize::try_from(within / 64).unwrap_or(usize::MAX);
        if let Some(word) = region.words.get_mut(word) {
            *word |= 1 << (within % 64);
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use vm_memory::{Bytes, GuestAddress};

    use super::*;
    use crate::{Layout, create_ram, kernel_log, start_dirty_log, stop_dirty_log, take_dirty_log};

    #[test]
    fn what_the_kernel_marks_is_in_the_log_once() {
        let layout = Layout::new((2 << 30) + (1 << 20), 40).unwrap();
        let ram = create_ram(&layout).unwrap();
        let log = kernel_log(&ram).unwrap();
        assert!(Arc::ptr_eq(&log, &kernel_log(&ram).unwrap()));
        log.words()[0].store(1, Ordering::SeqCst);
        start_dirty_log(&ram);
        let high = (4u64 << 30) / DIRTY_PAGE_BYTES;
        for page in [3, 70, high, high + 65] {
            let word = usize::try_from(page / 64).unwrap();
            log.words()[word].fetch_or(1 << (page % 64), Ordering::SeqCst);
        }
        // Between the two there is no RAM.
        log.words()[(3 << 30) / 4096 / 64].store(1, Ordering::SeqCst);
        ram.write_obj(1u8, GuestAddress(0x4000)).unwrap();
        let taken = take_dirty_log(&ram);
        assert_eq!(taken[0].words[..2], [0b1_1000, 1 << 6]);
        assert_eq!(taken[1].words[..2], [1, 2]);
        let all: u32 = taken
            .iter()
            .flat_map(|region| &region.words)
            .map(|word| word.count_ones())
            .sum();
        assert_eq!(all, 5);
        let again = take_dirty_log(&ram);
        assert!(
            again
                .iter()
                .all(|region| region.words.iter().all(|word| *word == 0))
        );
        stop_dirty_log(&ram);
    }
}

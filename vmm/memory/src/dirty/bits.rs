//! A bit for each page of one region, and the switch that turns marking on: nothing but atomics, so that
//! loom can try the interleavings of those who mark and the one who takes.

use std::ops::RangeInclusive;
use std::sync::OnceLock;

use super::atomics::{AtomicBool, AtomicU64, Ordering};

const WORD_SHIFT: u32 = u64::BITS.trailing_zeros();

/// The bits of one region. They are not allocated until marking is first turned on.
#[derive(Debug, Default)]
pub(super) struct Bits {
    is_on: AtomicBool,
    pages: usize,
    words: OnceLock<Box<[AtomicU64]>>,
}

impl Bits {
    pub(super) fn new(pages: usize) -> Self {
        Self {
            pages,
            ..Self::default()
        }
    }

    /// Clears all bits, then turns marking on. Nobody may be writing meanwhile.
    pub(super) fn start(&self) {
        for word in self.words() {
            word.store(0, Ordering::Relaxed);
        }
        self.is_on.store(true, Ordering::Release);
    }

    pub(super) fn stop(&self) {
        self.is_on.store(false, Ordering::Release);
    }

    pub(super) fn is_on(&self) -> bool {
        self.is_on.load(Ordering::Acquire)
    }

    /// Clears the bits and returns what they were. Whoever finds a bit set sees the write to the page that
    /// it stands for.
    pub(super) fn take(&self) -> Vec<u64> {
        self.words()
            .iter()
            .map(|word| word.swap(0, Ordering::AcqRel))
            .collect()
    }

    /// Marks pages, after they were written.
    pub(super) fn mark(&self, pages: RangeInclusive<usize>) {
        // Nobody writes while the switch is turned on (`start_dirty_log`), and what lets the writers go on
        // again orders this load.
        if !self.is_on.load(Ordering::Relaxed) {
            return;
        }
        let last = self.pages.saturating_sub(1).min(*pages.end());
        let words = self.words();
        for page in *pages.start()..=last {
            if let Some(word) = words.get(page >> WORD_SHIFT) {
                // Release orders the mark behind the write that it stands for.
                word.fetch_or(1 << (page % u64::BITS as usize), Ordering::Release);
            }
        }
    }

    pub(super) fn is_marked(&self, page: usize) -> bool {
        let words = self.words.get();
        let word = words.and_then(|words| words.get(page >> WORD_SHIFT));
        word.is_some_and(|word| {
            word.load(Ordering::Acquire) >> (page % u64::BITS as usize) & 1 != 0
        })
    }

    fn words(&self) -> &[AtomicU64] {
        self.words.get_or_init(|| {
            let count = self.pages.div_ceil(u64::BITS as usize);
            (0..count).map(|_| AtomicU64::new(0)).collect()
        })
    }
}

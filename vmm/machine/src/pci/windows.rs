//! Where BARs are put at power-on.

use vmm_devices::BarKind;
use vmm_memory::{Layout, Window};

/// 64-bit BARs up to this size are put below 4 GiB too: guests without paging reach them there.
const SMALL_BAR_BYTES: u64 = 16 << 20;

/// Gives out addresses, ascending, each naturally aligned.
pub(super) struct BarAllocator {
    low: Window,
    high: Window,
}

impl BarAllocator {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            low: layout.mmio32(),
            high: layout.mmio64(),
        }
    }

    /// An address for a BAR of `bytes` bytes, a power of two.
    pub(super) fn allocate(&mut self, kind: BarKind, bytes: u64) -> Option<u64> {
        let may_be_high = kind == BarKind::Memory64;
        if may_be_high && bytes > SMALL_BAR_BYTES {
            return take(&mut self.high, bytes).or_else(|| take(&mut self.low, bytes));
        }
        let low = take(&mut self.low, bytes);
        if may_be_high {
            return low.or_else(|| take(&mut self.high, bytes));
        }
        low
    }
}

fn take(window: &mut Window, bytes: u64) -> Option<u64> {
    let base = window.base.checked_next_multiple_of(bytes)?;
    let end = base.checked_add(bytes)?;
    if end > window.end() {
        return None;
    }
    *window = Window {
        base: end,
        bytes: window.end() - end,
    };
    Some(base)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bars_are_aligned_apart_and_within_a_window(
            sizes in proptest::collection::vec((12u32..36, any::<bool>()), 1..40),
        ) {
            let layout = Layout::new(3 << 30, 40).unwrap();
            let mut allocator = BarAllocator::new(&layout);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (bits, wide) in sizes {
                let bytes = 1u64 << bits;
                let kind = if wide { BarKind::Memory64 } else { BarKind::Memory32 };
                let Some(base) = allocator.allocate(kind, bytes) else { continue };
                prop_assert_eq!(base % bytes, 0);
                let low = layout.mmio32().contains(base, bytes);
                prop_assert!(low || wide && layout.mmio64().contains(base, bytes));
                prop_assert!(taken.iter().all(|(b, l)| base + bytes <= *b || b + l <= base));
                taken.push((base, bytes));
            }
        }
    }
}

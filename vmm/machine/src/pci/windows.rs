//! Where BARs and the windows of root ports are put at power-on.

use vmm_devices::{BarKind, BarWindow, BridgeWindow};
use vmm_memory::{Layout, Window};

/// 64-bit BARs up to this size are put below 4 GiB too: guests without paging reach them there.
const SMALL_BAR_BYTES: u64 = 16 << 20;
/// Granularity of a bridge's windows (PCI-to-PCI Bridge 1.2, 3.2.5.8).
const WINDOW_UNIT: u64 = 1 << 20;
/// Every root port forwards at least so much, so that there is room for what is plugged in later.
pub(super) const ROOT_PORT_MEMORY_BYTES: u64 = 2 << 20;
/// Every root port forwards so much above 4 GiB, as long as there is any.
pub(super) const ROOT_PORT_PREFETCHABLE_BYTES: u64 = 256 << 20;

/// Gives out addresses, ascending, each naturally aligned.
pub(super) struct BarAllocator {
    low: Window,
    high: Window,
}

/// Windows of a root port, and where the BARs behind it are.
pub(super) struct RootPortWindows {
    pub(super) memory: BridgeWindow,
    /// Closed when no addresses above 4 GiB are left.
    pub(super) prefetchable: BridgeWindow,
    /// In the order of the BARs.
    pub(super) bars: Vec<u64>,
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
            return take(&mut self.high, bytes, bytes)
                .or_else(|| take(&mut self.low, bytes, bytes));
        }
        let low = take(&mut self.low, bytes, bytes);
        if may_be_high {
            return low.or_else(|| take(&mut self.high, bytes, bytes));
        }
        low
    }

    /// Windows for a root port. No BAR is prefetchable, so all of them lie in the window below
    /// 4 GiB, which has no upper half (PCI-to-PCI Bridge 1.2, 3.2.5.8).
    pub(super) fn allocate_root_port(&mut self, behind: &[BarWindow]) -> Option<RootPortWindows> {
        let mut end = 0u64;
        let mut offsets = Vec::with_capacity(behind.len());
        for bar in behind {
            let offset = end.checked_next_multiple_of(bar.size)?;
            end = offset.checked_add(bar.size)?;
            offsets.push(offset);
        }
        let largest = behind.iter().map(|bar| bar.size).max().unwrap_or(0);
        let bytes = end
            .checked_next_multiple_of(WINDOW_UNIT)?
            .max(ROOT_PORT_MEMORY_BYTES);
        let base = take(&mut self.low, bytes, largest.max(ROOT_PORT_MEMORY_BYTES))?;
        let high = ROOT_PORT_PREFETCHABLE_BYTES;
        let prefetchable = take(&mut self.high, high, high);
        Some(RootPortWindows {
            memory: window(base, bytes),
            prefetchable: prefetchable.map_or(BridgeWindow::CLOSED, |base| window(base, high)),
            bars: offsets.iter().map(|offset| base + offset).collect(),
        })
    }
}

fn window(base: u64, bytes: u64) -> BridgeWindow {
    BridgeWindow {
        base,
        last: base + bytes - 1,
    }
}

fn take(window: &mut Window, bytes: u64, align: u64) -> Option<u64> {
    let base = window.base.checked_next_multiple_of(align)?;
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

    fn bar(index: usize, size: u64) -> BarWindow {
        BarWindow {
            index,
            base: 0,
            size,
            kind: BarKind::Memory64,
            decoded: false,
        }
    }

    /// A range must lie within one of the machine's windows and apart from all before.
    fn reserve(taken: &mut Vec<(u64, u64)>, layout: &Layout, base: u64, bytes: u64) -> bool {
        let within = [layout.mmio32(), layout.mmio64()]
            .iter()
            .any(|window| window.contains(base, bytes));
        let apart = taken
            .iter()
            .all(|(b, l)| base + bytes <= *b || b + l <= base);
        taken.push((base, bytes));
        within && apart
    }

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
                prop_assert!(reserve(&mut taken, &layout, base, bytes));
                prop_assert!(wide || layout.mmio32().contains(base, bytes));
            }
        }

        #[test]
        fn ports_have_windows_of_their_own_and_bars_lie_within_them(
            root_ports in proptest::collection::vec(
                (proptest::collection::vec(12u32..26, 0..4), 12u32..20),
                1..31,
            ),
            address_bits in 33u8..46,
        ) {
            let layout = Layout::new(2 << 30, address_bits).unwrap();
            let mut allocator = BarAllocator::new(&layout);
            let mut taken: Vec<(u64, u64)> = Vec::new();
            for (behind, beside) in root_ports {
                let bars: Vec<_> = behind.iter().enumerate().map(|(index, bits)| bar(index, 1 << bits)).collect();
                let Some(places) = allocator.allocate_root_port(&bars) else { continue };
                for window in [places.memory, places.prefetchable] {
                    if window == BridgeWindow::CLOSED {
                        continue;
                    }
                    prop_assert_eq!(window.base % WINDOW_UNIT, 0);
                    prop_assert_eq!((window.last + 1) % WINDOW_UNIT, 0);
                    prop_assert!(reserve(&mut taken, &layout, window.base, window.last + 1 - window.base));
                }
                prop_assert!(places.memory.contains(places.memory.base, ROOT_PORT_MEMORY_BYTES));
                let mut inside: Vec<(u64, u64)> = Vec::new();
                for (base, bar) in places.bars.iter().zip(&bars) {
                    prop_assert_eq!(base % bar.size, 0);
                    prop_assert!(places.memory.contains(*base, bar.size));
                    prop_assert!(reserve(&mut inside, &layout, *base, bar.size));
                }
                let bytes = 1u64 << beside;
                if let Some(base) = allocator.allocate(BarKind::Memory32, bytes) {
                    prop_assert!(reserve(&mut taken, &layout, base, bytes));
                }
            }
        }
    }

    #[test]
    fn thirty_ports_have_room_below_and_above_4_gib() {
        let layout = Layout::new(64 << 30, 40).unwrap();
        let mut allocator = BarAllocator::new(&layout);
        for _ in 0..30 {
            let places = allocator.allocate_root_port(&[bar(0, 0x8000)]).unwrap();
            assert_ne!(places.prefetchable, BridgeWindow::CLOSED);
        }
    }
}

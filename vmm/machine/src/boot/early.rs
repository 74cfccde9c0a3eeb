//! Memory that a kernel uses before anything else runs.

use vmm_memory::{GuestRam, Layout, Window, prefer_huge};

/// Smaller guests are no stock kernels, and a huge page is much of their memory.
const MIN_RAM_BYTES: u64 = 64 << 20;
/// Below, Linux has its first page tables, and after the kernel is up its first allocations.
const LOW_BYTES: u64 = 4 << 20;
/// Linux describes each page of 4 KiB by 64 bytes, which it puts, with what else it allocates first,
/// at the end of RAM.
const SHARE_AT_END: u64 = 32;
const MIN_AT_END: u64 = 8 << 20;
const MAX_AT_END: u64 = 64 << 20;

/// Makes huge pages, where the host can, of memory that Linux writes to from end to end as it starts.
/// Kernel and initrd have theirs when they are loaded. Each spares the guest 512 faults.
pub(super) fn prepare(ram: &GuestRam, layout: &Layout) {
    let total: u64 = layout.ram().map(|window| window.bytes).sum();
    if total < MIN_RAM_BYTES {
        return;
    }
    for window in used_early(layout, total) {
        prefer_huge(ram, window);
    }
}

fn used_early(layout: &Layout, total: u64) -> impl Iterator<Item = Window> {
    let low = Window {
        base: 0,
        bytes: LOW_BYTES,
    };
    let at_end = (total / SHARE_AT_END).clamp(MIN_AT_END, MAX_AT_END);
    let end = layout.ram().last().map(|last| {
        let bytes = at_end.min(last.bytes);
        Window {
            base: last.end() - bytes,
            bytes,
        }
    });
    std::iter::once(low).chain(end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_ram_is_that_of_the_last_window() {
        let layout = Layout::new(256 << 20, 40).unwrap();
        let windows: Vec<Window> = used_early(&layout, 256 << 20).collect();
        assert_eq!(windows.len(), 2);
        assert_eq!((windows[1].base, windows[1].bytes), (248 << 20, 8 << 20));
        let layout = Layout::new(4 << 30, 40).unwrap();
        let last = used_early(&layout, 4 << 30).last().unwrap();
        assert_eq!(last.bytes, 64 << 20);
        assert_eq!(last.end(), layout.ram().last().unwrap().end());
    }
}

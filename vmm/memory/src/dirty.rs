//! Which pages of guest memory the VMM wrote: the half of the dirty log that KVM does not see.
//!
//! Every write that goes through `vm-memory` marks its pages, and so does every completion of a
//! transfer that the kernel made for a device. While the log is off (nearly always) a mark costs one
//! load; the bits are not even allocated.

mod bits;
#[cfg(test)]
mod interleavings;

use std::sync::{Arc, OnceLock};

use vm_memory::bitmap::{Bitmap, BitmapSlice, NewBitmap, WithBitmapSlice};
use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use self::bits::Bits;
use crate::kernel_log::KernelLog;
use crate::ram::GuestRam;

/// What [`bits`] is made of; loom's in `interleavings`.
mod atomics {
    pub(super) use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
}

/// Size of what one bit stands for, in bytes: KVM's dirty log has the same.
pub const DIRTY_PAGE_BYTES: u64 = 4096;

const PAGE_SHIFT: u32 = DIRTY_PAGE_BYTES.trailing_zeros();

/// The log of one region.
#[derive(Debug, Default)]
pub struct DirtyLog {
    bits: Bits,
    /// What the kernel writes by itself, of all regions; in the first of them, if anywhere.
    kernel: OnceLock<Arc<KernelLog>>,
}

/// Dirty pages of one region, as KVM's log has them: bit `n` of word `w` is page `64 w + n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyPages {
    /// Guest-physical address of the region.
    pub base: u64,
    /// One bit a page.
    pub words: Vec<u64>,
}

/// Turns the log on, all clean. Nothing may be writing to guest memory on the VMM's side meanwhile:
/// a write that saw the log off would be in neither the log nor in what is copied next.
pub fn start_dirty_log(ram: &GuestRam) {
    if let Some(log) = kernel_log_of(ram).and_then(OnceLock::get) {
        log.clear();
    }
    for region in ram.iter() {
        region.bitmap_of_region().bits.start();
    }
}

/// Whether the log is on.
#[must_use]
pub fn is_dirty_log_on(ram: &GuestRam) -> bool {
    ram.iter()
        .any(|region| region.bitmap_of_region().bits.is_on())
}

/// Where the kernel's log of `ram` is, once somebody wants it.
pub(crate) fn kernel_log_of(ram: &GuestRam) -> Option<&OnceLock<Arc<KernelLog>>> {
    let first = ram.iter().next()?;
    Some(&first.bitmap_of_region().kernel)
}

/// Turns the log off.
pub fn stop_dirty_log(ram: &GuestRam) {
    for region in ram.iter() {
        region.bitmap_of_region().bits.stop();
    }
}

/// Takes what was written since the log was turned on or last taken, region by region. A write that
/// happens meanwhile is in this log or in the next.
#[must_use]
pub fn take_dirty_log(ram: &GuestRam) -> Vec<DirtyPages> {
    let regions = ram.iter().map(|region| DirtyPages {
        base: region.start_addr().0,
        words: region.bitmap_of_region().bits.take(),
    });
    let mut log: Vec<DirtyPages> = regions.collect();
    if let Some(kernel) = kernel_log_of(ram).and_then(OnceLock::get) {
        kernel.move_to(&mut log);
    }
    log
}

/// The log of a region, not a slice of it.
trait RegionLog {
    fn bitmap_of_region(&self) -> &DirtyLog;
}

impl RegionLog for vm_memory::GuestRegionMmap<DirtyLog> {
    fn bitmap_of_region(&self) -> &DirtyLog {
        GuestMemoryRegion::bitmap(self).log
    }
}

impl DirtyLog {
    fn mark(&self, offset: usize, bytes: usize) {
        let Some(last) = bytes.checked_sub(1) else {
            return;
        };
        let last = offset.saturating_add(last) >> PAGE_SHIFT;
        self.bits.mark(offset >> PAGE_SHIFT..=last);
    }

    fn is_dirty(&self, offset: usize) -> bool {
        self.bits.is_marked(offset >> PAGE_SHIFT)
    }
}

impl NewBitmap for DirtyLog {
    fn with_len(bytes: usize) -> Self {
        Self {
            bits: Bits::new(bytes.div_ceil(1 << PAGE_SHIFT)),
            kernel: OnceLock::new(),
        }
    }
}

impl<'a> WithBitmapSlice<'a> for DirtyLog {
    type S = DirtySlice<'a>;
}

impl Bitmap for DirtyLog {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.mark(offset, len);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.is_dirty(offset)
    }

    fn slice_at(&self, offset: usize) -> DirtySlice<'_> {
        DirtySlice { log: self, offset }
    }
}

/// The log of a region from an offset on.
#[derive(Clone, Copy, Debug)]
pub struct DirtySlice<'a> {
    log: &'a DirtyLog,
    offset: usize,
}

impl WithBitmapSlice<'_> for DirtySlice<'_> {
    type S = Self;
}

impl BitmapSlice for DirtySlice<'_> {}

impl Bitmap for DirtySlice<'_> {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.log.mark(self.offset.saturating_add(offset), len);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.log.is_dirty(self.offset.saturating_add(offset))
    }

    fn slice_at(&self, offset: usize) -> Self {
        Self {
            log: self.log,
            offset: self.offset.saturating_add(offset),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

    use super::*;
    use crate::{Layout, create_ram};

    const RAM_BYTES: u64 = 4 << 20;

    fn ram() -> GuestRam {
        create_ram(&Layout::new(RAM_BYTES, 40).unwrap()).unwrap()
    }

    fn dirty(ram: &GuestRam) -> Vec<u64> {
        let mut pages = Vec::new();
        for region in take_dirty_log(ram) {
            for (index, word) in (0u64..).zip(&region.words) {
                let bits = (0..64).filter(|bit| word >> bit & 1 != 0);
                pages.extend(bits.map(|bit| region.base / DIRTY_PAGE_BYTES + index * 64 + bit));
            }
        }
        pages
    }

    #[test]
    fn nothing_is_logged_while_the_log_is_off() {
        let ram = ram();
        ram.write_obj(1u8, GuestAddress(0)).unwrap();
        assert!(dirty(&ram).is_empty());
        start_dirty_log(&ram);
        ram.write_obj(1u8, GuestAddress(0x3000)).unwrap();
        assert!(is_dirty_log_on(&ram));
        stop_dirty_log(&ram);
        assert!(!is_dirty_log_on(&ram));
        ram.write_obj(1u8, GuestAddress(0x5000)).unwrap();
        assert_eq!(dirty(&ram), [3]);
        assert!(dirty(&ram).is_empty());
    }

    #[test]
    fn reads_and_failed_writes_are_clean() {
        let ram = ram();
        start_dirty_log(&ram);
        ram.read_obj::<u64>(GuestAddress(0x1000)).unwrap();
        ram.write_obj(1u8, GuestAddress(RAM_BYTES)).unwrap_err();
        assert!(dirty(&ram).is_empty());
    }

    proptest! {
        #[test]
        fn every_write_marks_its_pages_and_no_other(
            address in 0..RAM_BYTES, bytes in 1usize..20_000, by_slice: bool,
        ) {
            let ram = ram();
            start_dirty_log(&ram);
            let bytes = bytes.min(usize::try_from(RAM_BYTES - address).unwrap());
            if by_slice {
                let range = GuestAddress(address);
                let slices = GuestMemory::get_slices(&ram, range, bytes, Permissions::ReadWrite).unwrap();
                for slice in slices {
                    slice.unwrap().copy_from(&vec![1u8; bytes]);
                }
            } else {
                ram.write_slice(&vec![1; bytes], GuestAddress(address)).unwrap();
            }
            let last = address + u64::try_from(bytes).unwrap() - 1;
            let wanted: Vec<u64> = (address / DIRTY_PAGE_BYTES..=last / DIRTY_PAGE_BYTES).collect();
            prop_assert_eq!(dirty(&ram), wanted);
        }
    }
}

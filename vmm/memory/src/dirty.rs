//! Which pages of guest memory the VMM wrote: the half of the dirty log that KVM does not see.
//!
//! Every write that goes through `vm-memory` marks its pages, and so does every completion of a
//! transfer that the kernel made for a device. While the log is off (nearly always) a mark costs one
//! load; the bits are not even allocated.

mod atomics;
mod bits;
#[cfg(test)]
mod interleavings;
pub(crate) mod log;
pub(crate) mod pages;

use std::sync::{Arc, OnceLock};

use vm_memory::{Address, GuestMemoryBackend, GuestMemoryRegion};

use self::log::DirtyLog;
use self::pages::DirtyPages;
use crate::guest_ram::GuestRam;
use crate::kernel_log::KernelLog;

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
fn kernel_log_of(ram: &GuestRam) -> Option<&OnceLock<Arc<KernelLog>>> {
    let first = ram.iter().next()?;
    Some(&first.bitmap_of_region().kernel)
}

/// The kernel's log of `ram`, the same for all who ask. What is in it goes with the next
/// [`take_dirty_log`].
#[must_use]
pub fn kernel_log(ram: &GuestRam) -> Option<Arc<KernelLog>> {
    kernel_log_of(ram).map(|place| {
        Arc::clone(place.get_or_init(|| Arc::new(KernelLog::new(ram.last_addr().raw_value()))))
    })
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use vm_memory::{Bytes, GuestAddress, GuestMemory, Permissions};

    use super::pages::DIRTY_PAGE_BYTES;
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

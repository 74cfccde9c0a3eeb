//! Configuration space that guests read without an exit of the vCPU.
//!
//! Linux reads it a thousand times as it starts, and an exit of the vCPU each time is what takes longest in
//! the start of a small guest. With this each function has a page of memory that its guest sees, read only,
//! where ECAM has the function: reads are reads of memory, writes are exits as ever. A page says what
//! reads of the function would give as long as those have no effect
//! ([`PciFunction::config_image`](vmm_devices::PciFunction::config_image)), and is gone from then on until
//! the function is reset.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_devices::{CONVENTIONAL_BYTES, ConfigImage};
use vmm_memory::RomMemory;

use super::slot::Slot;

/// Configuration space of one function.
pub(crate) const PAGE_BYTES: usize = 4096;
/// Accesses lie within one of these.
const WORD_BYTES: usize = 4;

/// Shows a page of the memory at an offset of configuration space and nowhere else; with `None` nowhere.
/// False, and nothing is shown, when the host refuses.
pub(crate) type MapPage = Box<dyn Fn(usize, Option<u64>) -> bool + Send + Sync>;

/// The pages of all functions, by their number in the bus.
pub(crate) struct ConfigPages {
    memory: Arc<RomMemory>,
    map_page: MapPage,
    pages: Vec<Mutex<Page>>,
}

/// What guests see of one function.
struct Page {
    /// Offset in configuration space; `None`: reads are exits.
    at: Option<u64>,
    /// Reads have had effects since the function was reset.
    is_retired: bool,
    bytes: [u8; CONVENTIONAL_BYTES],
    beyond: u8,
}

impl ConfigPages {
    /// Pages in `memory`, which is all zero; none of them is mapped.
    pub(crate) fn new(memory: Arc<RomMemory>, map_page: MapPage) -> Self {
        let empty = || {
            Mutex::new(Page {
                at: None,
                is_retired: false,
                bytes: [0; CONVENTIONAL_BYTES],
                beyond: 0,
            })
        };
        let count = memory.bytes() / PAGE_BYTES;
        Self {
            memory,
            map_page,
            pages: (0..count).map(|_| empty()).collect(),
        }
    }

    /// Makes the page of function `number`, which is at `slot`, equal to the function's registers, and shows
    /// it at the offset that `place` gives.
    pub(super) fn update(&self, number: usize, slot: &Slot, place: impl FnOnce() -> Option<u64>) {
        let Some(mut page) = self.page(number) else {
            return;
        };
        // Under the lock: of two updates the later one sees what both did.
        let place = place();
        {
            let function = slot.function();
            match function.config_image() {
                Some(image) => self.write(number, &mut page, &image),
                None => page.is_retired = true,
            }
        }
        let place = place.filter(|_| !page.is_retired);
        if place != page.at {
            page.at = place.filter(|_| (self.map_page)(number, place));
            if place.is_none() {
                (self.map_page)(number, None);
            }
        }
    }

    /// The function was reset.
    pub(super) fn reset(&self, number: usize) {
        if let Some(mut page) = self.page(number) {
            page.is_retired = false;
        }
    }

    fn page(&self, number: usize) -> Option<MutexGuard<'_, Page>> {
        let page = self.pages.get(number)?;
        // Whole whatever happened to another holder.
        Some(page.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Words that changed, each at once.
    fn write(&self, number: usize, page: &mut Page, image: &ConfigImage<'_>) {
        let start = number * PAGE_BYTES;
        if page.beyond != image.beyond {
            let rest = [image.beyond; PAGE_BYTES - CONVENTIONAL_BYTES];
            self.memory.write(start + CONVENTIONAL_BYTES, &rest);
            page.beyond = image.beyond;
        }
        if page.bytes == *image.bytes {
            return;
        }
        let words = page
            .bytes
            .chunks(WORD_BYTES)
            .zip(image.bytes.chunks(WORD_BYTES));
        for (index, (old, new)) in words.enumerate() {
            if old != new {
                self.memory.write(start + index * WORD_BYTES, new);
            }
        }
        page.bytes = *image.bytes;
    }
}

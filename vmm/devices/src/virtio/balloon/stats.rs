//! Statistics of the guest's memory, as its driver reports them (VIRTIO 1.2, 5.5.6.4).

use vmm_memory::GuestRam;

use crate::virtio::queue::{Chain, copy_out, window};

/// `struct virtio_balloon_stat`: a tag and a value, packed.
const ENTRY_BYTES: usize = 10;
/// Entries that are read of one buffer. There are 16 tags; what a guest adds to them is not known
/// here.
const MAX_ENTRIES: usize = 32;
const TAGS: usize = 16;

/// What a value says. The number is its tag; 10 to 15 are Linux's, from 6.12 on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum Stat {
    /// Bytes read from swap.
    SwapInBytes = 0,
    /// Bytes written to swap.
    SwapOutBytes = 1,
    /// Page faults that waited for a disk.
    MajorFaults = 2,
    /// Page faults that did not.
    MinorFaults = 3,
    /// Bytes that nothing uses.
    FreeBytes = 4,
    /// Bytes in all, as far as the guest's kernel has them.
    TotalBytes = 5,
    /// Bytes that could be had without swapping.
    AvailableBytes = 6,
    /// Bytes of caches that could be given up.
    CacheBytes = 7,
    /// Huge pages that were allocated.
    HugePagesAllocated = 8,
    /// Huge pages that could not be allocated.
    HugePagesFailed = 9,
    /// Processes killed for want of memory.
    OomKills = 10,
    /// Allocations that had to wait.
    AllocationStalls = 11,
    /// Pages looked at by background reclaim.
    BackgroundScans = 12,
    /// Pages looked at by whoever allocated.
    DirectScans = 13,
    /// Pages reclaimed in the background.
    BackgroundReclaims = 14,
    /// Pages reclaimed by whoever allocated.
    DirectReclaims = 15,
}

/// The last values of one buffer. The guest may say anything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalloonStats([Option<u64>; TAGS]);

impl BalloonStats {
    /// A value; none when the guest did not tell.
    #[must_use]
    pub fn get(&self, stat: Stat) -> Option<u64> {
        self.0.get(usize::from(stat as u16)).copied().flatten()
    }

    /// Takes a value; one of an unknown tag is dropped.
    pub(super) fn set(&mut self, tag: u32, value: u64) {
        let slot = usize::try_from(tag)
            .ok()
            .and_then(|tag| self.0.get_mut(tag));
        if let Some(slot) = slot {
            *slot = Some(value);
        }
    }

    /// All tags and values that are there.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..)
            .zip(&self.0)
            .filter_map(|(tag, value)| Some((tag, (*value)?)))
    }

    /// Reads the buffer of a driver; none when it is not all RAM.
    pub(super) fn read(memory: &GuestRam, chain: &Chain) -> Option<Self> {
        let mut bytes = [0; MAX_ENTRIES * ENTRY_BYTES];
        let buffers = window(&chain.readable, 0, bytes.len() as u64);
        let count = copy_out(memory, buffers, &mut bytes).ok()?;
        let mut stats = Self::default();
        for entry in bytes.get(..count)?.chunks_exact(ENTRY_BYTES) {
            if let [t0, t1, value @ ..] = entry
                && let Ok(value) = value.try_into()
            {
                let tag = u16::from_le_bytes([*t0, *t1]);
                stats.set(tag.into(), u64::from_le_bytes(value));
            }
        }
        Some(stats)
    }
}

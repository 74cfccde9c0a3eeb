//! The three areas of a split virtqueue in guest memory, resolved once at activation (VIRTIO 1.2, 2.7).
//!
//! ```text
//! available: flags u16, index u16, heads u16 x size, used_event u16
//! used:      flags u16, index u16, (id u32, length u32) x size, avail_event u16
//! ```

use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueT};
use vm_memory::{
    Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryError, GuestMemoryRegion,
    MemoryRegionAddress, VolatileMemory,
};

use super::buffers::Piece;
use super::chain::DESCRIPTOR_BYTES;
use super::notifications::{Field, Fields};
use vmm_memory::GuestRam;

/// Offset of the index in both rings, and of their elements.
const INDEX: usize = 2;
const ELEMENTS: usize = 4;
const HEAD_BYTES: usize = 2;
const USED_ELEMENT_BYTES: usize = 8;
const EVENT_BYTES: usize = 2;

/// The three areas of an enabled queue.
pub(super) struct Rings {
    size: usize,
    descriptors: RingArea,
    available: RingArea,
    used: RingArea,
}

impl Rings {
    /// Resolves the areas of `queue`. `None` when one of them is not within one region of RAM.
    pub(super) fn find(queue: &Queue, memory: &GuestRam) -> Option<Self> {
        let size = usize::from(queue.size());
        let heads = ELEMENTS + HEAD_BYTES * size + EVENT_BYTES;
        let elements = ELEMENTS + USED_ELEMENT_BYTES * size + EVENT_BYTES;
        Some(Self {
            size,
            descriptors: RingArea::find(memory, queue.desc_table(), DESCRIPTOR_BYTES * size)?,
            available: RingArea::find(memory, queue.avail_ring(), heads)?,
            used: RingArea::find(memory, queue.used_ring(), elements)?,
        })
    }

    /// The table of descriptors.
    pub(super) fn descriptors<'a>(
        &self,
        memory: &'a GuestRam,
    ) -> Result<Piece<'a>, GuestMemoryError> {
        self.descriptors.piece(memory)
    }

    /// Access to the fields that control notifications.
    pub(super) fn in_ram<'a>(&'a self, memory: &'a GuestRam) -> RingsInRam<'a> {
        RingsInRam {
            rings: self,
            memory,
        }
    }

    /// The head in slot `slot` of the available ring.
    pub(super) fn head(&self, memory: &GuestRam, slot: u16) -> Result<u16, GuestMemoryError> {
        let at = ELEMENTS + HEAD_BYTES * usize::from(slot);
        load(self.available.piece(memory)?, at, Ordering::Relaxed)
    }

    /// Writes an element into slot `slot` of the used ring (`struct virtq_used_elem`).
    pub(super) fn set_element(
        &self,
        memory: &GuestRam,
        slot: u16,
        head: u16,
        written: u32,
    ) -> Result<(), GuestMemoryError> {
        let at = ELEMENTS + USED_ELEMENT_BYTES * usize::from(slot);
        let element = u64::from(head) | u64::from(written) << 32;
        self.used.piece(memory)?.get_ref(at)?.store(element.to_le());
        Ok(())
    }
}

/// The rings' fields in guest memory.
pub(super) struct RingsInRam<'a> {
    rings: &'a Rings,
    memory: &'a GuestRam,
}

impl RingsInRam<'_> {
    /// The ring that a field is in, and where.
    fn place(&self, field: Field) -> (&RingArea, usize) {
        let Rings {
            size,
            available,
            used,
            ..
        } = self.rings;
        match field {
            Field::AvailFlags => (available, 0),
            Field::AvailIndex => (available, INDEX),
            Field::UsedEvent => (available, ELEMENTS + HEAD_BYTES * size),
            Field::UsedFlags => (used, 0),
            Field::UsedIndex => (used, INDEX),
            Field::AvailEvent => (used, ELEMENTS + USED_ELEMENT_BYTES * size),
        }
    }
}

impl Fields for RingsInRam<'_> {
    type Error = GuestMemoryError;

    fn load(&self, field: Field, order: Ordering) -> Result<u16, GuestMemoryError> {
        let (ring, at) = self.place(field);
        load(ring.piece(self.memory)?, at, order)
    }

    fn store(&self, field: Field, value: u16, order: Ordering) -> Result<(), GuestMemoryError> {
        let (ring, at) = self.place(field);
        Ok(ring.piece(self.memory)?.store(value.to_le(), at, order)?)
    }
}

fn load(piece: Piece<'_>, at: usize, order: Ordering) -> Result<u16, GuestMemoryError> {
    Ok(u16::from_le(piece.load(at, order)?))
}

/// An area of RAM, resolved to its region so that an access needs no search by address.
struct RingArea {
    /// Index of the region in guest memory.
    region: usize,
    /// Within the region.
    offset: MemoryRegionAddress,
    bytes: usize,
}

impl RingArea {
    fn find(memory: &GuestRam, address: u64, bytes: usize) -> Option<Self> {
        let address = GuestAddress(address);
        let (region, found) = memory
            .iter()
            .enumerate()
            .find(|(_, region)| region.to_region_addr(address).is_some())?;
        let offset = found.to_region_addr(address)?;
        let place = Self {
            region,
            offset,
            bytes,
        };
        place.piece(memory).is_ok().then_some(place)
    }

    fn piece<'a>(&self, memory: &'a GuestRam) -> Result<Piece<'a>, GuestMemoryError> {
        let region = memory.iter().nth(self.region);
        region
            .ok_or(GuestMemoryError::HostAddressNotAvailable)?
            .get_slice(self.offset, self.bytes)
    }
}

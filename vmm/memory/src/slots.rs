//! Memslots: the numbers and ranges by which KVM knows guest memory.

use vm_memory::{GuestMemoryBackend, GuestMemoryRegion};

use crate::guest_ram::GuestRam;
use crate::layout::{Layout, Window};

/// Most bytes of one memslot. KVM takes a little less than 2^31 pages, 8 TiB
/// (`KVM_MEM_MAX_NR_PAGES`); this is the largest that keeps every size of page aligned.
const MAX_SLOT_BYTES: u64 = 4 << 40;

/// Memslots kept for RAM that is plugged in later.
const HOT_PLUG_SLOTS: u32 = 64;

/// Memslots kept for what a chipset puts over RAM, or where there is none, behind all others.
pub const OVERLAY_SLOTS: u16 = 64;

/// One of the guest-physical address spaces of a VM. vCPUs are in the first; with SMM they are in the
/// second while they serve a system management interrupt (`KVM_CAP_MULTI_ADDRESS_SPACE`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddressSpace {
    /// What all software sees.
    Normal,
    /// What system management mode sees.
    Smm,
}

impl AddressSpace {
    /// KVM's number of it.
    #[must_use]
    pub const fn id(self) -> u16 {
        match self {
            Self::Normal => 0,
            Self::Smm => 1,
        }
    }
}

/// Number of a memslot. Slots of different address spaces may have the same index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotNumber(u32);

impl SlotNumber {
    /// Slot `index` of `space`.
    #[must_use]
    pub const fn new(space: AddressSpace, index: u16) -> Self {
        // Lossless; `From` is not const.
        Self((space.id() as u32) << 16 | index as u32)
    }

    /// As `KVM_SET_USER_MEMORY_REGION` takes it: the address space in bits 16 to 31.
    #[must_use]
    pub const fn to_raw(self) -> u32 {
        self.0
    }
}

/// A range of guest-physical addresses and what is behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memslot {
    /// Number by which KVM knows the slot.
    pub number: SlotNumber,
    /// Guest-physical addresses.
    pub range: Window,
    /// Address in this process.
    pub host_address: u64,
}

/// The memslots that make `ram` visible in `space`, from index 0 on, but for what lies in `hole`,
/// which may be empty. Slots beyond 65536 are left out; see [`slots_needed`].
#[must_use]
pub fn memslots(ram: &GuestRam, space: AddressSpace, hole: Window) -> Vec<Memslot> {
    let pieces = ram.iter().flat_map(|region| {
        let host = region.get_mmap().as_ptr() as u64;
        let range = Window {
            base: region.start_addr().0,
            bytes: region.len(),
        };
        let around = without(range, hole).into_iter().flat_map(pieces);
        around.map(move |piece| (piece, host + (piece.base - range.base)))
    });
    let numbered = (0..=u16::MAX).zip(pieces);
    numbered
        .map(|(index, (range, host_address))| Memslot {
            number: SlotNumber::new(space, index),
            range,
            host_address,
        })
        .collect()
}

/// How many memslots a guest of this layout ever needs in one address space: those of its RAM, and
/// those behind them that are kept for RAM to come.
#[must_use]
pub fn slots_needed(layout: &Layout) -> u32 {
    let now = layout.ram().flat_map(pieces).fold(0u32, |n, _| n + 1);
    if layout.hot_plug().bytes == 0 {
        return now;
    }
    now + HOT_PLUG_SLOTS
}

/// What `hole` leaves of `range`.
fn without(range: Window, hole: Window) -> [Window; 2] {
    let between = |base: u64, end: u64| Window {
        base,
        bytes: end.saturating_sub(base),
    };
    [
        between(range.base, range.end().min(hole.base.max(range.base))),
        between(range.base.max(hole.end().min(range.end())), range.end()),
    ]
}

/// A range in parts that a memslot can hold.
fn pieces(range: Window) -> impl Iterator<Item = Window> {
    let mut base = range.base;
    std::iter::from_fn(move || {
        let bytes = range.end().saturating_sub(base).min(MAX_SLOT_BYTES);
        let piece = Window { base, bytes };
        base += bytes;
        (bytes > 0).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::create_ram;

    #[test]
    fn spaces_have_slots_of_their_own() {
        assert_eq!(SlotNumber::new(AddressSpace::Normal, 3).to_raw(), 3);
        assert_eq!(SlotNumber::new(AddressSpace::Smm, 3).to_raw(), 0x1_0003);
    }

    #[test]
    fn ram_on_both_sides_of_the_hole_has_two_slots_and_memory_to_come_has_room() {
        let layout = Layout::with_max(3 << 30, 4 << 30, 40).unwrap();
        let ram = create_ram(&layout).unwrap();
        let nothing = Window { base: 0, bytes: 0 };
        let slots = memslots(&ram, AddressSpace::Normal, nothing);
        let numbers: Vec<u32> = slots.iter().map(|slot| slot.number.to_raw()).collect();
        assert_eq!(numbers, [0, 1]);
        let ranges: Vec<Window> = slots.iter().map(|slot| slot.range).collect();
        assert_eq!(ranges, layout.ram().collect::<Vec<_>>());
        assert_eq!(slots_needed(&layout), 2 + HOT_PLUG_SLOTS);
        assert_eq!(slots_needed(&Layout::new(3 << 30, 40).unwrap()), 2);
    }

    #[test]
    fn a_hole_takes_its_range_and_nothing_else_out_of_ram() {
        let layout = Layout::new(3 << 30, 40).unwrap();
        let ram = create_ram(&layout).unwrap();
        let hole = Window {
            base: 0xa_0000,
            bytes: 0x6_0000,
        };
        let slots = memslots(&ram, AddressSpace::Normal, hole);
        let ranges: Vec<_> = slots
            .iter()
            .map(|slot| (slot.range.base, slot.range.end()))
            .collect();
        assert_eq!(
            ranges,
            [(0, 0xa_0000), (0x10_0000, 2 << 30), (4 << 30, 5 << 30)]
        );
        let host: Vec<_> = slots
            .iter()
            .map(|slot| slot.host_address - slots[0].host_address)
            .collect();
        assert_eq!(host[1], 0x10_0000);
        // Less RAM than the hole begins at, and less than it ends at.
        for (bytes, left) in [(0x8_0000, 0x8_0000), (0xb_0000, 0xa_0000)] {
            let ram = create_ram(&Layout::new(bytes, 40).unwrap()).unwrap();
            let slots = memslots(&ram, AddressSpace::Normal, hole);
            assert_eq!(slots.len(), 1);
            assert_eq!(
                slots[0].range,
                Window {
                    base: 0,
                    bytes: left
                }
            );
        }
    }

    proptest! {
        #[test]
        fn pieces_are_whole_and_none_is_too_large(base in 0u64..1 << 40, bytes in 0u64..1 << 50) {
            let mut at = base;
            for piece in pieces(Window { base, bytes }) {
                prop_assert_eq!(piece.base, at);
                prop_assert!((1..=MAX_SLOT_BYTES).contains(&piece.bytes));
                at = piece.end();
            }
            prop_assert_eq!(at, base + bytes);
        }
    }
}

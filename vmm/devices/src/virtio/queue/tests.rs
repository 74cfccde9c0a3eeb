use super::notifications::FAR_AHEAD;
use super::*;
use crate::pci::function::PciFunction as _;
use crate::virtio::rng::RngDevice;
use crate::virtio::testing::{
    BUFFERS, Desc, Driver, INDIRECT, NEXT, RAM_BYTES, WRITE, mad_descriptors, read, write,
};
use crate::virtio::transport::{EVENT_IDX, INDIRECT_DESC, VERSION_1};
use proptest::prelude::*;

const SIZE: u16 = 16;
const TABLE: u64 = BUFFERS + 0x1_0000;

fn driver() -> Driver {
    Driver::ready(
        Box::new(RngDevice::new()),
        SIZE,
        VERSION_1 | INDIRECT_DESC | EVENT_IDX,
    )
}

/// Offers the descriptors as they stand, heads at 0, and expects the end of the device.
fn breaks(descriptors: &[Desc]) {
    let mut driver = driver();
    for (index, descriptor) in (0..).zip(descriptors) {
        driver.put_descriptor(0, index, *descriptor);
    }
    driver.offer_head(0, 0);
    driver.kick(0);
    assert!(driver.needs_reset(), "{descriptors:x?}");
    assert_eq!(driver.used(0), None);
    assert_eq!(driver.msi.raised(0), 1, "no configuration interrupt");

    // A reset makes it usable again.
    driver.set_status(0);
    driver.start(SIZE, VERSION_1);
    driver.offer(0, &[write(BUFFERS, 8)]);
    driver.kick(0);
    assert_eq!(driver.used(0), Some((0, 8)));
}

fn linked(descriptor: Desc, next: u16) -> Desc {
    Desc {
        flags: descriptor.flags | NEXT,
        next,
        ..descriptor
    }
}

fn indirect(address: u64, bytes: u32) -> Desc {
    Desc {
        flags: INDIRECT,
        ..read(address, bytes)
    }
}

#[test]
fn a_chain_that_loops_ends_the_device() {
    let looped = [linked(write(BUFFERS, 8), 1), linked(write(BUFFERS, 8), 0)];
    breaks(&looped);
    breaks(&[linked(write(BUFFERS, 8), 0)]);
}

#[test]
fn a_chain_that_leaves_its_table_ends_the_device() {
    breaks(&[linked(write(BUFFERS, 8), SIZE)]);
    breaks(&[linked(write(BUFFERS, 8), u16::MAX)]);
}

#[test]
fn a_chain_longer_than_4_gib_ends_the_device() {
    let huge = write(0, u32::MAX);
    breaks(&[linked(huge, 1), linked(huge, 2), huge]);
}

#[test]
fn readable_after_writable_ends_the_device() {
    breaks(&[linked(write(BUFFERS, 8), 1), read(BUFFERS, 8)]);
}

#[test]
fn broken_indirect_tables_end_the_device() {
    breaks(&[indirect(RAM_BYTES as u64, 16)]);
    breaks(&[indirect(u64::MAX - 15, 32)]);
    breaks(&[indirect(TABLE, 15)]);
    breaks(&[indirect(TABLE, 0)]);
    breaks(&[indirect(TABLE, u32::MAX - 15)]);
    breaks(&[indirect(TABLE, 16 * 65_536)]);
}

#[test]
fn an_indirect_table_within_another_ends_the_device() {
    let mut driver = driver();
    driver.put_descriptor_at(TABLE, indirect(TABLE, 16));
    driver.put_descriptor(0, 0, indirect(TABLE, 16));
    driver.offer_head(0, 0);
    driver.kick(0);
    assert!(driver.needs_reset());
}

#[test]
fn an_indirect_chain_may_be_longer_than_the_ring_but_not_without_limit() {
    for (count, fine) in [(100u32, true), (1024, true), (1025, false)] {
        let mut driver = driver();
        for index in 0..count {
            let last = index + 1 == count;
            let entry = Desc {
                address: BUFFERS,
                bytes: 1,
                flags: WRITE | if last { 0 } else { NEXT },
                next: u16::try_from(index + 1).unwrap(),
            };
            driver.put_descriptor_at(TABLE + u64::from(index) * 16, entry);
        }
        driver.put_descriptor(0, 0, indirect(TABLE, count * 16));
        driver.offer_head(0, 0);
        driver.kick(0);
        assert_eq!(driver.needs_reset(), !fine, "{count}");
        assert_eq!(driver.used(0), fine.then_some((0, count)));
    }
}

#[test]
fn a_head_outside_of_the_table_ends_the_device() {
    let mut driver = driver();
    driver.offer_head(0, SIZE);
    driver.kick(0);
    assert!(driver.needs_reset());
}

#[test]
fn an_available_index_that_jumps_ends_the_device() {
    let mut driver = driver();
    let avail = driver.rings(0) + 0x4000;
    driver.fill(avail + 2, &(SIZE + 1).to_le_bytes());
    driver.kick(0);
    assert!(driver.needs_reset());
}

#[test]
fn the_driver_is_called_only_when_it_wants_to_be() {
    let mut driver = Driver::ready(Box::new(RngDevice::new()), SIZE, VERSION_1);
    let avail = driver.rings(0) + 0x4000;
    driver.fill(avail, &1u16.to_le_bytes());
    driver.offer(0, &[write(BUFFERS, 8)]);
    driver.kick(0);
    assert_eq!((driver.used(0), driver.calls(0)), (Some((0, 8)), 0));
    driver.fill(avail, &0u16.to_le_bytes());
    driver.offer(0, &[write(BUFFERS, 8)]);
    driver.kick(0);
    assert_eq!(driver.calls(0), 1);
}

#[test]
fn with_event_index_the_driver_is_called_at_the_element_it_names() {
    let mut driver = driver();
    let used_event = driver.rings(0) + 0x4000 + 4 + 2 * u64::from(SIZE);
    driver.fill(used_event, &2u16.to_le_bytes());
    for expected in [0, 0, 1, 0] {
        driver.offer(0, &[write(BUFFERS, 8)]);
        driver.kick(0);
        assert_eq!(driver.calls(0), expected);
    }
    let avail_event = driver.rings(0) + 0x6000 + 4 + 8 * u64::from(SIZE);
    assert_eq!(driver.bytes(avail_event, 2), 4u16.to_le_bytes());
}

#[test]
fn with_event_index_a_device_at_work_names_an_element_far_away() {
    let mut driver = driver();
    let avail_event = driver.rings(0) + 0x6000 + 4 + 8 * u64::from(SIZE);
    // As many bytes as end a turn, and one chain for the next.
    for _ in 0..5 {
        driver.offer(0, &[write(BUFFERS, 64 << 10)]);
    }
    driver.ring_kick(0);
    driver.function.handle_event(0);
    assert_eq!(driver.bytes(avail_event, 2), FAR_AHEAD.to_le_bytes());
    driver.settle();
    assert_eq!(driver.bytes(avail_event, 2), 5u16.to_le_bytes());
}

proptest! {
    #[test]
    fn a_window_is_the_slice_of_the_concatenation(
        lengths in prop::collection::vec(0u32..50, 0..8),
        skip in 0u64..300,
        count in 0u64..300,
    ) {
        let mut buffers = Vec::new();
        let mut addresses = Vec::new();
        for (index, bytes) in (0u64..).zip(lengths) {
            buffers.push(Buffer { address: index * 1000, bytes });
            addresses.extend((0..u64::from(bytes)).map(|at| index * 1000 + at));
        }
        let windowed: Vec<u64> = window(&buffers, skip, count)
            .flat_map(|b| (0..u64::from(b.bytes)).map(move |at| b.address + at))
            .collect();
        let expected: Vec<u64> = addresses
            .into_iter()
            .skip(usize::try_from(skip).unwrap())
            .take(usize::try_from(count).unwrap())
            .collect();
        prop_assert_eq!(windowed, expected);
    }

    /// Whatever stands in table and ring, the device comes to rest and does not panic.
    #[test]
    fn random_descriptors_do_no_harm(
        table in mad_descriptors(),
        heads in prop::collection::vec(0u16..18, 1..8),
    ) {
        driver().go_mad(0, &table, &heads);
    }
}

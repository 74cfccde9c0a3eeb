//! Guests that mean harm: they reach their own memory only, and the device stays in bounds.

use super::*;
use crate::virtio::testing::{Desc, INDIRECT, mad_descriptors};

#[test]
fn numbers_that_are_no_ram_are_acknowledged_and_do_nothing() {
    let mut bench = bench();
    bench.touch_all();
    let before = bench.allocated_bytes();
    let end = number(RAM_BYTES as u64 / PAGE);
    bench.inflate(&[
        end,
        end + 1,
        0xb_0000,
        0xf_ec00,
        0xf_ee00,
        u32::MAX,
        u32::MAX,
    ]);
    assert_eq!(bench.allocated_bytes(), before);
    assert_eq!(bench.control.released_bytes(), 0);
    assert!(!bench.driver.needs_reset());
}

#[test]
fn a_page_that_is_named_many_times_is_given_back_once() {
    let mut bench = bench();
    bench.touch_all();
    bench.inflate(&[number(FIRST_PAGE); 1000]);
    assert_eq!(bench.control.released_bytes(), PAGE);
    bench.inflate(&[number(FIRST_PAGE); 2]);
    assert!(bench.is_zero(FIRST_PAGE));
}

#[test]
fn more_numbers_than_any_driver_sends_are_cut() {
    let mut bench = bench();
    bench.touch_all();
    // A chain over all of RAM, of which the first buffer names pages.
    let numbers: Vec<u32> = (0..256).map(|n| number(FIRST_PAGE + n)).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|n| n.to_le_bytes()).collect();
    bench.driver.fill(NUMBERS, &bytes);
    let buffers = vec![read(NUMBERS, 1024); 100];
    bench.driver.offer(0, &buffers);
    bench.driver.kick(0);
    assert_eq!(bench.driver.used(0), Some((0, 0)));
    assert_eq!(bench.control.released_bytes(), 256 * PAGE);

    bench.driver.offer(0, &[read(NUMBERS, 0x20_0000)]);
    bench.driver.kick(0);
    assert!(bench.driver.used(0).is_some());
    // Numbers that are cut in the middle, and none at all.
    for bytes in [3, 1] {
        bench.driver.offer(0, &[read(NUMBERS, bytes)]);
    }
    bench.driver.offer(0, &[write(NUMBERS, 64)]);
    bench.driver.kick(0);
    assert_eq!((0..9).filter_map(|_| bench.driver.used(0)).count(), 3);
    assert!(!bench.driver.needs_reset());
}

#[test]
fn reports_beyond_ram_give_back_what_is_ram() {
    let mut bench = bench();
    bench.touch_all();
    let last = RAM_BYTES as u64 - PAGE;
    let before = bench.allocated_bytes();
    bench.driver.offer(
        4,
        &[
            write(u64::MAX - 4095, 0x1000),
            write(u64::MAX - 8191, 0x10_0000),
            write(0xfec0_0000, 0x1000),
            write(last, 0x1000_0000),
            write(FIRST_PAGE * PAGE + 1, 0x1fff),
        ],
    );
    bench.driver.kick(4);
    assert_eq!(bench.driver.used(4), Some((0, 0)));
    // The last range came after more bytes than are given back of one report.
    assert_eq!(before - bench.allocated_bytes(), PAGE);
    bench
        .driver
        .offer(4, &[write(FIRST_PAGE * PAGE + 1, 0x1fff)]);
    bench.driver.kick(4);
    assert_eq!(before - bench.allocated_bytes(), 2 * PAGE);
    assert!(!bench.is_zero(FIRST_PAGE) && bench.is_zero(FIRST_PAGE + 1));
}

#[test]
fn a_guest_that_gives_its_own_rings_away_harms_itself_only() {
    let mut bench = bench();
    bench.touch_all();
    let ring = bench.driver.rings(0);
    let numbers: Vec<u32> = (0..8).map(|n| number(ring / PAGE + n)).collect();
    bench.offer(0, &numbers);
    bench.driver.kick(0);
    // The rings are empty now, and the index that the driver writes next is wrong or not.
    bench.offer(0, &[number(FIRST_PAGE)]);
    bench.driver.kick(0);
    bench.driver.program_anew(128);
    assert!(!bench.driver.needs_reset());
    bench.inflate(&[number(FIRST_PAGE)]);
    assert!(bench.is_zero(FIRST_PAGE));
}

#[test]
fn other_fields_and_odd_sizes_of_the_configuration_are_left_alone() {
    let mut bench = bench();
    bench.control.set_target(0x4000).unwrap();
    let function = &mut bench.driver.function;
    for (offset, data) in [
        (0, &[0xff; 4][..]),
        (3, &[0xff; 4]),
        (4, &[0xff; 2]),
        (4, &[0xff; 8]),
        (5, &[0xff]),
        (8, &[0xff; 4]),
        (12, &[0xff; 4]),
        (0xffc, &[0xff; 4]),
    ] {
        function.bar_write(0, CONFIG + offset, data);
    }
    assert_eq!((bench.config_u32(0), bench.config_u32(4)), (4, 0));
    assert_eq!((bench.config_u32(8), bench.config_u32(12)), (0, 0));
    // A driver may report anything.
    let function = &mut bench.driver.function;
    function.bar_write(0, CONFIG + 4, &[0xff; 4]);
    assert_eq!(bench.control.size().actual_bytes, RAM_BYTES as u64);
}

proptest! {
    #[test]
    fn a_driver_gone_mad_ends_its_device_at_most(
        queue in 0usize..5, table in mad_descriptors(), heads in prop::collection::vec(0u16..20, 1..20),
    ) {
        let mut bench = bench();
        bench.driver.go_mad(queue, &table, &heads);
        bench.control.refresh_stats();
        bench.driver.settle_own(0);
    }

    #[test]
    fn indirect_tables_gone_mad_end_the_device_at_most(
        queue in 0usize..5, table in mad_descriptors(), bytes in 0u32..0x10_0010,
    ) {
        let mut bench = bench();
        for (index, descriptor) in (0u64..).zip(&table) {
            bench.driver.put_descriptor_at(NUMBERS + index * 16, *descriptor);
        }
        let indirect = Desc { flags: INDIRECT, ..read(NUMBERS, bytes) };
        bench.driver.go_mad(queue, &[indirect], &[0]);
    }
}

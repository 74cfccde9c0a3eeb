use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;

use proptest::prelude::*;
use vm_memory::{Bytes, GuestAddress};

use super::*;
use crate::{Layout, create_ram, start_dirty_log, take_dirty_log};

const PAGE: u64 = DIRTY_PAGE_BYTES;
const RAM_BYTES: u64 = 4 << 20;

fn ram(bytes: u64) -> GuestRam {
    create_ram(&Layout::new(bytes, 40).unwrap()).unwrap()
}

fn allocated_bytes(ram: &GuestRam) -> u64 {
    let region = ram.iter().next().unwrap();
    let memfd = region.file_offset().unwrap().file();
    memfd.metadata().unwrap().blocks() * 512
}

fn dirty_pages(ram: &GuestRam) -> Vec<u64> {
    let mut pages = Vec::new();
    for region in take_dirty_log(ram) {
        for (index, word) in (0u64..).zip(&region.words) {
            let bits = (0..64).filter(|bit| word >> bit & 1 != 0);
            pages.extend(bits.map(|bit| region.base / PAGE + index * 64 + bit));
        }
    }
    pages
}

#[test]
fn what_is_given_back_is_zero_and_costs_nothing_and_the_rest_stays() {
    let ram = ram(RAM_BYTES);
    ram.write_slice(&vec![0xff; 4 << 20], GuestAddress(0))
        .unwrap();
    assert_eq!(allocated_bytes(&ram), RAM_BYTES);
    let range = Window {
        base: 1 << 20,
        bytes: 2 << 20,
    };
    assert_eq!(release(&ram, range).unwrap(), 2 << 20);
    assert_eq!(allocated_bytes(&ram), 2 << 20);
    let byte = |address| ram.read_obj::<u8>(GuestAddress(address)).unwrap();
    assert_eq!([byte((1 << 20) - 1), byte(3 << 20)], [0xff; 2]);
    assert_eq!([byte(1 << 20), byte((3 << 20) - 1)], [0; 2]);
}

#[test]
fn a_range_over_the_hole_gives_back_what_is_ram_on_both_sides() {
    let ram = ram(3 << 30);
    let (low, high) = ((2 << 30) - 4096u64, 4u64 << 30);
    for address in [low, high, high + PAGE] {
        ram.write_obj(1u8, GuestAddress(address)).unwrap();
    }
    let range = Window {
        base: low,
        bytes: high + PAGE - low,
    };
    assert_eq!(release(&ram, range).unwrap(), 2 * PAGE);
    let byte = |address| ram.read_obj::<u8>(GuestAddress(address)).unwrap();
    assert_eq!([byte(low), byte(high), byte(high + PAGE)], [0, 0, 1]);
}

#[test]
fn what_is_given_back_is_in_the_dirty_log() {
    let ram = ram(RAM_BYTES);
    ram.write_slice(&[1; 0x8000], GuestAddress(0)).unwrap();
    start_dirty_log(&ram);
    let range = Window {
        base: 0x2800,
        bytes: 0x3000,
    };
    assert_eq!(release(&ram, range).unwrap(), 2 * PAGE);
    assert_eq!(dirty_pages(&ram), [3, 4]);
}

#[test]
fn ranges_that_are_no_ram_are_left_alone() {
    let ram = ram(RAM_BYTES);
    start_dirty_log(&ram);
    for (base, bytes) in [
        (RAM_BYTES, PAGE),
        (0xfec0_0000, PAGE),
        (u64::MAX - 10, u64::MAX),
        (u64::MAX, 1),
        (0, 0),
        (RAM_BYTES - 1, 1),
        (1, PAGE),
    ] {
        let range = Window { base, bytes };
        assert_eq!(release(&ram, range).unwrap(), 0, "{range:?}");
    }
    assert!(dirty_pages(&ram).is_empty());
    let beyond = Window {
        base: RAM_BYTES - PAGE,
        bytes: u64::MAX,
    };
    assert_eq!(release(&ram, beyond).unwrap(), PAGE);
}

proptest! {
    #[test]
    fn runs_hold_each_page_once_and_do_not_touch(
        numbers in prop::collection::vec(prop_oneof![0u32..40, any::<u32>(), u32::MAX - 3..=u32::MAX], 0..60),
    ) {
        let wanted: BTreeSet<u64> = numbers.iter().copied().map(u64::from).collect();
        let mut sorted = numbers;
        let runs: Vec<Window> = page_runs(&mut sorted).collect();
        let pages: Vec<u64> = runs
            .iter()
            .flat_map(|run| run.base / PAGE..run.end() / PAGE)
            .collect();
        prop_assert_eq!(pages, wanted.into_iter().collect::<Vec<_>>());
        for pair in runs.windows(2) {
            prop_assert!(pair[0].end() < pair[1].base);
        }
    }

    #[test]
    fn whole_pages_lie_within_and_no_other_would(
        from in any::<u64>(), to in any::<u64>(), shift in 12u32..31,
    ) {
        let page_bytes = 1u64 << shift;
        match whole_pages(from, to, page_bytes) {
            Some(Window { base, bytes }) => {
                prop_assert!(base.is_multiple_of(page_bytes) && bytes.is_multiple_of(page_bytes));
                prop_assert!(from <= base && base - from < page_bytes);
                prop_assert!(base + bytes <= to && to - (base + bytes) < page_bytes);
            }
            None => {
                let next = from.checked_next_multiple_of(page_bytes);
                let end = next.and_then(|page| page.checked_add(page_bytes));
                prop_assert!(end.is_none_or(|end| end > to));
            }
        }
    }
}

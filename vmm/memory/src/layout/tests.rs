use proptest::prelude::*;

use super::*;

const GIB: u64 = 1 << 30;

/// All that must hold of every layout.
fn check(layout: &Layout, ram_bytes: u64, max_bytes: u64, bits: u8) -> Result<(), TestCaseError> {
    prop_assert_eq!(layout.ram().map(|w| w.bytes).sum::<u64>(), ram_bytes);
    let ecam = Window {
        base: ECAM_BASE,
        bytes: ECAM_BYTES,
    };
    let chips = Window {
        base: MMIO32_END,
        bytes: HIGH_RAM_BASE - MMIO32_END,
    };
    let ascending = [
        layout.low_ram(),
        ecam,
        layout.mmio32(),
        chips,
        layout.high_ram(),
        layout.hot_plug(),
        layout.mmio64(),
    ];
    prop_assert!(
        ascending
            .windows(2)
            .all(|pair| pair[0].end() <= pair[1].base)
    );
    for window in ascending {
        prop_assert!(window.bytes == 0 || window.end() <= 1 << bits, "{window:?}");
    }
    let hot_plug = layout.hot_plug();
    prop_assert!(hot_plug.bytes >= max_bytes - ram_bytes);
    if hot_plug.bytes > 0 {
        prop_assert!(hot_plug.bytes - (max_bytes - ram_bytes) < HOT_PLUG_ALIGN);
        prop_assert_eq!(hot_plug.base % HOT_PLUG_ALIGN, 0);
        prop_assert_eq!(hot_plug.bytes % HOT_PLUG_ALIGN, 0);
    }
    prop_assert_eq!(layout.mmio64().base % MMIO64_ALIGN, 0);
    Ok(())
}

proptest! {
    #[test]
    fn nothing_overlaps_and_all_ram_is_there(
        pages in 1u64..1 << 28, more in 0u64..1 << 28, bits in 32u8..=52,
    ) {
        let ram_bytes = pages * PAGE_BYTES;
        let max_bytes = ram_bytes + more * PAGE_BYTES;
        match Layout::with_max(ram_bytes, max_bytes, bits) {
            Ok(layout) => check(&layout, ram_bytes, max_bytes, bits)?,
            Err(LayoutError::TooLarge { .. }) => {
                prop_assert!(ram_bytes + HIGH_RAM_BASE - LOW_RAM_MAX > 1 << bits);
            }
            // Up to an alignment is lost at either end.
            Err(LayoutError::MaxTooLarge { .. }) => {
                prop_assert!(max_bytes + HIGH_RAM_BASE + 2 * HOT_PLUG_ALIGN > 1 << bits);
                prop_assert!(more > 0);
            }
            Err(error) => return Err(TestCaseError::fail(error.to_string())),
        }
    }

    #[test]
    fn huge_pages_are_never_cut(
        pages in 1u64..4096, more in 0u64..4096, page in prop::sample::select(vec![2u64 << 20, GIB]),
    ) {
        let layout = Layout::with_max(pages * page, (pages + more) * page, 52).unwrap();
        for window in layout.ram().chain([layout.hot_plug()]) {
            prop_assert_eq!((window.base % page, window.bytes % page), (0, 0));
        }
    }

    #[test]
    fn shares_are_dealt_whole_in_order_and_within_ram(
        sizes in prop::collection::vec(1u64..3 << 10, 1..20), spare in 0u64..1024,
    ) {
        const UNIT: u64 = 2 << 20;
        let total: u64 = sizes.iter().sum::<u64>() + spare;
        let layout = Layout::new(total * UNIT, 48).unwrap();
        let dealt = layout.deal(sizes.iter().map(|units| units * UNIT));
        for (share, units) in sizes.iter().enumerate() {
            let ranges = dealt.iter().filter(|(number, _)| *number == share);
            prop_assert_eq!(ranges.map(|(_, range)| range.bytes).sum::<u64>(), units * UNIT);
        }
        let ascending = dealt
            .windows(2)
            .all(|pair| pair[0].0 <= pair[1].0 && pair[0].1.end() <= pair[1].1.base);
        prop_assert!(ascending);
        for (_, range) in dealt {
            prop_assert!(range.bytes > 0 && range.bytes % UNIT == 0);
            prop_assert!(layout.ram().any(|window| window.contains(range.base, range.bytes)));
        }
    }
}

#[test]
fn ram_must_be_whole_pages() {
    assert_eq!(Layout::new(0, 40), Err(LayoutError::NotPages(0)));
    assert_eq!(Layout::new(4097, 40), Err(LayoutError::NotPages(4097)));
    assert_eq!(
        Layout::with_max(4096, 8191, 40),
        Err(LayoutError::NotPages(8191))
    );
}

#[test]
fn absurd_sizes_are_refused() {
    let ram_bytes = u64::MAX - 4095;
    assert!(matches!(
        Layout::new(ram_bytes, 52),
        Err(LayoutError::TooLarge { .. })
    ));
    let max_too_large = Layout::with_max(4096, ram_bytes, 52).unwrap_err();
    assert!(max_too_large.is_of_max());
    let max_too_small = Layout::with_max(2 * GIB, GIB, 52).unwrap_err();
    assert!(max_too_small.is_of_max());
}

#[test]
fn a_guest_that_may_grow_keeps_the_hole_and_has_its_bars_above() {
    let layout = Layout::with_max(3 * GIB, 5 * GIB + (512 << 20), 40).unwrap();
    let window = |base, bytes| Window { base, bytes };
    assert_eq!(layout.high_ram(), window(4 * GIB, GIB));
    assert_eq!(layout.hot_plug(), window(5 * GIB, 3 * GIB));
    assert_eq!(layout.mmio64(), window(8 * GIB, 32 * GIB));
    // Even one that is small enough to stay below.
    let layout = Layout::with_max(512 << 20, GIB, 40).unwrap();
    assert_eq!(layout.hot_plug(), window(4 * GIB, GIB));
    assert_eq!(layout.mmio64().base, 5 * GIB);
}

#[test]
fn a_share_on_both_sides_of_the_hole_has_two_ranges() {
    let layout = Layout::new(4 * GIB, 40).unwrap();
    let window = |base, bytes| Window { base, bytes };
    assert_eq!(
        layout.deal([GIB, 3 * GIB]),
        [
            (0, window(0, GIB)),
            (1, window(GIB, GIB)),
            (1, window(4 * GIB, 2 * GIB)),
        ]
    );
}

#[test]
fn firmware_has_all_addresses_that_ram_leaves() {
    let layout = Layout::new(3 * GIB, 40).unwrap().with_open_windows();
    assert_eq!(layout.mmio32().base, layout.low_ram().end());
    assert_eq!(layout.mmio32().end(), MMIO32_END);
    assert_eq!(layout.mmio64().base, 5 * GIB);
    assert_eq!(layout.mmio64().end(), 1 << 40);
}

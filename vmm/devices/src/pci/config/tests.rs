use super::*;
use proptest::prelude::*;

fn space() -> ConfigSpace {
    let mut space = ConfigSpace::new(PciIdentity {
        vendor: 0x1af4,
        device: 0x1042,
        revision: 1,
        class: 0x01_0000,
        subsystem_vendor: 0x1af4,
        subsystem: 0x1100,
    });
    space.add_bar(0, 0x8000, BarKind::Memory64).unwrap();
    space.add_bar(4, 0x1000, BarKind::Memory32).unwrap();
    space
}

#[test]
fn a_64_bit_bar_is_sized_the_way_drivers_do() {
    let mut space = space();
    space.write(0x10, &[0xff; 4]);
    space.write(0x14, &[0xff; 4]);
    assert_eq!(space.u32_at(0x10), 0xffff_8004);
    assert_eq!(space.u32_at(0x14), 0xffff_ffff);
    space.write(0x20, &[0xff; 4]);
    assert_eq!(space.u32_at(0x20), 0xffff_f000);
    // BARs that do not exist read as zero whatever is written.
    space.write(0x18, &[0xff; 4]);
    assert_eq!(space.u32_at(0x18), 0);
}

#[test]
fn a_bar_is_decoded_only_while_command_says_so() {
    let mut space = space();
    space.set_bar(0, 0x12_3456_8000);
    assert!(!space.bars()[0].decoded);
    space.write(0x04, &[0x06, 0x00]);
    let bar = space.bars()[0];
    assert_eq!(
        (bar.base, bar.size, bar.decoded),
        (0x12_3456_8000, 0x8000, true)
    );
    space.reset();
    assert_eq!((space.bars()[0].base, space.bars()[0].decoded), (0, false));
}

#[test]
fn identity_and_status_cannot_be_overwritten() {
    let mut space = space();
    let offset = space.add_capability(0x11, &[1, 2, 3], &[0, 0xf0]).unwrap();
    for at in 0..SPACE_BYTES {
        if !(0x10..0x28).contains(&at) {
            space.write(u16::try_from(at).unwrap(), &[0xff]);
        }
    }
    assert_eq!(space.u32_at(0x00), 0x1042_1af4);
    assert_eq!(space.u32_at(0x08), 0x0100_0001);
    assert_eq!(space.u32_at(0x2c), 0x1100_1af4);
    assert_eq!(space.u16_at(0x06), 0x10);
    assert_eq!(space.u16_at(0x34), offset);
    assert_eq!(space.u32_at(offset), 0xf201_0011);
}

#[test]
fn capabilities_are_chained_and_end() {
    let mut space = space();
    let first = space.add_capability(0x11, &[0; 10], &[]).unwrap();
    let second = space.add_capability(0x09, &[0; 3], &[]).unwrap();
    let mut next = [0];
    space.read(first + 1, &mut next);
    assert_eq!(u16::from(next[0]), second);
    space.read(second + 1, &mut next);
    assert_eq!(next[0], 0);
    assert_eq!(
        space.add_capability(0x09, &[0; 254], &[]),
        Err(LayoutError::CapabilitySpace { id: 0x09 })
    );
}

#[test]
fn bars_that_cannot_be_are_refused() {
    let mut space = space();
    for (index, size, kind) in [
        (1, 0x1000, BarKind::Memory32),
        (5, 0x1000, BarKind::Memory64),
        (3, 0x1000, BarKind::Memory64),
        (2, 0x1800, BarKind::Memory32),
        (2, 0x800, BarKind::Memory32),
        (2, 1 << 32, BarKind::Memory32),
        (6, 0x1000, BarKind::Memory32),
    ] {
        assert!(
            space.add_bar(index, size, kind).is_err(),
            "{index} {size:#x}"
        );
    }
}

/// As a driver learns a size (PCI 3.0, 6.2.5.1), for all sizes that there are.
#[test]
fn every_size_is_found_and_every_base_is_kept() {
    for (kind, most) in [(BarKind::Memory32, 31), (BarKind::Memory64, 62)] {
        for bits in 12..=most {
            let size = 1u64 << bits;
            let mut space = ConfigSpace::new(PciIdentity {
                vendor: 1,
                device: 2,
                revision: 0,
                class: 0,
                subsystem_vendor: 0,
                subsystem: 0,
            });
            space.add_bar(2, size, kind).unwrap();
            let width = if kind == BarKind::Memory64 { 8 } else { 4 };
            space.write(0x18, &[0xff; 8][..width]);
            let mut ones = [0xff; 8];
            space.read(0x18, &mut ones[..width]);
            let found = (!(u64::from_le_bytes(ones) & !0xf)).wrapping_add(1);
            assert_eq!(found, size, "{kind:?}");
            for base in [0, size, u64::MAX / 3] {
                space.set_bar(2, base);
                let window = space.bars()[0];
                let kept = if width == 8 { base } else { base & 0xffff_ffff };
                assert_eq!(window.base, kept & !(size - 1), "{kind:?} {size:#x}");
                assert_eq!((window.index, window.size), (2, size));
            }
        }
    }
}

proptest! {
    /// Any width at any offset writes what byte writes would.
    #[test]
    fn wide_accesses_equal_byte_accesses(
        writes in prop::collection::vec((0u16..4096, prop::collection::vec(any::<u8>(), 0..9)), 0..40)
    ) {
        let (mut wide, mut narrow) = (space(), space());
        for (offset, data) in writes {
            wide.write(offset, &data);
            for (at, byte) in (offset..).zip(&data) {
                narrow.write(at, &[*byte]);
            }
        }
        prop_assert_eq!(wide.bytes, narrow.bytes);
        for bar in wide.bars() {
            prop_assert_eq!(bar.base % bar.size, 0);
            prop_assert!(bar.kind == BarKind::Memory64 || bar.base < 1 << 32);
        }
    }
}

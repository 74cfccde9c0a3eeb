use proptest::prelude::*;

use super::*;
use crate::pci::msi::MsiMessage;
use crate::pci::msi::testing::RecordingMsi;

const MIB: u64 = 1 << 20;

fn port(is_occupied: bool) -> RootPort {
    RootPort::new(3, is_occupied, RecordingMsi::new()).unwrap()
}

fn read(port: &mut RootPort, at: u16) -> u32 {
    let mut data = [0; 4];
    port.config_read(at, &mut data);
    u32::from_le_bytes(data)
}

/// Whether what is forwarded has changed.
fn write(port: &mut RootPort, at: u16, data: &[u8]) -> bool {
    port.config_write(at, data).bars_changed
}

fn write16(port: &mut RootPort, at: u16, value: u16) -> bool {
    write(port, at, &value.to_le_bytes())
}

/// The offset of a capability, found as a driver finds it.
fn capability(port: &mut RootPort, id: u8) -> u16 {
    let [mut at, ..] = read(port, 0x34).to_le_bytes();
    while at != 0 {
        let [found, next, ..] = read(port, u16::from(at)).to_le_bytes();
        if found == id {
            return u16::from(at);
        }
        at = next;
    }
    panic!("no capability {id:#x}");
}

fn program(port: &mut RootPort) {
    let window = |base, bytes| BridgeWindow {
        base,
        last: base + bytes - 1,
    };
    let buses = BusNumbers {
        primary: 0,
        secondary: 7,
        subordinate: 7,
    };
    port.set_routing(
        buses,
        window(0xc020_0000, 2 * MIB),
        window(0x9_4000_0000, 256 * MIB),
    );
}

#[test]
fn guests_find_a_bridge_of_type_1_with_a_slot_that_can_be_hot_plugged() {
    let mut port = port(true);
    assert_eq!(read(&mut port, 0x00), 0x000c_1b36);
    assert_eq!(read(&mut port, 0x08) >> 8, 0x06_0400);
    assert_eq!(read(&mut port, 0x0c) >> 16 & 0xff, 1);
    let express = capability(&mut port, 0x10);
    // Version 2, root port, slot implemented.
    assert_eq!(read(&mut port, express) >> 16, 0x142);
    // Port number, reports link activity.
    assert_eq!(read(&mut port, express + 0x0c), 3 << 24 | 1 << 20 | 0x11);
    // Hot-plug capable, slot number 0.
    let slot = read(&mut port, express + 0x14);
    assert_eq!((slot >> 6 & 1, slot >> 19), (1, 0));
    assert_eq!(read(&mut port, express + 0x10) >> 29 & 1, 1, "link active");
    assert_eq!(read(&mut port, express + 0x18) >> 22 & 1, 1, "present");
    // No I/O window, no INTx.
    write(&mut port, 0x1c, &[0xff; 2]);
    write(&mut port, 0x3d, &[0xff]);
    assert_eq!(read(&mut port, 0x1c) & 0xffff, 0);
    assert_eq!(read(&mut port, 0x3c) >> 8 & 0xff, 0);
}

#[test]
fn an_empty_slot_has_no_link_and_nothing_answers_behind() {
    let mut port = port(false);
    program(&mut port);
    let express = capability(&mut port, 0x10);
    assert_eq!(read(&mut port, express + 0x10) >> 29 & 1, 0);
    assert_eq!(read(&mut port, express + 0x18) >> 22 & 1, 0);
    assert!(!port.routing().is_open);
}

#[test]
fn windows_are_closed_until_memory_is_decoded() {
    let mut port = port(true);
    program(&mut port);
    let routing = port.routing();
    assert!(routing.memory.contains(0xc020_0000, 2 * MIB));
    assert!(!routing.memory.contains(0xc020_0000, 2 * MIB + 1));
    assert!(routing.prefetchable.contains(0x9_4000_0000, 256 * MIB));
    assert_eq!(routing.buses.secondary, 7);
    assert!(write16(&mut port, 0x04, 4));
    assert_eq!(port.routing().memory, BridgeWindow::CLOSED);
    assert_eq!(port.routing().prefetchable, BridgeWindow::CLOSED);
    assert!(write16(&mut port, 0x04, 6));
    assert_eq!(port.routing(), routing);
    port.reset();
    assert_eq!(port.routing().buses, BusNumbers::default());
    assert_eq!(port.routing().memory, BridgeWindow::CLOSED);
}

#[test]
fn closed_windows_are_programmed_as_closed() {
    let mut port = port(true);
    port.set_routing(
        BusNumbers::default(),
        BridgeWindow::CLOSED,
        BridgeWindow::CLOSED,
    );
    let routing = port.routing();
    assert!(routing.memory.last < routing.memory.base);
    assert!(routing.prefetchable.last < routing.prefetchable.base);
}

#[test]
fn the_bus_behind_is_closed_and_reset_by_its_bit() {
    let mut port = port(true);
    program(&mut port);
    assert!(write16(&mut port, 0x3e, 0x40));
    assert!(!port.routing().is_open);
    assert!(port.take_secondary_reset());
    assert!(!port.take_secondary_reset());
    assert!(write16(&mut port, 0x3e, 0));
    assert!(port.routing().is_open);
    assert!(!port.take_secondary_reset());
}

#[test]
fn a_slot_without_power_loses_its_link_and_tells_once() {
    let binding = RecordingMsi::new();
    let mut port = RootPort::new(1, true, binding.clone()).unwrap();
    program(&mut port);
    let msi = capability(&mut port, 0x05);
    write(&mut port, msi + 4, &0xfee0_0003u32.to_le_bytes());
    write(&mut port, msi + 12, &[0x31, 0]);
    write16(&mut port, msi + 2, 1);
    let message = MsiMessage {
        address: 0xfee0_0000,
        data: 0x31,
    };
    assert_eq!(binding.routed(0), Some(message));

    let express = capability(&mut port, 0x10);
    // Hot-plug interrupts and changes of the link, power off.
    assert!(write16(
        &mut port,
        express + 0x18,
        1 << 12 | 1 << 10 | 1 << 5
    ));
    assert!(port.take_secondary_reset());
    assert!(!port.routing().is_open);
    assert_eq!(read(&mut port, express + 0x18) >> 24 & 1, 1, "link changed");
    assert_eq!(binding.raised(0), 1);
    // Writing the status back clears it; the present device stays present.
    write16(&mut port, express + 0x1a, 0x1ff);
    assert_eq!(read(&mut port, express + 0x18) >> 16, 0x40);
    // Power on, while the vector is masked: pending until it is unmasked.
    write(&mut port, msi + 16, &[1, 0, 0, 0]);
    assert!(write16(&mut port, express + 0x18, 1 << 12 | 1 << 5));
    assert!(port.routing().is_open);
    assert_eq!(binding.raised(0), 0);
    assert_eq!(read(&mut port, msi + 20), 1);
    write(&mut port, msi + 16, &[0; 4]);
    assert_eq!(binding.raised(0), 1);
    assert_eq!(read(&mut port, msi + 20), 0);
    port.reset();
    assert_eq!(binding.routed(0), None);
}

#[test]
fn a_port_is_made_of_its_state_again() {
    let mut port = port(true);
    program(&mut port);
    let express = capability(&mut port, 0x10);
    write16(&mut port, express + 0x18, 1 << 12 | 1 << 10);
    let msi = capability(&mut port, 0x05);
    write16(&mut port, msi + 2, 1);
    let mut payloads = Payloads::new(port.save());
    let mut again = RootPort::restored(3, true, RecordingMsi::new(), &mut payloads).unwrap();
    payloads.finish().unwrap();
    assert_eq!(again.routing(), port.routing());
    for at in (0..256).step_by(4) {
        assert_eq!(read(&mut again, at), read(&mut port, at), "{at:#x}");
    }
    for (number, is_occupied) in [(4, true), (3, false)] {
        let mut payloads = Payloads::new(port.save());
        let other = RootPort::restored(number, is_occupied, RecordingMsi::new(), &mut payloads);
        assert!(matches!(other, Err(RootPortError::State(_))));
    }
}

proptest! {
    /// Any width at any offset: identity stays, the link is active while the slot has power, and every
    /// change of what is forwarded is reported.
    #[test]
    fn accesses_of_any_width_and_place_are_harmless(
        writes in prop::collection::vec(
            (prop_oneof![0u16..0x100, any::<u16>()], prop::collection::vec(any::<u8>(), 1..5)),
            0..80,
        ),
    ) {
        let mut port = port(true);
        program(&mut port);
        for (offset, data) in writes {
            let before = port.routing();
            let effect = port.config_write(offset, &data);
            prop_assert_eq!(effect.bars_changed, port.routing() != before);
            prop_assert_eq!(read(&mut port, 0), 0x000c_1b36);
            let express = capability(&mut port, 0x10);
            let active = read(&mut port, express + 0x10) >> 29 & 1 == 1;
            let power = read(&mut port, express + 0x18) & 1 << 10 == 0;
            prop_assert_eq!(active, power);
            let routing = port.routing();
            if routing.memory != BridgeWindow::CLOSED {
                prop_assert!(routing.memory.base.is_multiple_of(MIB));
                prop_assert!((routing.memory.last + 1).is_multiple_of(MIB));
            }
        }
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<super::state::RootPortState>();
}

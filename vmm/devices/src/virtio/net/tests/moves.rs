//! A NIC that is saved, and goes on elsewhere.

use super::*;
use crate::virtio::net::command::OK;
use crate::virtio::transport::EVENT_IDX;

const ALL: u64 = config::CTRL_VQ
    | config::CTRL_RX
    | config::CTRL_MAC_ADDR
    | config::CTRL_VLAN
    | config::CTRL_GUEST_OFFLOADS
    | config::GUEST_ANNOUNCE
    | config::MRG_RXBUF
    | 1 << 1
    | 1 << 7;
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 8];

#[test]
fn what_the_driver_chose_goes_along() {
    let mut nic = Nic::with(3, &super::config(), ALL | config::MQ);
    let mut commands = vec![
        vec![0, 0, 0],
        vec![1, 1, 2, 0, 0, 0, 0, 8],
        vec![4, 0, 2, 0],
        vec![2, 0, 9, 0],
        vec![5, 0, 2],
    ];
    commands[4].extend([0; 7]);
    for command in commands {
        assert_eq!(nic.command(6, &command), OK);
    }
    nic.control.set_link(false);
    nic.settle_own();
    let mut nic = nic.moved();
    assert_eq!(nic.settings.lock().unwrap().attached, [true, true, false]);
    let offloads = TapOffloads {
        checksum: true,
        ..TapOffloads::default()
    };
    assert_eq!(nic.settings.lock().unwrap().offloads, Some(offloads));
    assert_eq!(nic.configuration()[..6], OTHER);
    assert!(!nic.control.is_link_up());
    nic.control.set_link(true);
    nic.settle_own();
    nic.driver.offer(2, &[write(BUFFERS, 2048)]);
    nic.driver.kick(2);
    nic.arrives_at(1, &packet(100));
    assert_eq!(nic.counters.receive_filtered(), 1);
}

#[test]
fn buffers_that_were_taken_are_taken_again() {
    let mut nic = Nic::new(ALL | EVENT_IDX);
    for buffer in 0..3 {
        nic.driver
            .offer(0, &[write(BUFFERS + buffer * 0x1000, 400)]);
    }
    nic.driver.kick(0);
    nic.arrives(&packet(1100));
    for head in [(0, 400), (1, 400), (2, 312)] {
        assert_eq!(nic.driver.used(0), Some(head));
    }
    // The next would need two, and is taken back with the one that there is.
    nic.driver.offer(0, &[write(BUFFERS, 400)]);
    nic.driver.kick(0);
    nic.arrives(&packet(500));
    let mut nic = nic.moved();
    nic.arrives(&packet(60));
    assert_eq!(nic.driver.used(0), Some((3, 72)));
    assert_eq!(nic.driver.used(0), None);
}

#[test]
fn a_pause_loses_nothing() {
    let mut nic = Nic::new(ALL | EVENT_IDX);
    let long = packet(500);
    nic.driver.offer(0, &[write(BUFFERS, 400)]);
    nic.driver.kick(0);
    nic.arrives(&long);
    for _ in 0..2 {
        nic.driver.function.quiesce().unwrap();
        nic.driver.function.resume();
        nic.driver.settle();
    }
    nic.driver.offer(0, &[write(BUFFERS + 0x1000, 400)]);
    nic.driver.kick(0);
    assert_eq!(nic.driver.used(0), Some((0, 400)));
    assert_eq!(nic.driver.used(0), Some((1, 112)));
    let mut got = nic.driver.bytes(BUFFERS + 12, 388);
    got.extend(nic.driver.bytes(BUFFERS + 0x1000, 112));
    assert_eq!(got, long[12..]);
    assert!(!nic.control.is_announcing());
}

#[test]
fn a_guest_that_moved_announces_itself() {
    let mut nic = Nic::new(ALL).moved();
    nic.settle_own();
    assert_eq!(nic.configuration()[6..8], [3, 0]);
    assert_eq!(nic.driver.msi.raised(0), 1);
    assert_eq!(nic.command(2, &[3, 0]), OK);
    assert_eq!(nic.configuration()[6..8], [1, 0]);
    let mut nic = Nic::new(0).moved();
    nic.settle_own();
    assert_eq!(nic.configuration()[6..8], [1, 0]);
}

#[test]
fn a_nic_without_a_driver_moves_and_begins_anew() {
    let mut nic = Nic::new(ALL);
    nic.command(2, &[1, 1, 2, 0, 0, 0, 0, 8]);
    nic.driver.set_status(0);
    let mut nic = nic.moved();
    nic.driver.start(16, VERSION_1 | ALL);
    assert_eq!(nic.configuration()[..6], MAC);
    assert!(!nic.control.is_announcing());
}

#[test]
fn state_of_a_nic_with_more_queues_is_refused() {
    let mut nic = Nic::with(2, &super::config(), ALL | config::MQ);
    assert_eq!(nic.command(4, &[4, 0, 2, 0]), OK);
    let mut payloads = Payloads::new(nic.driver.function.save());
    let (backends, _wires) = backends(1, &Arc::default());
    let refused = NetDevice::restored(backends, &super::config(), &mut payloads);
    assert!(matches!(refused, Err(NetError::State(_))));
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<crate::virtio::net::state::NetState>();
}

//! The control queue.

use proptest::prelude::*;

use super::*;
use crate::virtio::net::command::{ERROR, MAX_COMMAND_BYTES, OK};
use crate::virtio::testing::RAM_BYTES;

const CONTROL: usize = 2;
const ALL_CONTROL: u64 = config::CTRL_VQ
    | config::CTRL_RX
    | config::CTRL_RX_EXTRA
    | config::CTRL_VLAN
    | config::CTRL_MAC_ADDR
    | config::CTRL_GUEST_OFFLOADS
    | config::GUEST_ANNOUNCE;
const OTHER: [u8; 6] = [2, 0, 0, 0, 0, 8];

/// A frame to `destination`.
fn packet_to(destination: [u8; 6]) -> Vec<u8> {
    let mut packet = packet(60);
    packet[12..18].copy_from_slice(&destination);
    packet
}

/// Whether a frame to `destination` reaches the guest.
fn reaches(nic: &mut Nic, destination: [u8; 6]) -> bool {
    let before = nic.counters.received();
    nic.driver.offer(0, &[write(BUFFERS, 2048)]);
    nic.driver.kick(0);
    nic.arrives(&packet_to(destination));
    let reached = nic.driver.used(0).is_some();
    assert_eq!(nic.counters.received() - before, u64::from(reached));
    reached
}

#[test]
fn unwanted_frames_do_not_reach_the_driver_and_cost_no_buffer() {
    let mut nic = Nic::new(ALL_CONTROL);
    assert!(reaches(&mut nic, OTHER));
    assert_eq!(nic.command(CONTROL, &[0, 0, 0]), OK);
    assert!(!reaches(&mut nic, OTHER));
    assert_eq!(nic.counters.receive_filtered(), 1);
    // The buffer that was offered for it is still there.
    nic.arrives(&packet_to(MAC));
    assert!(nic.driver.used(0).is_some());
    assert!(reaches(&mut nic, MAC));

    assert_eq!(nic.command(CONTROL, &[1, 1, 2, 0, 0, 0, 0, 8]), OK);
    assert!(reaches(&mut nic, OTHER));
    assert_eq!(nic.configuration()[..6], OTHER);
    assert!(!reaches(&mut nic, MAC));

    let mut tables = vec![1, 0, 1, 0, 0, 0];
    tables.extend(MAC);
    tables.extend([0; 4]);
    assert_eq!(nic.command(CONTROL, &tables), OK);
    assert!(reaches(&mut nic, MAC));
}

#[test]
fn the_filter_reads_frames_that_are_not_in_guest_memory_too() {
    let mut nic = Nic::new(ALL_CONTROL | config::MRG_RXBUF);
    assert_eq!(nic.command(CONTROL, &[0, 0, 0]), OK);
    // The address is partly in the guest's buffer and partly in ours.
    nic.driver.offer(0, &[write(BUFFERS, 15)]);
    nic.driver.offer(0, &[write(BUFFERS + 0x1000, 1000)]);
    nic.driver.kick(0);
    nic.arrives(&packet_to(OTHER));
    assert_eq!(nic.counters.receive_filtered(), 1);
    nic.arrives(&packet_to(MAC));
    assert_eq!(nic.driver.used(0), Some((0, 15)));
    assert_eq!(nic.driver.used(0), Some((1, 57)));
}

#[test]
fn a_reset_forgets_what_the_driver_chose() {
    let mut nic = Nic::new(ALL_CONTROL);
    nic.command(CONTROL, &[0, 0, 0]);
    nic.command(CONTROL, &[1, 1, 2, 0, 0, 0, 0, 8]);
    nic.driver.set_status(0);
    nic.driver.start(16, VERSION_1 | ALL_CONTROL);
    assert_eq!(nic.configuration()[..6], MAC);
    assert!(reaches(&mut nic, [2, 0, 0, 0, 0, 9]));
}

#[test]
fn vlans_pass_once_they_are_added() {
    let mut nic = Nic::new(ALL_CONTROL);
    assert_eq!(nic.command(CONTROL, &[0, 0, 0]), OK);
    let mut tagged = packet_to(MAC);
    tagged[24..28].copy_from_slice(&[0x81, 0, 0, 5]);
    for (command, passes) in [(None, false), (Some(0), true), (Some(1), false)] {
        if let Some(command) = command {
            assert_eq!(nic.command(CONTROL, &[2, command, 5, 0]), OK);
        }
        let before = nic.counters.received();
        nic.driver.offer(0, &[write(BUFFERS, 2048)]);
        nic.driver.kick(0);
        nic.arrives(&tagged);
        assert_eq!(nic.counters.received() - before, u64::from(passes));
    }
}

#[test]
fn commands_of_features_that_were_not_taken_are_refused() {
    let mut nic = Nic::new(config::CTRL_VQ);
    for command in [
        &[0, 0, 0][..],
        &[1, 1, 2, 0, 0, 0, 0, 8],
        &[2, 0, 5, 0],
        &[3, 0],
        &[4, 0, 1, 0],
        &[5, 0, 0, 0, 0, 0, 0, 0, 0, 0],
    ] {
        assert_eq!(nic.command(CONTROL, command), ERROR, "{command:?}");
    }
    // An address of a group, the wrong number of bytes, nothing at all.
    let mut nic = Nic::new(ALL_CONTROL);
    for command in [&[1, 1, 3, 0, 0, 0, 0, 8][..], &[0, 0, 0, 0], &[0, 0]] {
        assert_eq!(nic.command(CONTROL, command), ERROR, "{command:?}");
    }
    assert_eq!(nic.configuration()[..6], MAC);
}

#[test]
fn commands_that_are_no_memory_or_too_long_are_answered_where_they_can_be() {
    let mut nic = Nic::new(ALL_CONTROL);
    let answer = write(BUFFERS + 0x100, 1);
    let too_long = u32::try_from(MAX_COMMAND_BYTES + 1).unwrap();
    let chains = [
        (vec![read(RAM_BYTES as u64, 3), answer], 1),
        (vec![read(BUFFERS, too_long), answer], 1),
        (vec![read(BUFFERS, u32::MAX - 16), answer], 1),
        (vec![answer], 1),
        (vec![read(BUFFERS, 3)], 0),
        (vec![read(BUFFERS, 3), write(RAM_BYTES as u64, 1)], 0),
    ];
    for (chain, written) in chains {
        nic.driver.fill(BUFFERS, &[9, 9, 9]);
        nic.driver.fill(BUFFERS + 0x100, &[0xee]);
        nic.driver.offer(CONTROL, &chain);
        nic.driver.kick(CONTROL);
        let (_, bytes) = nic.driver.used(CONTROL).unwrap();
        assert_eq!(bytes, written, "{chain:?}");
        let expected = if written == 1 { ERROR } else { 0xee };
        assert_eq!(nic.driver.bytes(BUFFERS + 0x100, 1), [expected]);
    }
    assert!(!nic.driver.needs_reset());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the driver says, the NIC goes on.
    #[test]
    fn random_commands_do_no_harm(
        commands in prop::collection::vec(
            (0u8..7, 0u8..7, prop::collection::vec(any::<u8>(), 0..40)), 1..12),
    ) {
        let mut nic = Nic::with(3, &super::config(), ALL_CONTROL | config::MQ);
        for (class, command, data) in commands {
            let mut bytes = vec![class, command];
            bytes.extend(data);
            let answer = nic.command(6, &bytes);
            prop_assert!(answer == OK || answer == ERROR);
            nic.arrives(&packet(100));
        }
        prop_assert!(!nic.driver.needs_reset());
    }
}

//! Frames in and out.

use proptest::prelude::*;

use super::*;
use crate::virtio::testing::{RAM_BYTES, mad_descriptors};
use crate::virtio::transport::{EVENT_IDX, INDIRECT_DESC};

#[test]
fn the_guest_reads_address_link_and_mtu() {
    let mut nic = Nic::new(0);
    let data = nic.configuration();
    assert_eq!(data[..6], MAC);
    assert_eq!(data[6..10], [1, 0, 1, 0]);
    assert_eq!(data[10..], MTU_VALUE.to_le_bytes());
}

#[test]
fn what_the_guest_sends_goes_out_whole() {
    let mut nic = Nic::new(EVENT_IDX);
    let packet = packet(60);
    nic.driver.fill(BUFFERS, &packet);
    let rest = u32::try_from(packet.len()).unwrap() - 12;
    nic.driver
        .offer(1, &[read(BUFFERS, 12), read(BUFFERS + 12, rest)]);
    nic.driver.kick(1);
    assert_eq!(nic.sent(), Some(packet));
    assert_eq!(nic.driver.used(1), Some((0, 0)));
    assert_eq!(nic.counters.sent(), 1);
}

#[test]
fn malformed_frames_are_dropped_and_given_back() {
    let mut nic = Nic::new(0);
    let chains = [
        read(BUFFERS, 0),
        read(BUFFERS, 25),
        read(BUFFERS, 0x2_0000),
        read(RAM_BYTES as u64 - 10, 100),
        read(u64::MAX - 50, 100),
        write(BUFFERS, 100),
    ];
    for chain in chains {
        nic.driver.offer(1, &[chain]);
    }
    nic.driver.kick(1);
    for _ in chains {
        assert!(nic.driver.used(1).is_some());
    }
    assert_eq!(nic.sent(), None);
    assert_eq!(nic.counters.send_dropped(), 6);
    assert!(!nic.driver.needs_reset());
}

#[test]
fn a_frame_is_received_with_its_header() {
    let mut nic = Nic::new(0);
    nic.driver
        .offer(0, &[write(BUFFERS, 12), write(BUFFERS + 0x100, 1514)]);
    nic.driver.kick(0);
    let packet = packet(100);
    nic.arrives(&packet);
    assert_eq!(nic.driver.used(0), Some((0, 112)));
    assert_eq!(nic.driver.bytes(BUFFERS, 12), header_with_buffers(1));
    assert_eq!(nic.driver.bytes(BUFFERS + 0x100, 100), packet[12..]);
    assert_eq!(nic.driver.calls(0), 1);
}

#[test]
fn a_nic_with_one_vector_for_all_queues_calls_by_it() {
    let shared = NetConfig {
        shared_vector: true,
        ..super::config()
    };
    let mut nic = Nic::with(1, &shared, 0);
    nic.driver.offer(0, &[write(BUFFERS, 2048)]);
    nic.driver.kick(0);
    nic.arrives(&packet(100));
    assert_eq!(nic.driver.calls(0), 1);
    nic.driver.offer(1, &[read(BUFFERS, 112)]);
    nic.driver.kick(1);
    assert_eq!((nic.driver.calls(0), nic.driver.calls(1)), (1, 0));
}

#[test]
fn frames_wait_while_the_guest_has_no_buffers() {
    for features in [0, EVENT_IDX, EVENT_IDX | config::MRG_RXBUF] {
        let mut nic = Nic::new(features);
        for length in [100, 200, 300] {
            nic.arrives(&packet(length));
        }
        assert_eq!(nic.driver.used(0), None);
        for expected in [112, 212, 312] {
            nic.driver.offer(0, &[write(BUFFERS, 2048)]);
            nic.driver.kick(0);
            assert_eq!(nic.driver.used(0).unwrap().1, expected);
        }
        assert_eq!(nic.counters.receive_dropped(), 0);
    }
}

#[test]
fn a_frame_is_spread_over_mergeable_buffers() {
    let mut nic = Nic::new(config::MRG_RXBUF);
    for buffer in 0..4 {
        nic.driver
            .offer(0, &[write(BUFFERS + buffer * 0x1000, 512)]);
    }
    nic.driver.kick(0);
    let packet = packet(1200);
    nic.arrives(&packet);
    assert_eq!(nic.driver.used(0), Some((0, 512)));
    assert_eq!(nic.driver.used(0), Some((1, 512)));
    assert_eq!(nic.driver.used(0), Some((2, 188)));
    assert_eq!(nic.driver.used(0), None);
    assert_eq!(nic.driver.bytes(BUFFERS, 12), header_with_buffers(3));
    let mut got = nic.driver.bytes(BUFFERS + 12, 500);
    got.extend(nic.driver.bytes(BUFFERS + 0x1000, 512));
    got.extend(nic.driver.bytes(BUFFERS + 0x2000, 188));
    assert_eq!(got, packet[12..]);
}

#[test]
fn a_frame_that_needs_more_buffers_waits_for_them() {
    // With the event index, the driver kicks only for the chain that the device names.
    let mut nic = Nic::new(config::MRG_RXBUF | EVENT_IDX);
    nic.driver.offer(0, &[write(BUFFERS, 512)]);
    nic.driver.kick(0);
    nic.arrives(&packet(1000));
    assert_eq!(nic.driver.used(0), None);
    let avail_event = nic.driver.rings(0) + 0x6000 + 4 + 8 * 16;
    assert_eq!(nic.driver.bytes(avail_event, 2), 1u16.to_le_bytes());
    nic.driver.offer(0, &[write(BUFFERS + 0x1000, 512)]);
    nic.driver.kick(0);
    assert_eq!(nic.driver.used(0), Some((0, 512)));
    assert_eq!(nic.driver.used(0), Some((1, 500)));
}

#[test]
fn a_long_frame_between_short_ones_goes_on_where_the_buffers_ended() {
    // The first goes straight into the only chain that is taken for it, the second begins there.
    let mut nic = Nic::new(config::MRG_RXBUF);
    for buffer in 0..8 {
        nic.driver
            .offer(0, &[write(BUFFERS + buffer * 0x1000, 300)]);
    }
    nic.driver.kick(0);
    let packets = [packet(100), packet(1500), packet(50), packet(280)];
    for packet in &packets {
        nic.wires[0].send(packet).unwrap();
    }
    nic.driver.function.handle_event((1 << 16) + BACKENDS);
    for expected in [(0, 112), (1, 300), (2, 300), (3, 300), (4, 300), (5, 300)] {
        assert_eq!(nic.driver.used(0), Some(expected));
    }
    assert_eq!(nic.driver.used(0), Some((6, 12)));
    assert_eq!(nic.driver.used(0), Some((7, 62)));
    assert_eq!(nic.driver.used(0), None);
    assert_eq!(
        nic.driver.bytes(BUFFERS + 0x1000, 12),
        header_with_buffers(6)
    );
    let mut got = nic.driver.bytes(BUFFERS + 0x1000 + 12, 288);
    for (buffer, bytes) in [(2, 300), (3, 300), (4, 300), (5, 300), (6, 12)] {
        got.extend(nic.driver.bytes(BUFFERS + buffer * 0x1000, bytes));
    }
    assert_eq!(got, packets[1][12..]);
    // The last waits for a buffer, whole.
    nic.driver.offer(0, &[write(BUFFERS, 300)]);
    nic.driver.kick(0);
    assert_eq!(nic.driver.used(0), Some((8, 292)));
    assert_eq!(nic.driver.bytes(BUFFERS + 12, 280), packets[3][12..]);
    assert_eq!(nic.counters.receive_dropped(), 0);
}

#[test]
fn a_long_frame_that_began_in_the_only_buffer_is_whole_in_the_end() {
    let mut nic = Nic::new(config::MRG_RXBUF | EVENT_IDX);
    let long = packet(1000);
    nic.driver.offer(0, &[write(BUFFERS, 512)]);
    nic.driver.kick(0);
    nic.arrives(&long);
    // The driver may do what it likes with a buffer that it has not got back.
    for buffer in 1..3 {
        nic.driver
            .offer(0, &[write(BUFFERS + buffer * 0x1000, 400)]);
    }
    nic.driver.kick(0);
    for expected in [(0, 512), (1, 400), (2, 100)] {
        assert_eq!(nic.driver.used(0), Some(expected));
    }
    let mut got = nic.driver.bytes(BUFFERS + 12, 500);
    got.extend(nic.driver.bytes(BUFFERS + 0x1000, 400));
    got.extend(nic.driver.bytes(BUFFERS + 0x2000, 100));
    assert_eq!(got, long[12..]);
}

#[test]
fn a_header_over_several_buffers_has_its_count() {
    let mut nic = Nic::new(0);
    nic.driver.offer(
        0,
        &[
            write(BUFFERS, 11),
            write(BUFFERS + 0x100, 1),
            write(BUFFERS + 0x200, 100),
        ],
    );
    nic.driver.kick(0);
    nic.arrives(&packet(60));
    assert_eq!(nic.driver.used(0), Some((0, 72)));
    assert_eq!(nic.driver.bytes(BUFFERS + 10, 1), [1]);
    assert_eq!(nic.driver.bytes(BUFFERS + 0x100, 1), [0]);
}

#[test]
fn frames_of_the_largest_size_and_no_larger_ones() {
    let mut nic = Nic::new(config::MRG_RXBUF);
    for buffer in 0..16 {
        nic.driver
            .offer(0, &[write(BUFFERS + buffer * 0x2000, 8192)]);
    }
    nic.driver.kick(0);
    let longest = packet(65_536 + 64);
    nic.arrives(&longest);
    let mut got = Vec::new();
    while let Some((head, bytes)) = nic.driver.used(0) {
        let address = BUFFERS + u64::from(head) * 0x2000;
        got.extend(nic.driver.bytes(address, usize::try_from(bytes).unwrap()));
    }
    assert_eq!(got[12..], longest[12..]);
    nic.arrives(&packet(65_536 + 65));
    assert_eq!(nic.driver.used(0), None);
    assert_eq!(nic.counters.receive_dropped(), 1);
}

#[test]
fn what_a_frame_was_written_to_is_dirty() {
    use vmm_memory::{start_dirty_log, take_dirty_log};

    let mut nic = Nic::new(0);
    nic.driver
        .offer(0, &[write(BUFFERS, 12), write(BUFFERS + 0x3000, 2000)]);
    nic.driver.kick(0);
    start_dirty_log(&nic.driver.memory);
    nic.arrives(&packet(100));
    let log = take_dirty_log(&nic.driver.memory);
    let first = usize::try_from(BUFFERS / 4096).unwrap();
    let is_dirty = |page: usize| log[0].words[page / 64] >> (page % 64) & 1 == 1;
    assert!(is_dirty(first) && is_dirty(first + 3));
    assert!(!is_dirty(first + 1) && !is_dirty(first + 4));
}

#[test]
fn a_host_that_takes_no_frames_now_is_tried_again() {
    let mut nic = Nic::new(EVENT_IDX);
    nic.settings.lock().unwrap().is_busy = true;
    let packet = packet(60);
    nic.driver.fill(BUFFERS, &packet);
    nic.driver
        .offer(1, &[read(BUFFERS, u32::try_from(packet.len()).unwrap())]);
    nic.driver.kick(1);
    assert_eq!(nic.driver.used(1), None);
    nic.settings.lock().unwrap().is_busy = false;
    assert_eq!(nic.driver.wait_used(1), Some((0, 0)));
    assert_eq!(nic.sent(), Some(packet));
    assert_eq!(nic.counters.send_dropped(), 0);
}

#[test]
fn a_frame_longer_than_all_buffers_is_dropped_and_the_next_arrives() {
    let mut nic = Nic::new(0);
    nic.driver.offer(0, &[write(BUFFERS, 512)]);
    nic.driver.kick(0);
    nic.arrives(&packet(1000));
    nic.arrives(&packet(100));
    assert_eq!(nic.driver.used(0), Some((0, 112)));
    assert_eq!(nic.counters.receive_dropped(), 1);

    let mut nic = Nic::new(config::MRG_RXBUF);
    for _ in 0..16 {
        nic.driver.offer(0, &[write(BUFFERS, 32)]);
    }
    nic.driver.kick(0);
    nic.arrives(&packet(1000));
    nic.arrives(&packet(10));
    assert_eq!(nic.driver.used(0), Some((0, 22)));
    assert_eq!(nic.counters.receive_dropped(), 1);
}

#[test]
fn buffers_that_are_not_ram_or_not_writable_lose_the_frame_only() {
    let mut nic = Nic::new(0);
    nic.driver.offer(0, &[write(RAM_BYTES as u64, 2048)]);
    nic.driver.offer(0, &[read(BUFFERS, 2048)]);
    nic.driver.offer(0, &[write(BUFFERS, 2048)]);
    nic.driver.kick(0);
    nic.arrives(&packet(100));
    assert_eq!(nic.driver.used(0), Some((0, 0)));
    assert_eq!(nic.counters.receive_dropped(), 1);
    nic.arrives(&packet(100));
    assert_eq!(nic.driver.used(0), None);
    assert!(!nic.driver.needs_reset());
}

#[test]
fn many_frames_are_received_in_turns() {
    let mut nic = Nic::new(EVENT_IDX);
    let (mut wanted, mut got) = (0..300usize, 0);
    while got < 300 {
        while let Some(number) = wanted.next() {
            if nic.wires[0].send(&packet(20 + number)).is_err() {
                wanted = number..300;
                break;
            }
        }
        for _ in 0..8 {
            nic.driver.offer(0, &[write(BUFFERS, 2048)]);
        }
        nic.driver.kick(0);
        while let Some((_, bytes)) = nic.driver.used(0) {
            assert_eq!(bytes, u32::try_from(32 + got).unwrap());
            got += 1;
        }
        if got > 292 {
            break;
        }
    }
    assert_eq!(nic.counters.receive_dropped(), 0);
}

#[test]
fn a_reset_forgets_the_frame_on_its_way() {
    let mut nic = Nic::new(config::MRG_RXBUF);
    nic.driver.offer(0, &[write(BUFFERS, 64)]);
    nic.driver.kick(0);
    nic.arrives(&packet(100));
    nic.driver.set_status(0);
    nic.driver.start(16, VERSION_1);
    nic.wires[0].send(&packet(50)).unwrap();
    nic.driver.offer(0, &[write(BUFFERS, 2048)]);
    nic.driver.kick(0);
    assert_eq!(nic.driver.used(0), Some((0, 62)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in tables and rings while frames arrive, the NIC comes to rest.
    #[test]
    fn random_descriptors_do_no_harm(
        receive in mad_descriptors(),
        transmit in mad_descriptors(),
        heads in prop::collection::vec(0u16..17, 1..8),
        features in prop_oneof![Just(0), Just(EVENT_IDX), Just(EVENT_IDX | config::MRG_RXBUF | config::CTRL_VQ)],
        lengths in prop::collection::vec(0usize..3000, 0..6),
    ) {
        let mut nic = Nic::new(features | INDIRECT_DESC);
        nic.driver.go_mad(0, &receive, &heads);
        for length in lengths {
            nic.arrives(&packet(length));
        }
        nic.driver.go_mad(1, &transmit, &heads);
        nic.driver.go_mad(2, &transmit, &heads);
        nic.driver.kick(0);
    }
}

#[test]
fn failures_of_the_tap_are_counted_apart_from_what_the_guest_does_wrong() {
    let mut nic = Nic::new(0);
    nic.driver.offer(1, &[read(BUFFERS, 25)]);
    nic.driver.offer(0, &[write(BUFFERS, 2048)]);
    nic.driver.kick(1);
    nic.driver.kick(0);
    assert_eq!(nic.counters.send_dropped(), 1);
    assert_eq!(nic.counters.backend_errors(), 0);
    nic.settings.lock().unwrap().is_broken = true;
    let packet = packet(60);
    nic.driver.fill(BUFFERS, &packet);
    nic.driver
        .offer(1, &[read(BUFFERS, u32::try_from(packet.len()).unwrap())]);
    nic.driver.kick(1);
    assert_eq!(nic.counters.send_dropped(), 2);
    assert_eq!(nic.counters.backend_errors(), 1);
    nic.arrives(&packet);
    assert_eq!(nic.counters.backend_errors(), 2);
    // Nor is it silent while the link is down.
    nic.control.set_link(false);
    nic.arrives(&packet);
    assert!(nic.counters.backend_errors() > 2);
}

//! Guests that do what they must not.

use proptest::prelude::*;

use super::broker::Broker;
use super::*;
use crate::virtio::testing::mad_descriptors;

/// Sends `header` and expects a reset as its answer.
#[track_caller]
fn refused(bench: &mut Bench, header: &Header) {
    bench.send(header, &[]);
    let reset = bench.expect(Operation::Reset);
    assert_eq!(reset, header.reset(), "to {header:?}");
}

#[test]
fn packets_that_make_no_sense_are_reset_and_resets_never_are() {
    let mut bench = Bench::new();
    for operation in [
        Operation::Response,
        Operation::Shutdown,
        Operation::Data,
        Operation::CreditUpdate,
        Operation::CreditRequest,
    ] {
        refused(&mut bench, &packet(operation, 1, 2));
    }
    let sane = packet(Operation::Request, 1, 2);
    for operation in [0, 8, u16::MAX] {
        refused(&mut bench, &Header { operation, ..sane });
    }
    for socket_type in [0, 2, u16::MAX] {
        refused(
            &mut bench,
            &Header {
                socket_type,
                ..sane
            },
        );
    }
    for destination_cid in [0, 1, 3, u64::from(CID), HOST_CID | 1 << 32, u64::MAX] {
        let header = Header {
            destination_cid,
            ..sane
        };
        refused(&mut bench, &header);
        let reset = Header {
            operation: Operation::Reset.number(),
            ..header
        };
        bench.send(&reset, &[]);
        assert_eq!(bench.receive(), None);
    }
}

#[test]
fn packets_from_another_address_are_dropped() {
    let mut bench = Bench::new();
    for source_cid in [0, 2, u64::from(CID) + 1, u64::from(CID) | 1 << 32] {
        let sane = packet(Operation::Request, 1, 2);
        bench.send(&Header { source_cid, ..sane }, &[]);
        assert_eq!(bench.receive(), None);
    }
}

#[test]
fn packets_that_no_connection_takes_end_it() {
    let strange: [fn(&Header) -> Header; 6] = [
        |request| answer(request, Operation::Request),
        |request| answer(request, Operation::Response),
        |request| Header {
            operation: 99,
            ..answer(request, Operation::Data)
        },
        |request| Header {
            payload_bytes: 1,
            ..answer(request, Operation::Data)
        },
        |request| Header {
            payload_bytes: (64 << 10) + 1,
            ..answer(request, Operation::Data)
        },
        |request| Header {
            payload_bytes: u32::MAX,
            ..answer(request, Operation::Data)
        },
    ];
    for strange in strange {
        let mut bench = Bench::new();
        let (mut program, request) = bench.connected(1);
        refused(&mut bench, &strange(&request));
        assert_eq!(rest(&mut program), b"");
        refused(&mut bench, &answer(&request, Operation::Data));
    }
}

#[test]
fn data_after_the_guests_end_is_reset() {
    let mut bench = Bench::new();
    let (_program, request) = bench.connected(1);
    bench.send(&shutdown(&request, SENDS_NO_MORE), &[]);
    bench.send_data(&request, b"more");
    bench.expect(Operation::Reset);
}

#[test]
fn what_is_no_packet_is_dropped() {
    let mut bench = Bench::new();
    bench
        .driver
        .fill(SENT, &packet(Operation::Request, 1, 2).encode());
    for descriptor in [
        read(SENT, 43),
        read(SENT, 0),
        write(SENT, 44),
        read(RAM_BYTES as u64 - 8, 44),
        read(u64::MAX - 20, 44),
    ] {
        bench.driver.offer(TRANSMIT, &[descriptor]);
        bench.driver.ring_kick(TRANSMIT);
        bench.settle();
        assert!(bench.driver.used(TRANSMIT).is_some());
        assert_eq!(bench.receive(), None);
    }
    let data = Header {
        payload_bytes: 64,
        ..packet(Operation::Data, 1, 2)
    };
    bench.driver.fill(SENT, &data.encode());
    let outside = read(RAM_BYTES as u64, 64);
    bench.driver.offer(TRANSMIT, &[read(SENT, 44), outside]);
    bench.driver.ring_kick(TRANSMIT);
    bench.expect(Operation::Reset);
}

#[test]
fn a_packet_may_be_cut_into_any_buffers() {
    let mut bench = Bench::new();
    let (mut program, request) = bench.connected(1);
    let header = Header {
        payload_bytes: 10,
        ..answer(&request, Operation::Data)
    };
    bench.driver.fill(SENT, &header.encode());
    bench.driver.fill(SENT + 44, b"0123456789");
    let cuts = [
        read(SENT, 7),
        read(SENT + 7, 40),
        read(SENT + 47, 3),
        read(SENT + 50, 100),
    ];
    bench.driver.offer(TRANSMIT, &cuts);
    bench.driver.ring_kick(TRANSMIT);
    bench.settle();
    assert_eq!(text(&mut program, 10), "0123456789");
}

#[test]
fn buffers_that_hold_no_packet_come_back_empty() {
    let mut bench = Bench::without_buffers();
    bench.send(&packet(Operation::Request, 1, 2), &[]);
    for descriptor in [write(BUFFERS, 44), write(BUFFERS, 0), read(BUFFERS, 4096)] {
        let head = bench.driver.offer(RECEIVE, &[descriptor]);
        bench.driver.ring_kick(RECEIVE);
        bench.settle();
        assert_eq!(bench.driver.used(RECEIVE), Some((head.into(), 0)));
    }
    bench.offer_buffers();
    bench.expect(Operation::Reset);
}

#[test]
fn a_buffer_outside_of_ram_costs_the_guest_its_connection() {
    let mut bench = Bench::without_buffers();
    bench.offer_buffer(BUFFERS);
    bench.driver.ring_kick(RECEIVE);
    let mut program = bench.listener.connect();
    program.write_all(b"CONNECT 1\n").unwrap();
    let request = bench.expect(Operation::Request);
    bench.send(&answer(&request, Operation::Response), &[]);
    bench.settle();
    // The buffer that `expect` gave back takes the first; the second is nowhere.
    bench.driver.offer(RECEIVE, &[write(1 << 40, 4096)]);
    bench.offer_buffer(BUFFERS + 0x2000);
    for data in [b"first", b"other"] {
        program.write_all(data).unwrap();
        bench.settle();
    }
    let (head, bytes) = bench.driver.used(RECEIVE).unwrap();
    assert!(bench.buffers.contains_key(&head));
    assert_eq!(bytes, 49);
    assert_eq!(bench.driver.used(RECEIVE).unwrap().1, 0);
    bench.driver.ring_kick(RECEIVE);
    bench.expect(Operation::Reset);
}

#[test]
fn a_guest_that_takes_no_answers_gets_no_more_of_them() {
    let mut bench = Bench::without_buffers();
    bench
        .driver
        .fill(SENT, &packet(Operation::Data, 1, 2).encode());
    let mut taken = 0;
    for _ in 0..400 {
        bench.driver.offer(TRANSMIT, &[read(SENT, 44)]);
        bench.driver.ring_kick(TRANSMIT);
        bench.settle();
        match bench.driver.used(TRANSMIT) {
            Some(_) => taken += 1,
            None => break,
        }
    }
    assert_eq!(taken, 256);
    bench.offer_buffers();
    assert!(bench.driver.used(TRANSMIT).is_some(), "it goes on");
    for _ in 0..257 {
        bench.expect(Operation::Reset);
    }
    assert_eq!(bench.receive(), None);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn random_descriptors_do_no_harm(
        queue in 0usize..3,
        table in mad_descriptors(),
        heads in prop::collection::vec(0u16..17, 1..8),
        operations in prop::collection::vec((0u16..9, 0u32..100), 16),
    ) {
        let mut bench = Bench::new();
        let _broker = Broker::attached_to(&bench.control);
        let mut program = bench.listener.connect();
        program.write_all(b"CONNECT 1\ndata").unwrap();
        bench.settle();
        for (descriptor, (operation, payload_bytes)) in table.iter().zip(operations) {
            if descriptor.address < (RAM_BYTES - 64) as u64 {
                let sane = packet(Operation::Request, 1, 2);
                let header = Header { operation, payload_bytes, ..sane };
                bench.driver.fill(descriptor.address, &header.encode());
            }
        }
        bench.driver.program_anew(16);
        bench.driver.go_mad(queue, &table, &heads);
        bench.driver.settle_own(0);
    }
}

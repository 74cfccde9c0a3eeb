//! Host programs that reach the guest.

use super::*;

#[test]
fn a_host_program_reaches_a_port_of_the_guest() {
    let mut bench = Bench::new();
    let (mut program, request) = bench.connected(5000);
    assert_eq!(request.source_cid, HOST_CID);
    assert_eq!(request.destination_cid, u64::from(CID));
    assert_eq!((request.socket_type, request.buf_alloc), (STREAM, 64 << 10));
    program.write_all(b"hello").unwrap();
    let data = bench.expect_data(b"hello");
    assert_eq!(data.source_port, request.source_port);
    bench.send_data(&request, b"world");
    assert_eq!(text(&mut program, 5), "world");
}

#[test]
fn what_follows_the_line_is_the_guests() {
    let mut bench = Bench::new();
    let mut program = bench.listener.connect();
    program.write_all(b"CONNECT 7\nhello").unwrap();
    let request = bench.expect(Operation::Request);
    assert_eq!(bench.receive(), None);
    bench.send(&answer(&request, Operation::Response), &[]);
    bench.expect_data(b"hello");
}

#[test]
fn a_program_that_the_guest_refuses_is_closed() {
    let mut bench = Bench::new();
    let mut program = bench.listener.connect();
    program.write_all(b"CONNECT 7\n").unwrap();
    let request = bench.expect(Operation::Request);
    bench.send(&answer(&request, Operation::Reset), &[]);
    assert_eq!(rest(&mut program), b"");
    assert_eq!(bench.receive(), None);
}

#[test]
fn a_program_that_leaves_before_it_is_accepted_resets() {
    let mut bench = Bench::new();
    let mut program = bench.listener.connect();
    program.write_all(b"CONNECT 7\n").unwrap();
    let request = bench.expect(Operation::Request);
    drop(program);
    let reset = bench.expect(Operation::Reset);
    assert_eq!(reset.source_port, request.source_port);
    // Too late.
    bench.send(&answer(&request, Operation::Response), &[]);
    bench.expect(Operation::Reset);
}

#[test]
fn a_program_that_does_not_finish_its_line_is_dropped() {
    let mut bench = Bench::new();
    let mut program = bench.listener.connect();
    program.write_all(b"CONNECT 7").unwrap();
    let mut nonsense = bench.listener.connect();
    nonsense.write_all(b"GET / HTTP/1.1\n").unwrap();
    bench.settle();
    assert_eq!(rest(&mut nonsense), b"");
    // The timer.
    assert!(bench.driver.settle_own(10_000));
    assert_eq!(rest(&mut program), b"");
    assert_eq!(bench.receive(), None);
}

#[test]
fn the_guest_gets_no_more_than_it_has_room_for() {
    let mut bench = Bench::new();
    let mut program = bench.listener.connect();
    program.write_all(b"CONNECT 7\n").unwrap();
    let request = bench.expect(Operation::Request);
    let small = |operation, fwd_cnt| Header {
        buf_alloc: 100,
        fwd_cnt,
        ..answer(&request, operation)
    };
    bench.send(&small(Operation::Response, 0), &[]);
    program.write_all(&[7; 300]).unwrap();
    bench.expect_data(&[7; 100]);
    bench.expect(Operation::CreditRequest);
    assert_eq!(bench.receive(), None);
    bench.send(&small(Operation::CreditUpdate, 60), &[]);
    bench.expect_data(&[7; 60]);
    bench.expect(Operation::CreditRequest);
    // Forwarded more than was sent: nothing that could be believed.
    bench.send(&small(Operation::CreditUpdate, 1000), &[]);
    bench.expect(Operation::CreditRequest);
    bench.send(&small(Operation::CreditUpdate, 160), &[]);
    bench.expect_data(&[7; 100]);
}

/// Sends as much as the device lets the guest, to a program that does not read; returns how much.
fn fill(bench: &mut Bench, request: &Header, data: &[u8]) -> usize {
    let (mut sent, mut forwarded) = (0, 0);
    loop {
        while let Some((header, _)) = bench.receive() {
            assert_eq!(header.operation, Operation::CreditUpdate.number());
            forwarded = header.fwd_cnt as usize;
        }
        let room = (64 << 10) - (sent - forwarded);
        let rest = &data[sent..][..room.min(4096)];
        if rest.is_empty() {
            bench.send(&answer(request, Operation::CreditRequest), &[]);
            let now = bench.expect(Operation::CreditUpdate).fwd_cnt as usize;
            if now == forwarded {
                return sent;
            }
            forwarded = now;
            continue;
        }
        bench.send_data(request, rest);
        sent += rest.len();
    }
}

#[test]
fn a_program_that_does_not_read_stops_its_own_connection_only() {
    let mut bench = Bench::new();
    let (mut slow, slow_request) = bench.connected(1);
    let (mut quick, quick_request) = bench.connected(2);
    let data: Vec<u8> = (0..4u32 << 20).map(|i| (i % 251) as u8).collect();
    let sent = fill(&mut bench, &slow_request, &data);
    assert!(sent > 64 << 10 && sent < data.len(), "{sent}");
    bench.send_data(&quick_request, b"quick");
    assert_eq!(text(&mut quick, 5), "quick");

    // When it reads, the guest gets a credit update, and all is there.
    let mut got = vec![0; sent];
    let mut done = 0;
    while done < sent {
        done += slow.read(&mut got[done..]).unwrap();
        bench.settle();
    }
    assert!(got == data[..sent]);
    let (update, _) = bench.receive().expect("an update");
    assert_eq!(update.operation, Operation::CreditUpdate.number());
    assert!(update.fwd_cnt as usize > sent - (64 << 10));
}

#[test]
fn a_guest_that_sends_more_than_it_may_is_reset() {
    let mut bench = Bench::new();
    let (mut program, request) = bench.connected(1);
    let data = vec![5; 4 << 20];
    let sent = fill(&mut bench, &request, &data);
    bench.send_data(&request, b"x");
    bench.expect(Operation::Reset);
    // What it was allowed to send and the program's socket took is there.
    let got = rest(&mut program).len();
    assert!(got >= sent - (64 << 10) && got <= sent, "{got} of {sent}");
}

#[test]
fn the_hosts_half_close_leaves_the_other_half() {
    let mut bench = Bench::new();
    let (mut program, request) = bench.connected(1);
    program.write_all(b"last").unwrap();
    program.shutdown(std::net::Shutdown::Write).unwrap();
    bench.expect_data(b"last");
    assert_eq!(bench.expect(Operation::Shutdown).flags, SENDS_NO_MORE);
    bench.send_data(&request, b"answer");
    assert_eq!(text(&mut program, 6), "answer");
    bench.send(&shutdown(&request, SENDS_NO_MORE | TAKES_NO_MORE), &[]);
    bench.expect(Operation::Reset);
    assert_eq!(rest(&mut program), b"");
    assert_eq!(bench.receive(), None);
}

#[test]
fn the_guests_half_close_leaves_the_other_half() {
    let mut bench = Bench::new();
    let (mut program, request) = bench.connected(1);
    bench.send_data(&request, b"last");
    bench.send(&shutdown(&request, SENDS_NO_MORE), &[]);
    assert_eq!(rest(&mut program), b"last");
    program.write_all(b"answer").unwrap();
    bench.expect_data(b"answer");
    // Hints add up.
    bench.send(&shutdown(&request, TAKES_NO_MORE), &[]);
    bench.expect(Operation::Reset);
    assert!(program.write_all(b"more").is_err());
}

#[test]
fn a_program_that_is_gone_ends_both_directions() {
    let mut bench = Bench::new();
    let (mut program, request) = bench.connected(1);
    program.write_all(b"last").unwrap();
    drop(program);
    let mut flags = 0;
    let mut got = Vec::new();
    while flags != SENDS_NO_MORE | TAKES_NO_MORE {
        let (header, payload) = bench.receive().expect("a packet");
        got.extend(payload);
        flags |= header.flags;
    }
    assert_eq!(got, b"last");
    // Data that was on its way is nobody's.
    bench.send_data(&request, b"late");
    bench.send(&answer(&request, Operation::Reset), &[]);
    assert_eq!(bench.receive(), None);
}

#[test]
fn connections_take_turns() {
    let mut bench = Bench::new();
    let mut programs: Vec<_> = (1..=4).map(|port| bench.connected(port)).collect();
    // The guest has no buffer while they write.
    let mut held = Vec::new();
    let (mut first, _) = bench.connected(9);
    while held.len() < RECEIVE_BUFFERS as usize {
        first.write_all(b"x").unwrap();
        bench.settle();
        held.push(bench.driver.used(RECEIVE).expect("a packet").0);
    }
    for (program, _) in &mut programs {
        program.write_all(&[1; 3 * 4096]).unwrap();
    }
    bench.settle();
    for head in held {
        let address = bench.buffers.remove(&head).unwrap();
        bench.offer_buffer(address);
    }
    bench.driver.ring_kick(RECEIVE);
    let mut order = Vec::new();
    for _ in 0..12 {
        let (header, payload) = bench.receive().expect("a packet");
        assert_eq!(payload.len(), 4096);
        order.push(header.destination_port);
    }
    for turn in order.chunks(4) {
        let mut turn = turn.to_vec();
        turn.sort_unstable();
        assert_eq!(turn, [1, 2, 3, 4], "{order:?}");
    }
}

#[test]
fn a_reset_of_the_driver_ends_all_and_new_connections_come_after() {
    let mut bench = Bench::new();
    let (mut program, _) = bench.connected(1);
    let mut waiting = bench.listener.connect();
    bench.settle();
    bench.driver.set_status(0);
    assert_eq!(rest(&mut program), b"");
    assert_eq!(rest(&mut waiting), b"");
    let mut early = bench.listener.connect();
    early.write_all(b"CONNECT 3\n").unwrap();
    bench.buffers.clear();
    bench.driver.start(QUEUE, VERSION_1);
    bench.offer_buffers();
    assert_eq!(bench.expect(Operation::Request).destination_port, 3);
}

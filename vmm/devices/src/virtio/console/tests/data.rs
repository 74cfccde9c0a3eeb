//! What passes through named ports.

use super::*;

/// Bytes of which each says where it is.
fn pattern(count: usize) -> Vec<u8> {
    (0..count).map(|at| (at % 251).to_le_bytes()[0]).collect()
}

#[test]
fn both_sides_hear_each_other() {
    let mut bench = Bench::open(true, &["a", "b"]);
    let mut peer = bench.talking();
    assert!(bench.send(1, b"{\"return\":{}}"));
    assert_eq!(drained(&mut peer), b"{\"return\":{}}");
    peer.write_all(b"{\"execute\":\"guest-ping\"}").unwrap();
    bench.poll();
    assert_eq!(bench.receive(1, 10).unwrap(), b"{\"execute\"");
    assert_eq!(bench.receive(1, 100).unwrap(), b":\"guest-ping\"}");
    assert_eq!(bench.receive(1, 100), None);
    peer.write_all(b"!").unwrap();
    bench.poll();
    assert_eq!(bench.received(1).unwrap(), b"!");
    assert!(bench.driver.calls(config::receive_queue(1)) > 0);
}

#[test]
fn nothing_reaches_a_port_that_the_guest_has_closed() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    bench.send_control(1, PORT_OPEN, 0);
    peer.write_all(b"wait").unwrap();
    bench.poll();
    assert_eq!(bench.receive(1, 100), None);
    bench.send_control(1, PORT_OPEN, 1);
    assert_eq!(bench.received(1).unwrap(), b"wait");
}

#[test]
fn what_is_written_before_the_guest_closes_arrives() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    bench.driver.fill(DATA, b"bye");
    bench.driver.offer(5, &[read(DATA, 3)]);
    // The device hears of the close first.
    bench.send_control(1, PORT_OPEN, 0);
    bench.driver.kick(5);
    assert_eq!(drained(&mut peer), b"bye");
}

#[test]
fn a_slow_peer_holds_the_guests_buffers_and_loses_nothing() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    let chunk = pattern(100_000);
    bench.driver.fill(DATA, &chunk);
    let (mut offered, mut taken) = (0, 0);
    while offered - taken < 8 {
        bench
            .driver
            .offer(5, &[read(DATA, 60_000), read(DATA + 60_000, 40_000)]);
        offered += 1;
        bench.driver.kick(5);
        while bench.driver.used(5).is_some() {
            taken += 1;
        }
        assert!(offered < 1000, "the peer's socket has no end");
    }
    let mut got = Vec::new();
    while taken < offered {
        got.extend(drained(&mut peer));
        bench.poll();
        while let Some(used) = bench.driver.used(5) {
            assert_eq!(used.1, 0);
            taken += 1;
        }
    }
    got.extend(drained(&mut peer));
    assert_eq!(got.len(), offered * chunk.len());
    assert!(got.chunks(chunk.len()).all(|part| part == chunk));
}

#[test]
fn a_peer_that_floods_is_read_as_fast_as_the_guest_takes() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    let flood = pattern(16 << 20);
    let mut written = 0;
    while let Ok(count) = peer.write(&flood[written..]) {
        written += count;
        bench.poll();
    }
    assert!(written < flood.len(), "somebody reads without end");
    let mut got = Vec::new();
    while got.len() < written {
        got.extend(bench.receive(1, 1000).unwrap());
        bench.poll();
    }
    assert!(got == flood[..written]);
    assert_eq!(bench.receive(1, 1000), None);
    assert!(!bench.driver.needs_reset());
}

#[test]
fn without_a_peer_output_is_dropped() {
    let mut bench = Bench::open(false, &["a"]);
    for _ in 0..100 {
        assert!(bench.send(1, &[b'x'; 5000]));
    }
    let mut peer = bench.talking();
    assert!(bench.send(1, b"heard"));
    assert_eq!(drained(&mut peer), b"heard");
}

#[test]
fn a_peer_gets_nothing_that_was_for_the_one_before() {
    let mut bench = Bench::open(false, &["a"]);
    let _first = bench.talking();
    while bench.send(1, &[b'1'; 60_000]) {}
    bench.driver.offer(5, &[read(DATA, 1000)]);
    let mut second = bench.attach_unseen(1, true).unwrap();
    bench.poll();
    while bench.driver.used(5).is_some() {}
    assert!(bench.send(1, b"2"));
    assert_eq!(drained(&mut second), b"2");
}

#[test]
fn what_a_peer_sent_before_it_went_is_delivered() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.attach_unseen(1, false).unwrap();
    peer.write_all(b"hello").unwrap();
    drop(peer);
    bench.poll();
    assert_eq!(bench.receive_control(), [(1, PORT_OPEN, 1, vec![])]);
    assert_eq!(bench.receive(1, 3).unwrap(), b"hel");
    assert!(bench.receive_control().is_empty());
    assert_eq!(bench.receive(1, 3).unwrap(), b"lo");
    assert_eq!(bench.receive(1, 3), None);
    assert_eq!(bench.receive_control(), [(1, PORT_OPEN, 0, vec![])]);
}

#[test]
fn a_peer_that_only_listens_goes_on_listening() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    peer.shutdown(Shutdown::Write).unwrap();
    bench.poll();
    assert_eq!(bench.receive(1, 10), None);
    assert!(bench.send(1, b"answer"));
    assert_eq!(drained(&mut peer), b"answer");
    assert!(bench.receive_control().is_empty());
    drop(peer);
    bench.poll();
    assert_eq!(bench.receive_control(), [(1, PORT_OPEN, 0, vec![])]);
}

#[test]
fn a_peer_that_does_not_listen_is_still_heard() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    peer.shutdown(Shutdown::Read).unwrap();
    assert!(bench.send(1, b"lost"));
    peer.write_all(b"heard").unwrap();
    bench.poll();
    assert_eq!(bench.receive(1, 10).unwrap(), b"heard");
}

#[test]
fn ports_do_not_hold_each_other_up() {
    let mut bench = Bench::open(false, &["a", "b"]);
    let _slow = bench.talking();
    while bench.send(1, &[b'x'; 60_000]) {}
    let mut peer = bench.attach(2);
    assert_eq!(bench.receive_control(), [(2, PORT_OPEN, 1, vec![])]);
    assert!(bench.send(2, b"through"));
    assert_eq!(drained(&mut peer), b"through");
}

//! Consoles that are saved and made again.

use super::*;

#[test]
fn a_guest_that_moved_sees_its_peer_go_and_the_next_one_come() {
    let mut bench = Bench::open(true, &["a", "b"]);
    let _peer = bench.talking();
    let mut bench = bench.moved(true, &["a", "b"]);
    assert_eq!(bench.receive_control(), [(1, PORT_OPEN, 0, vec![])]);
    let mut peer = bench.talking();
    assert!(bench.send(1, b"here"));
    assert_eq!(drained(&mut peer), b"here");
    peer.write_all(b"there").unwrap();
    bench.poll();
    assert_eq!(bench.receive(1, 10).unwrap(), b"there");
}

#[test]
fn a_peer_is_closed_to_the_guest_before_the_next_one_is_open() {
    let mut bench = Bench::open(false, &["a"]);
    let _peer = bench.talking();
    let (host, _) = host(false, &["a"]);
    let (mut next, theirs) = UnixStream::pair().unwrap();
    next.set_nonblocking(true).unwrap();
    host.named()[0]
        .attach(theirs.into(), "next", false)
        .unwrap();
    let made = Arc::clone(&host);
    bench.driver = bench
        .driver
        .moved_by(|payloads| Box::new(ConsoleDevice::restored(made, payloads).unwrap()));
    bench.driver.function.resume();
    bench.poll();
    let expected = [(1, PORT_OPEN, 0, vec![]), (1, PORT_OPEN, 1, vec![])];
    assert_eq!(bench.receive_control(), expected);
    assert!(bench.send(1, b"news"));
    assert_eq!(drained(&mut next), b"news");
}

#[test]
fn what_a_peer_had_not_taken_is_not_for_the_next() {
    let mut bench = Bench::open(false, &["a"]);
    let _peer = bench.talking();
    while bench.send(1, &[b'1'; 60_000]) {}
    let mut bench = bench.moved(false, &["a"]);
    let mut used = 0;
    while bench.driver.used(5).is_some() {
        used += 1;
    }
    assert_eq!(used, 1, "the guest has its buffer back");
    let mut peer = bench.attach(1);
    assert!(bench.send(1, b"2"));
    assert_eq!(drained(&mut peer), b"2");
}

#[test]
fn messages_that_are_owed_are_still_owed() {
    let mut bench = Bench::new(true, &["a"], MULTIPORT);
    bench.send_control(NO_PORT, DEVICE_READY, 1);
    let mut bench = bench.moved(true, &["a"]);
    assert_eq!(
        bench.receive_control(),
        [(0, PORT_ADD, 1, vec![]), (1, PORT_ADD, 1, vec![])]
    );
}

#[test]
fn what_was_typed_and_the_size_go_along() {
    let mut bench = Bench::open(true, &[]);
    let console = Arc::clone(bench.host.console().unwrap());
    console.input(b"reboot\n");
    console.resize(ConsoleSize {
        columns: 80,
        rows: 25,
    });
    bench.poll();
    let mut bench = bench.moved(true, &[]);
    assert_eq!(bench.receive(0, 100).unwrap(), b"reboot\n");
    let mut size = [0; 4];
    bench.driver.function.bar_read(0, 0x2000, &mut size);
    assert_eq!(size, [80, 0, 25, 0]);
}

#[test]
fn what_was_typed_before_and_after_a_move_can_be_moved_again() {
    let (first, _) = host(true, &[]);
    let pasted = [b'a'; 5000];
    let taken = first.console().unwrap().input(&pasted);
    let saved = ConsoleDevice::new(first).save().unwrap();
    // Somebody types before the new process has what was typed into the former.
    let (next, _) = host(true, &[]);
    next.console().unwrap().input(b"later");
    let payloads = &mut Payloads::new(vec![saved]);
    let device = ConsoleDevice::restored(Arc::clone(&next), payloads).unwrap();
    let again = &mut Payloads::new(vec![device.save().unwrap()]);
    let (last, _) = host(true, &[]);
    assert!(ConsoleDevice::restored(Arc::clone(&last), again).is_ok());
    let (input, _) = last.console().unwrap().saved();
    assert_eq!(input, &pasted[..taken]);
    assert_eq!(last.console().unwrap().input(b"more"), 0);
}

#[test]
fn a_console_that_is_saved_goes_on_itself() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    while bench.send(1, &[b'1'; 60_000]) {}
    bench.driver.function.quiesce().unwrap();
    let first = bench.driver.function.save();
    assert_eq!(bench.driver.function.save(), first);
    bench.driver.function.resume();
    let mut got = drained(&mut peer).len();
    bench.poll();
    got += drained(&mut peer).len();
    bench.poll();
    assert!(bench.driver.used(5).is_some());
    got += drained(&mut peer).len();
    assert_eq!(got % 60_000, 0);
    assert!(bench.receive_control().is_empty());
}

fn restored(payload: Payload) -> Result<ConsoleDevice, StateError> {
    let (host, _) = host(true, &["a"]);
    ConsoleDevice::restored(host, &mut Payloads::new(vec![payload]))
}

#[test]
fn state_of_other_ports_is_refused() {
    for (has_console, names) in [
        (false, &["a"][..]),
        (true, &["b"]),
        (true, &["a", "b"]),
        (true, &[]),
    ] {
        let (host, _) = host(has_console, names);
        let payload = ConsoleDevice::new(host).save().unwrap();
        assert!(matches!(restored(payload), Err(StateError::Value { .. })));
    }
    let (host, _) = host(true, &["a"]);
    let good = ConsoleDevice::new(host).save().unwrap();
    assert!(restored(good.clone()).is_ok());
    // Pending messages that do not exist, more input than waits, a size of 65536.
    let mut tail = vec![0x12, 0x81, 0x20];
    tail.extend([b'x'; 4097]);
    for tail in [tail, vec![0x18, 0x80, 0x80, 0x04]] {
        let mut payload = good.clone();
        payload.bytes.extend(tail);
        assert!(matches!(restored(payload), Err(StateError::Value { .. })));
    }
    assert!(GuestSide::restored(true, true, true, 1 << 6).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_state_is_refused_or_does_no_harm(
        flags: [(bool, bool, bool); 2],
        owed in prop::array::uniform2(0u32..70),
        input in prop::collection::vec(any::<u8>(), 0..20),
        noise in prop::collection::vec(any::<u8>(), 0..10),
    ) {
        use prost::Message;

        #[derive(Clone, PartialEq, Message)]
        struct Port {
            #[prost(uint32, tag = "1")]
            number: u32,
            #[prost(string, tag = "2")]
            name: String,
            #[prost(bool, tag = "3")]
            is_ready: bool,
            #[prost(bool, tag = "4")]
            is_open: bool,
            #[prost(bool, tag = "5")]
            sent_open: bool,
            #[prost(uint32, tag = "6")]
            owed: u32,
        }
        #[derive(Clone, PartialEq, Message)]
        struct State {
            #[prost(message, repeated, tag = "1")]
            ports: Vec<Port>,
            #[prost(bytes = "vec", tag = "2")]
            input: Vec<u8>,
        }
        let ports = (0u32..).zip(["", "a"]).zip(flags).zip(owed).map(
            |(((number, name), (is_ready, is_open, sent_open)), owed)| Port {
                number,
                name: name.to_owned(),
                is_ready,
                is_open,
                sent_open,
                owed,
            },
        );
        let mut bytes = State { ports: ports.collect(), input }.encode_to_vec();
        bytes.extend(noise);
        let payload = Payload { kind: "virtio-console".to_owned(), version: 1, bytes };
        if let Ok(device) = restored(payload) {
            let mut driver = Driver::ready(Box::new(device), 16, VERSION_1 | MULTIPORT);
            driver.function.resume();
            driver.settle_own(0);
            for queue in 0..6 {
                driver.offer(queue, &[write(DATA, 64)]);
                driver.kick(queue);
            }
            driver.set_status(0);
        }
    }
}

#[test]
fn the_format_of_its_state_is_that_of_its_version() {
    crate::state::kept::assert_format_is_kept::<crate::virtio::console::state::ConsoleState>();
}

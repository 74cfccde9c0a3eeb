//! Drivers that break the rules.

use super::*;

#[test]
fn messages_of_any_size_and_of_no_port_do_no_harm() {
    let mut bench = Bench::new(true, &["a"], MULTIPORT);
    for length in [0, 1, 4, 7] {
        bench.send_control_bytes(&vec![0xff; length]);
    }
    for port in [2, 3, 31, 32, 0x1_0000, NO_PORT] {
        for event in 0..10 {
            bench.send_control(port, event, u16::from(event != DEVICE_READY));
        }
    }
    for event in [PORT_ADD, 2, CONSOLE_PORT, RESIZE, PORT_NAME, 8, 0xffff] {
        bench.send_control(1, event, 1);
    }
    assert!(bench.receive_control().is_empty());
    // Longer ones are read as far as they are understood.
    let mut long = vec![0xff, 0xff, 0xff, 0xff, 0, 0, 1, 0];
    long.extend([0xee; 2000]);
    bench.send_control_bytes(&long);
    assert_eq!(bench.receive_control().len(), 2);
    assert!(!bench.driver.needs_reset());
}

#[test]
fn a_driver_that_could_not_start_gets_no_message() {
    let mut bench = Bench::new(false, &["a"], MULTIPORT);
    bench.send_control(NO_PORT, DEVICE_READY, 0);
    assert!(bench.receive_control().is_empty());
    bench.send_control(NO_PORT, DEVICE_READY, 1);
    bench.send_control(1, PORT_READY, 0);
    bench.attach(1);
    assert_eq!(bench.receive_control(), [(1, PORT_ADD, 1, vec![])]);
}

#[test]
fn asking_without_end_is_answered_once() {
    let mut bench = Bench::new(true, &["a", "b"], MULTIPORT);
    for _ in 0..500 {
        bench.send_control(NO_PORT, DEVICE_READY, 1);
        bench.send_control(1, PORT_READY, 1);
    }
    // Port 1, which is made already, is named instead of added.
    assert_eq!(bench.receive_control().len(), 3);
}

#[test]
fn queues_that_are_used_too_early_do_no_harm() {
    let mut bench = Bench::new(false, &["a"], MULTIPORT);
    let mut peer = bench.attach(1);
    // Port 0 is none here, port 1 was not announced.
    assert!(bench.send(0, b"nobody"));
    assert!(bench.send(1, b"early"));
    assert_eq!(bench.receive(0, 10), None);
    peer.write_all(b"not yet").unwrap();
    bench.poll();
    assert_eq!(bench.receive(1, 10), None);
    assert_eq!(drained(&mut peer), b"early");
}

#[test]
fn all_ports_work_at_once_and_no_more_are_possible() {
    let names: Vec<String> = (1..=MAX_NAMED_PORTS).map(|n| format!("port.{n}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut bench = Bench::open(true, &names);
    let mut peers: Vec<UnixStream> = (1..=names.len()).map(|port| bench.attach(port)).collect();
    assert_eq!(bench.receive_control().len(), names.len());
    for (port, peer) in (1u16..).zip(&mut peers) {
        let line = format!("line {port}");
        assert!(bench.send(port, line.as_bytes()));
        assert_eq!(drained(peer), line.as_bytes());
        peer.write_all(line.as_bytes()).unwrap();
        bench.poll();
        assert_eq!(bench.receive(port, 100).unwrap(), line.as_bytes());
    }
    let more = vec![String::new(); MAX_NAMED_PORTS + 1];
    let refused = ConsolePorts::new(None, more);
    assert!(matches!(refused, Err(ConsolePortsError::TooMany(32))));
}

#[test]
fn names_that_are_no_file_names_are_refused() {
    for names in [&[""][..], &["a/b"], &["a b"], &["é"], &["a", "a"], &["x\0"]] {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let refused = ConsolePorts::new(None, names);
        assert!(matches!(refused, Err(ConsolePortsError::Name(_))));
    }
    let long = "n".repeat(MAX_NAME_BYTES);
    assert!(is_name(&long));
    assert!(!is_name(&format!("{long}n")));
    let none = ConsolePorts::new(None, Vec::new());
    assert!(matches!(none, Err(ConsolePortsError::None)));
}

#[test]
fn a_queue_that_loops_ends_the_device() {
    for queue in 0..6 {
        let mut bench = Bench::open(true, &["a"]);
        let mut peer = bench.talking();
        peer.write_all(b"something to receive").unwrap();
        bench.host.console().unwrap().input(b"typed");
        let mut around = if queue % 2 == 0 {
            write(DATA, 16)
        } else {
            read(DATA, 16)
        };
        around.flags |= crate::virtio::testing::NEXT;
        around.next = 15;
        bench.driver.put_descriptor(queue, 15, around);
        // The control receive queue has good buffers before.
        bench.driver.offer_head(queue, 15);
        for _ in 0..10 {
            bench.send_control_if_alive(1, PORT_READY, 1);
        }
        bench.driver.kick(queue);
        bench.poll();
        assert!(bench.driver.needs_reset(), "queue {queue}");
        // A reset makes it good again.
        bench.driver.set_status(0);
        bench.driver.start(16, VERSION_1 | MULTIPORT);
        bench.poll();
        bench.send_control(NO_PORT, DEVICE_READY, 1);
        assert_eq!(bench.receive_control().len(), 2);
    }
}

impl Bench {
    /// As [`send_control`](Self::send_control), where the device may have given up.
    fn send_control_if_alive(&mut self, port: u32, event: u16, value: u16) {
        if self.driver.needs_reset() {
            return;
        }
        let mut message = port.to_le_bytes().to_vec();
        message.extend(event.to_le_bytes());
        message.extend(value.to_le_bytes());
        self.driver.fill(SENT, &message);
        self.driver.offer(CONTROL_TRANSMIT, &[read(SENT, 8)]);
        self.driver.kick(CONTROL_TRANSMIT);
    }
}

#[test]
fn buffers_that_are_no_ram_get_and_give_nothing() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    for address in [RAM_BYTES as u64 - 2, u64::MAX - 4] {
        bench.driver.offer(5, &[read(address, 16)]);
        bench.driver.kick(5);
        assert!(bench.driver.used(5).is_some());
        peer.write_all(b"lost").unwrap();
        bench.driver.offer(4, &[write(address, 16)]);
        bench.driver.kick(4);
        bench.poll();
        assert_eq!(bench.driver.used(4).unwrap().1, 0);
    }
    // Of the wrong direction, and without length.
    bench.driver.offer(4, &[read(DATA, 16)]);
    bench.driver.offer(4, &[write(DATA, 0)]);
    bench.driver.offer(5, &[write(DATA, 16)]);
    bench.driver.offer(5, &[read(DATA, 0)]);
    bench.driver.kick(4);
    bench.driver.kick(5);
    assert_eq!(drained(&mut peer), b"");
    peer.write_all(b"x").unwrap();
    bench.poll();
    assert_eq!(bench.receive(1, 16).map(|_| ()), Some(()));
    assert!(!bench.driver.needs_reset());
}

#[test]
fn a_message_for_which_there_is_no_room_is_cut() {
    let mut bench = Bench::new(false, &["a"], MULTIPORT);
    bench.driver.offer(CONTROL_RECEIVE, &[write(RECEIVED, 4)]);
    bench.driver.offer(CONTROL_RECEIVE, &[read(RECEIVED, 4)]);
    bench.send_control(NO_PORT, DEVICE_READY, 1);
    assert_eq!(bench.driver.used(CONTROL_RECEIVE), Some((0, 4)));
    bench.send_control(NO_PORT, DEVICE_READY, 1);
    assert_eq!(bench.driver.used(CONTROL_RECEIVE), Some((1, 0)));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in tables and rings, and whatever peers do meanwhile, the device comes to rest.
    #[test]
    fn random_descriptors_do_no_harm(
        tables in prop::collection::vec(mad_descriptors(), 6),
        heads in prop::collection::vec(0u16..17, 1..8),
        features in prop_oneof![Just(0), Just(MULTIPORT), Just(MULTIPORT | EVENT_IDX)],
        chatter in 0usize..5000,
    ) {
        let mut bench = Bench::new(true, &["a"], features | INDIRECT_DESC);
        let mut peer = bench.attach(1);
        peer.write_all(&vec![b'c'; chatter]).unwrap();
        bench.host.console().unwrap().input(b"typed");
        for (queue, table) in tables.iter().enumerate() {
            bench.driver.go_mad(queue, table, &heads);
            bench.poll();
        }
        drop(peer);
        bench.poll();
    }

    /// Messages of a driver gone mad: afterwards the handshake is as good as ever.
    #[test]
    fn random_messages_do_no_harm(
        messages in prop::collection::vec((0u32..4, 0u16..9, 0u16..3, any::<bool>()), 0..60),
    ) {
        let mut bench = Bench::open(true, &["a"]);
        let mut peer = None;
        for (port, event, value, change) in messages {
            if change {
                peer = match peer.take() {
                    Some(_) => None,
                    None => Some(bench.attach(1)),
                };
            }
            bench.send_control(port, event, value);
        }
        drop(peer);
        bench.poll();
        bench.send_control(1, PORT_READY, 1);
        bench.send_control(1, PORT_OPEN, 1);
        bench.receive_control();
        let mut peer = bench.attach(1);
        prop_assert_eq!(bench.receive_control(), [(1, PORT_OPEN, 1, vec![])]);
        peer.write_all(b"well").unwrap();
        bench.poll();
        prop_assert_eq!(bench.receive(1, 10).unwrap(), b"well");
    }
}

//! Guest, host programs and broker in any order, against what may be kept of them.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::broker::Broker;
use super::*;
use crate::virtio::vsock::hub::{MAX_ASKED, MAX_CONNECTIONS, MAX_GREETINGS, MAX_RESETS};

/// What happens next. Ports are few, so that packets meet connections.
#[derive(Clone, Debug)]
enum Step {
    Guest(Header, usize),
    /// The guest answers the request that it got last.
    Accept,
    /// A host program connects and says this.
    Connect(Vec<u8>),
    /// The host program of this index writes so much, or leaves.
    Write(usize, usize),
    Leave(usize),
    Broker(bool),
    NewBroker,
    /// The guest takes packets, with buffers of this length.
    Take(usize, usize),
    Driver,
}

fn header() -> impl Strategy<Value = Header> {
    let port = || prop_oneof![0..3u32, (1 << 30)..(1 << 30) + 4u32];
    let rare = |usual: u64| prop_oneof![30 => Just(usual), 1 => any::<u64>()];
    let addresses = (rare(CID.into()), rare(HOST_CID), port(), port());
    let kind = (
        prop_oneof![30 => Just(1u16), 1 => any::<u16>()],
        0u16..9,
        0u32..5,
    );
    let account = (
        prop_oneof![Just(ROOMY), any::<u32>()],
        prop_oneof![Just(0), any::<u32>()],
    );
    (addresses, kind, account).prop_map(|(addresses, kind, account)| Header {
        source_cid: addresses.0,
        destination_cid: addresses.1,
        source_port: addresses.2,
        destination_port: addresses.3,
        payload_bytes: 0,
        socket_type: kind.0,
        operation: kind.1,
        flags: kind.2,
        buf_alloc: account.0,
        fwd_cnt: account.1,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let line = prop_oneof![
        Just(b"CONNECT 0\n".to_vec()),
        Just(b"CONNECT 1\nand data".to_vec()),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    prop_oneof![
        6 => (header(), 0usize..70_000).prop_map(|(header, bytes)| Step::Guest(header, bytes)),
        2 => Just(Step::Accept),
        2 => line.prop_map(Step::Connect),
        2 => (0usize..8, 1usize..70_000).prop_map(|(program, bytes)| Step::Write(program, bytes)),
        1 => (0usize..8).prop_map(Step::Leave),
        2 => any::<bool>().prop_map(Step::Broker),
        1 => Just(Step::NewBroker),
        3 => (1usize..20, 45usize..70_000).prop_map(|(count, room)| Step::Take(count, room)),
        1 => Just(Step::Driver),
    ]
}

struct World {
    hub: Hub,
    control: VsockControl,
    listener: Listener,
    broker: Broker,
    programs: VecDeque<UnixStream>,
    request: Option<Header>,
}

impl World {
    fn new() -> Self {
        let (listener, socket) = Listener::new();
        let control = VsockControl::new().unwrap();
        let broker = Broker::attached_to(&control);
        let mut hub = Hub::new(CID, Some(socket)).unwrap();
        hub.set_broker(control.take_broker().unwrap());
        Self {
            hub,
            control,
            listener,
            broker,
            programs: VecDeque::new(),
            request: None,
        }
    }

    fn add(&mut self, program: UnixStream) {
        program.set_nonblocking(true).unwrap();
        self.programs.push_back(program);
        if self.programs.len() > 8 {
            self.programs.pop_front();
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            // As the queues do.
            Step::Guest(..) if self.hub.is_backlogged() => {}
            Step::Guest(header, bytes) => {
                let bytes = if header.operation == Operation::Data.number() {
                    bytes.min(MAX_PAYLOAD_BYTES)
                } else {
                    0
                };
                let header = Header {
                    payload_bytes: u32::try_from(bytes).unwrap(),
                    ..header
                };
                self.hub.on_packet(&header, &vec![1; bytes]);
            }
            Step::Accept => {
                if let Some(request) = self.request.take() {
                    let response = answer(&request, Operation::Response);
                    self.hub.on_packet(&response, &[]);
                }
            }
            Step::Connect(line) => {
                let mut program = self.listener.connect();
                program.write_all(&line).unwrap();
                self.add(program);
            }
            Step::Write(program, bytes) => {
                if let Some(program) = self.programs.get_mut(program) {
                    // As much as it takes; it may be closed.
                    _ = program.write(&vec![2; bytes]);
                }
            }
            Step::Leave(program) => _ = self.programs.remove(program),
            Step::Broker(accepts) => match self.broker.question() {
                Some((number, _)) if accepts => {
                    let program = self.broker.accept(number);
                    self.add(program);
                }
                Some((number, _)) => self.broker.refuse(number),
                None => {}
            },
            Step::NewBroker => {
                self.broker = Broker::attached_to(&self.control);
                self.hub.set_broker(self.control.take_broker().unwrap());
            }
            Step::Take(count, room) => self.take(count, room),
            Step::Driver => self.hub.clear(),
        }
        self.hub.is_poll_due = true;
        self.hub.poll();
        self.hub.expire();
        self.hub.accept();
    }

    fn take(&mut self, count: usize, room: usize) {
        for _ in 0..count {
            let Some(outgoing) = self.hub.next_packet(room) else {
                return;
            };
            assert!((44..=room).contains(&outgoing.bytes));
            let packet = self.hub.packet(outgoing.bytes);
            let (header, payload) = packet.split_first_chunk().unwrap();
            let header = Header::decode(header);
            assert_eq!(header.payload_bytes as usize, payload.len());
            assert_eq!(header.destination_cid, u64::from(CID));
            match Operation::from_number(header.operation).unwrap() {
                Operation::Request => self.request = Some(header),
                Operation::Data => assert!(!payload.is_empty()),
                _ => {}
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn nothing_grows_beyond_its_bound(steps in prop::collection::vec(step(), 1..150)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
            let [connections, greetings, asked, resets] = world.hub.sizes();
            prop_assert!(connections <= MAX_CONNECTIONS);
            prop_assert!(greetings <= MAX_GREETINGS);
            prop_assert!(asked <= MAX_ASKED);
            prop_assert!(resets <= MAX_RESETS + MAX_CONNECTIONS);
            prop_assert!(world.hub.buffered() <= connections * (64 << 10));
        }
        // Whatever came before, a guest that takes its packets has them all some time.
        world.programs.clear();
        for _ in 0..10_000 {
            if !world.hub.has_packets() {
                break;
            }
            world.take(1, 70_000);
        }
        prop_assert!(!world.hub.has_packets());
    }

    #[test]
    fn any_header_comes_back_as_it_was(header in header()) {
        prop_assert_eq!(Header::decode(&header.encode()), header);
    }
}

#[test]
fn connections_are_bounded_and_those_that_end_make_room() {
    let limits = vmm_sys::harden::Limits {
        open_files: 4 * MAX_CONNECTIONS as u64,
        file_bytes: None,
        processes: None,
    };
    if vmm_sys::harden::limit(limits).is_err() {
        test_skip::report("this process may not have enough open files");
        return;
    }
    let mut world = World::new();
    let request = |guest_port| packet(Operation::Request, 80, guest_port);
    let last = u32::try_from(MAX_CONNECTIONS).unwrap();
    let mut programs = Vec::new();
    for guest_port in 0..last {
        world.step(Step::Guest(request(guest_port), 0));
        let (number, _) = world.broker.question().expect("a question");
        programs.push(world.broker.accept(number));
        world.step(Step::Take(9, 4096));
    }
    assert_eq!(world.hub.sizes(), [MAX_CONNECTIONS, 0, 0, 0]);
    world.step(Step::Guest(request(last), 0));
    assert_eq!(world.broker.question(), None);
    assert_eq!(world.hub.sizes(), [MAX_CONNECTIONS, 0, 0, 1]);
    // Host programs wait in their queue.
    world.step(Step::Connect(b"CONNECT 5\n".to_vec()));
    assert_eq!(world.hub.sizes()[1], 0);

    world.step(Step::Guest(packet(Operation::Reset, 80, 7), 0));
    assert_eq!(world.hub.sizes()[0], MAX_CONNECTIONS);
    world.step(Step::Take(9, 4096));
    assert_eq!(
        world.request.map(|request| request.destination_port),
        Some(5)
    );
}

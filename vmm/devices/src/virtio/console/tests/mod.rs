use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Mutex;

use proptest::prelude::*;

use super::*;
use crate::pci::function::PciFunction;
use crate::serial::ConsoleOutput;
use crate::virtio::testing::{Driver, RAM_BYTES, mad_descriptors, read, write};
use crate::virtio::transport::{EVENT_IDX, INDIRECT_DESC, VERSION_1};

mod console;
mod data;
mod hostile;
mod state;

/// Buffers are above the rings of 66 queues.
const DATA: u64 = 0x30_0000;
/// Where control messages are received and sent.
const RECEIVED: u64 = 0x2f_0000;
const SENT: u64 = 0x2e_0000;

/// `VIRTIO_CONSOLE_BAD_ID`.
const NO_PORT: u32 = u32::MAX;

/// Events of the control protocol.
const DEVICE_READY: u16 = 0;
const PORT_ADD: u16 = 1;
const PORT_READY: u16 = 3;
const CONSOLE_PORT: u16 = 4;
const RESIZE: u16 = 5;
const PORT_OPEN: u16 = 6;
const PORT_NAME: u16 = 7;

#[derive(Default)]
struct Kept(Mutex<Vec<u8>>);

impl ConsoleOutput for Kept {
    fn write(&self, bytes: &[u8]) {
        self.0.lock().unwrap().extend_from_slice(bytes);
    }
}

/// A message as the driver reads it: port, event, value, what follows.
type ControlMessage = (u32, u16, u16, Vec<u8>);

struct Bench {
    driver: Driver,
    host: Arc<ConsolePorts>,
    printed: Arc<Kept>,
}

fn host(has_console: bool, names: &[&str]) -> (Arc<ConsolePorts>, Arc<Kept>) {
    let printed = Arc::new(Kept::default());
    let console = has_console.then(|| ConsoleSpec {
        name: String::new(),
        output: printed.clone(),
        size: ConsoleSize::default(),
    });
    let names = names.iter().map(|name| (*name).to_owned()).collect();
    (ConsolePorts::new(console, names).unwrap(), printed)
}

impl Bench {
    /// A device whose driver is ready but has sent no control message yet.
    fn new(has_console: bool, names: &[&str], features: u64) -> Self {
        let (host, printed) = host(has_console, names);
        let device = Box::new(ConsoleDevice::new(Arc::clone(&host)));
        let mut bench = Self {
            driver: Driver::ready(device, 16, VERSION_1 | features),
            host,
            printed,
        };
        bench.poll();
        bench
    }

    /// As [`new`](Self::new), after the whole handshake, every port opened by the guest.
    fn open(has_console: bool, names: &[&str]) -> Self {
        let mut bench = Self::new(has_console, names, MULTIPORT | EVENT_IDX);
        bench.send_control(NO_PORT, DEVICE_READY, 1);
        for number in bench.numbers() {
            bench.send_control(number, PORT_READY, 1);
            bench.send_control(number, PORT_OPEN, 1);
        }
        bench.receive_control();
        bench
    }

    fn numbers(&self) -> Vec<u32> {
        let first = u32::from(self.host.console().is_none());
        let end = u32::try_from(self.host.named().len()).unwrap() + 1;
        (first..end).collect()
    }

    /// Lets the device see to what happened on the host's side.
    fn poll(&mut self) {
        // A device that was ended looks at nothing any more.
        for _ in 0..1000 {
            if !self.driver.settle_own(0) {
                break;
            }
        }
        self.driver.settle();
    }

    fn send_control(&mut self, port: u32, event: u16, value: u16) {
        let mut message = port.to_le_bytes().to_vec();
        message.extend(event.to_le_bytes());
        message.extend(value.to_le_bytes());
        self.send_control_bytes(&message);
    }

    fn send_control_bytes(&mut self, message: &[u8]) {
        self.driver.fill(SENT, message);
        let bytes = u32::try_from(message.len()).unwrap();
        let head = self.driver.offer(CONTROL_TRANSMIT, &[read(SENT, bytes)]);
        self.driver.kick(CONTROL_TRANSMIT);
        let used = self.driver.used(CONTROL_TRANSMIT);
        assert_eq!(used, Some((head.into(), 0)));
    }

    /// Control messages of the device.
    fn receive_control(&mut self) -> Vec<ControlMessage> {
        let mut messages = Vec::new();
        loop {
            let before = messages.len();
            // Buffers that were not used wait for the next call.
            for index in self.offered()..8 {
                let at = RECEIVED + u64::from(index) * 128;
                self.driver.offer(CONTROL_RECEIVE, &[write(at, 128)]);
            }
            self.driver.kick(CONTROL_RECEIVE);
            while let Some((head, bytes)) = self.driver.used(CONTROL_RECEIVE) {
                let at = self.driver.rings(CONTROL_RECEIVE) + u64::from(head) * 16;
                let address = self.driver.bytes(at, 8);
                let address = u64::from_le_bytes(address.try_into().unwrap());
                let message = self.driver.bytes(address, usize::try_from(bytes).unwrap());
                let word = |at: usize| u16::from_le_bytes([message[at], message[at + 1]]);
                let port = u32::from(word(0)) | u32::from(word(2)) << 16;
                messages.push((port, word(4), word(6), message[8..].to_vec()));
            }
            if messages.len() == before {
                return messages;
            }
        }
    }

    /// Control buffers that the device has not used.
    fn offered(&mut self) -> u16 {
        let rings = self.driver.rings(CONTROL_RECEIVE);
        let word = |at| u16::from_le_bytes(self.driver.bytes(at, 2).try_into().unwrap());
        word(rings + 0x4000 + 2).wrapping_sub(word(rings + 0x6000 + 2))
    }

    /// Attaches a peer to the named port of this number, from 1 on, which the device sees.
    fn attach(&mut self, port: usize) -> UnixStream {
        let ours = self.attach_unseen(port, false).unwrap();
        self.poll();
        ours
    }

    fn attach_unseen(&self, port: usize, force: bool) -> Result<UnixStream, AttachError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        self.host.named()[port - 1].attach(theirs.into(), "peer", force)?;
        Ok(ours)
    }

    /// A peer on port 1 that the guest knows of.
    fn talking(&mut self) -> UnixStream {
        let peer = self.attach(1);
        assert_eq!(self.receive_control(), [(1, PORT_OPEN, 1, vec![])]);
        peer
    }

    /// The guest writes to a port. Whether the device has taken it.
    fn send(&mut self, port: u16, bytes: &[u8]) -> bool {
        let queue = config::receive_queue(port) + 1;
        self.driver.fill(DATA, bytes);
        let count = u32::try_from(bytes.len()).unwrap();
        self.driver.offer(queue, &[read(DATA, count)]);
        self.driver.kick(queue);
        self.driver.used(queue).is_some()
    }

    /// The guest offers a buffer of so many bytes and gets what there is.
    fn receive(&mut self, port: u16, bytes: u32) -> Option<Vec<u8>> {
        let queue = config::receive_queue(port);
        self.driver.offer(queue, &[write(DATA, bytes)]);
        self.driver.kick(queue);
        self.received(port)
    }

    /// What came into a buffer that was offered at [`DATA`].
    fn received(&mut self, port: u16) -> Option<Vec<u8>> {
        let (_, count) = self.driver.used(config::receive_queue(port))?;
        Some(self.driver.bytes(DATA, usize::try_from(count).unwrap()))
    }

    /// The same guest on a device that was made of this one's state.
    fn moved(self, has_console: bool, names: &[&str]) -> Self {
        let (host, printed) = host(has_console, names);
        let made = Arc::clone(&host);
        let driver = self
            .driver
            .moved_by(|payloads| Box::new(ConsoleDevice::restored(made, payloads).unwrap()));
        let mut bench = Self {
            driver,
            host,
            printed,
        };
        bench.driver.function.resume();
        bench.poll();
        bench
    }
}

fn drained(peer: &mut UnixStream) -> Vec<u8> {
    let mut all = Vec::new();
    let mut piece = [0; 4096];
    while let Ok(count) = peer.read(&mut piece) {
        if count == 0 {
            break;
        }
        all.extend_from_slice(&piece[..count]);
    }
    all
}

/// Whether the other end of a peer's socket was closed.
fn is_closed(peer: &mut UnixStream) -> bool {
    matches!(peer.read(&mut [0; 1]), Ok(0))
}

#[test]
fn a_driver_learns_of_every_port() {
    let mut bench = Bench::new(true, &["org.qemu.guest_agent.0", "b"], MULTIPORT);
    assert!(bench.receive_control().is_empty());
    bench.send_control(NO_PORT, DEVICE_READY, 1);
    let added = |port| (port, PORT_ADD, 1, vec![]);
    assert_eq!(bench.receive_control(), [added(0), added(1), added(2)]);
    bench.send_control(0, PORT_READY, 1);
    let open = |port| (port, PORT_OPEN, 1, vec![]);
    assert_eq!(
        bench.receive_control(),
        [(0, CONSOLE_PORT, 1, vec![]), open(0)]
    );
    let _peer = bench.attach(1);
    assert!(bench.receive_control().is_empty(), "port 1 is not made yet");
    bench.send_control(1, PORT_READY, 1);
    let name = b"org.qemu.guest_agent.0".to_vec();
    assert_eq!(bench.receive_control(), [(1, PORT_NAME, 1, name), open(1)]);
    bench.send_control(2, PORT_READY, 1);
    assert_eq!(bench.receive_control(), [(2, PORT_NAME, 1, b"b".to_vec())]);
}

#[test]
fn configuration_says_how_many_ports_there_may_be() {
    for (has_console, names, ports) in
        [(true, &[][..], 1u32), (false, &["a"], 2), (true, &["a"], 2)]
    {
        let mut bench = Bench::new(has_console, names, MULTIPORT);
        let mut config = [0xff; 8];
        bench.driver.function.bar_read(0, 0x2000, &mut config);
        assert_eq!(config[..4], [0; 4]);
        assert_eq!(config[4..], ports.to_le_bytes());
    }
}

#[test]
fn a_peer_that_comes_and_goes_is_seen_open_and_closed() {
    let mut bench = Bench::open(false, &["a"]);
    for _ in 0..3 {
        let peer = bench.talking();
        drop(peer);
        bench.poll();
        assert_eq!(bench.receive_control(), [(1, PORT_OPEN, 0, vec![])]);
    }
}

#[test]
fn one_peer_at_a_time_and_another_only_by_force() {
    let mut bench = Bench::open(false, &["a"]);
    let mut first = bench.talking();
    let refused = bench.attach_unseen(1, false);
    assert!(matches!(refused, Err(AttachError::Busy { client }) if client == "peer"));
    let _second = bench.attach_unseen(1, true).unwrap();
    bench.poll();
    assert!(is_closed(&mut first));
    let expected = [(1, PORT_OPEN, 0, vec![]), (1, PORT_OPEN, 1, vec![])];
    assert_eq!(bench.receive_control(), expected);
}

#[test]
fn a_peer_that_is_gone_is_in_nobodys_way() {
    let mut bench = Bench::open(false, &["a"]);
    bench.send_control(1, PORT_OPEN, 0);
    drop(bench.attach_unseen(1, false).unwrap());
    // The device has not looked.
    let _next = bench.attach_unseen(1, false).unwrap();
    bench.poll();
    assert_eq!(bench.receive_control(), [(1, PORT_OPEN, 1, vec![])]);
}

#[test]
fn a_reset_forgets_the_guest_and_keeps_the_peer() {
    let mut bench = Bench::open(false, &["a"]);
    let mut peer = bench.talking();
    peer.write_all(b"for the next kernel").unwrap();
    bench.driver.set_status(0);
    bench.driver.start(16, VERSION_1 | MULTIPORT);
    bench.poll();
    assert_eq!(bench.receive(1, 64), None, "the port is not open yet");
    bench.send_control(NO_PORT, DEVICE_READY, 1);
    bench.send_control(1, PORT_READY, 1);
    bench.send_control(1, PORT_OPEN, 1);
    assert_eq!(
        bench.received(1),
        None,
        "the driver has no message of the peer"
    );
    assert_eq!(
        bench.receive_control().last(),
        Some(&(1, PORT_OPEN, 1, vec![]))
    );
    assert_eq!(bench.received(1).unwrap(), b"for the next kernel");
}

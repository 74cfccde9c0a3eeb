//! The device with a driver, host programs and a broker.

mod broker;
mod guest_side;
mod hostile;
mod hub;
mod state;

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::time::Duration;

use vmm_sys::socket::ListeningSocket;

use super::packet::*;
use super::*;
use crate::virtio::testing::{BUFFERS, Driver, RAM_BYTES, read, write};
use crate::virtio::transport::VERSION_1;

const CID: u32 = 42;
const QUEUE: u16 = 64;
const RECEIVE: usize = 0;
const EVENT: usize = 2;
/// Buffers of the receive queue, and their length.
const RECEIVE_BUFFERS: u32 = 32;
const BUFFER_BYTES: u32 = 4096 + 44;
/// Packets of the guest go here.
const SENT: u64 = BUFFERS + 0x8_0000;
/// Events come here.
const EVENTS: u64 = BUFFERS + 0xc_0000;
/// A guest's buffer that is never full in a test that does not want it to be.
const ROOMY: u32 = 1 << 20;

/// Where host programs connect.
pub(super) struct Listener {
    directory: tempfile::TempDir,
}

impl Listener {
    pub(super) fn new() -> (Self, ListeningSocket) {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("vsock")).unwrap();
        let listener = ListeningSocket::adopt(listener.into()).unwrap();
        (Self { directory }, listener)
    }

    /// A host program, which has said nothing yet.
    pub(super) fn connect(&self) -> UnixStream {
        let socket = UnixStream::connect(self.directory.path().join("vsock")).unwrap();
        let patience = Some(Duration::from_secs(20));
        socket.set_read_timeout(patience).unwrap();
        socket
    }
}

/// A guest with a socket device.
struct Bench {
    driver: Driver,
    listener: Listener,
    control: Arc<VsockControl>,
    /// Where the buffer of each head of the receive queue is.
    buffers: BTreeMap<u32, u64>,
}

fn device(listener: ListeningSocket) -> (VsockConfig, Arc<VsockControl>) {
    let control = Arc::new(VsockControl::new().unwrap());
    let config = VsockConfig {
        guest_cid: CID,
        listener: Some(listener),
        control: Arc::clone(&control),
    };
    (config, control)
}

/// A packet of the guest.
fn packet(operation: Operation, host_port: u32, guest_port: u32) -> Header {
    Header {
        source_cid: CID.into(),
        destination_cid: HOST_CID,
        source_port: guest_port,
        destination_port: host_port,
        socket_type: STREAM,
        operation: operation.number(),
        buf_alloc: ROOMY,
        ..Header::default()
    }
}

impl Bench {
    /// With a driver that has given buffers for packets and none for events.
    fn new() -> Self {
        let mut bench = Self::without_buffers();
        bench.offer_buffers();
        bench
    }

    fn without_buffers() -> Self {
        let (listener, socket) = Listener::new();
        let (config, control) = device(socket);
        let device = VsockDevice::new(config).unwrap();
        Self {
            driver: Driver::ready(Box::new(device), QUEUE, VERSION_1),
            listener,
            control,
            buffers: BTreeMap::new(),
        }
    }

    fn offer_buffers(&mut self) {
        for index in 0..RECEIVE_BUFFERS {
            self.offer_buffer(BUFFERS + u64::from(index) * 0x2000);
        }
        self.driver.ring_kick(RECEIVE);
        self.settle();
    }

    fn offer_buffer(&mut self, address: u64) {
        let head = self.driver.offer(RECEIVE, &[write(address, BUFFER_BYTES)]);
        self.buffers.insert(head.into(), address);
    }

    /// Lets the device work until it rests.
    fn settle(&mut self) {
        self.driver.settle();
        while self.driver.settle_own(0) {}
        assert!(!self.driver.needs_reset());
    }

    /// The guest sends a packet.
    fn send(&mut self, header: &Header, payload: &[u8]) {
        self.driver.fill(SENT, &header.encode());
        self.driver.fill(SENT + 0x1000, payload);
        let bytes = u32::try_from(payload.len()).unwrap();
        let header = read(SENT, 44);
        if bytes == 0 {
            self.driver.offer(TRANSMIT, &[header]);
        } else {
            self.driver
                .offer(TRANSMIT, &[header, read(SENT + 0x1000, bytes)]);
        }
        self.driver.ring_kick(TRANSMIT);
        self.settle();
        assert!(self.driver.used(TRANSMIT).is_some());
    }

    /// The guest sends data on a connection that `of` is a packet of.
    fn send_data(&mut self, of: &Header, data: &[u8]) {
        let header = Header {
            payload_bytes: u32::try_from(data.len()).unwrap(),
            ..answer(of, Operation::Data)
        };
        self.send(&header, data);
    }

    /// The next packet that the guest got; its buffer goes back.
    fn receive(&mut self) -> Option<(Header, Vec<u8>)> {
        self.settle();
        let (head, bytes) = self.driver.used(RECEIVE)?;
        let address = self.buffers.remove(&head).unwrap();
        let packet = self.driver.bytes(address, usize::try_from(bytes).unwrap());
        self.offer_buffer(address);
        self.driver.ring_kick(RECEIVE);
        self.settle();
        let (header, payload) = packet.split_first_chunk().unwrap();
        let header = Header::decode(header);
        assert_eq!(header.payload_bytes as usize, payload.len());
        Some((header, payload.to_vec()))
    }

    /// The next packet, which is for this and has no payload.
    #[track_caller]
    fn expect(&mut self, operation: Operation) -> Header {
        let (header, payload) = self.receive().expect("a packet");
        assert_eq!(header.operation, operation.number(), "{header:?}");
        assert_eq!(payload, b"");
        header
    }

    /// The next packet, which is this data.
    #[track_caller]
    fn expect_data(&mut self, data: &[u8]) -> Header {
        let (header, payload) = self.receive().expect("a packet");
        assert_eq!(header.operation, Operation::Data.number(), "{header:?}");
        assert_eq!(payload, data);
        header
    }

    /// A host program and the guest, connected; with the request that the guest got.
    fn connected(&mut self, guest_port: u32) -> (UnixStream, Header) {
        let mut program = self.listener.connect();
        program
            .write_all(format!("CONNECT {guest_port}\n").as_bytes())
            .unwrap();
        let request = self.expect(Operation::Request);
        assert_eq!(request.destination_port, guest_port);
        self.send(&answer(&request, Operation::Response), &[]);
        let ok = format!("OK {}\n", request.source_port);
        assert_eq!(text(&mut program, ok.len()), ok);
        (program, request)
    }
}

/// A packet of the guest on the connection that `of`, which it got, is of.
fn answer(of: &Header, operation: Operation) -> Header {
    packet(operation, of.source_port, of.destination_port)
}

fn shutdown(of: &Header, flags: u32) -> Header {
    Header {
        flags,
        ..answer(of, Operation::Shutdown)
    }
}

fn text(socket: &mut UnixStream, bytes: usize) -> String {
    let mut text = vec![0; bytes];
    socket.read_exact(&mut text).unwrap();
    String::from_utf8(text).unwrap()
}

/// All that comes until the end.
fn rest(socket: &mut UnixStream) -> Vec<u8> {
    let mut rest = Vec::new();
    socket.read_to_end(&mut rest).unwrap();
    rest
}

#[test]
fn the_guest_reads_its_address() {
    let mut bench = Bench::new();
    let mut cid = [0xff; 16];
    bench.driver.function_read(&mut cid);
    assert_eq!(cid[..8], u64::from(CID).to_le_bytes());
    assert_eq!(cid[8..], [0; 8]);
    for guest_cid in [0, 1, 2, u32::MAX] {
        let (_listener, socket) = Listener::new();
        let (config, _) = device(socket);
        let refused = VsockDevice::new(VsockConfig {
            guest_cid,
            ..config
        });
        assert!(matches!(refused, Err(VsockError::Cid(cid)) if cid == guest_cid));
    }
}

impl Driver {
    fn function_read(&mut self, data: &mut [u8]) {
        use crate::pci::function::PciFunction;
        self.function.bar_read(0, 0x2000, data);
    }
}

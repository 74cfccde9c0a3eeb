//! A socket device whose host side is hostile: programs that connect and say anything, and a broker
//! that answers as it likes.

use std::io::{IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};
use vmm_devices::Payloads;
use vmm_devices::virtio::VirtioDevice;
use vmm_devices::virtio::vsock::{VsockConfig, VsockControl, VsockDevice};
use vmm_sys::socket::ListeningSocket;

use super::vsock::{CID, header};
use crate::driver::Peer;
use crate::input::Input;

/// Ports that the device gives to programs of the host begin here.
const FIRST_HOST_PORT: u32 = 1 << 30;
/// Programs at a time.
const MAX_PROGRAMS: usize = 8;
/// What happens in one go.
const MAX_EVENTS: usize = 6;
static LISTENERS: AtomicU64 = AtomicU64::new(0);

/// The host's side.
pub struct VsockHostPeer {
    control: Arc<VsockControl>,
    listener: UnixListener,
    address: SocketAddr,
    programs: Vec<UnixStream>,
    broker: Option<OwnedFd>,
    /// The number of the last question.
    asked: u64,
}

impl VsockHostPeer {
    /// Nobody has connected, and there is no broker.
    pub fn new() -> Self {
        let number = LISTENERS.fetch_add(1, Ordering::Relaxed);
        let name = format!("vmm-fuzz-{}-{number}", std::process::id());
        let address = SocketAddr::from_abstract_name(name).expect("a name");
        Self {
            control: Arc::new(VsockControl::new().expect("descriptors")),
            listener: UnixListener::bind_addr(&address).expect("a socket"),
            address,
            programs: Vec::new(),
            broker: None,
            asked: 0,
        }
    }

    fn config(&self) -> VsockConfig {
        let listener = self.listener.try_clone().expect("a descriptor");
        VsockConfig {
            guest_cid: CID,
            listener: Some(ListeningSocket::adopt(listener.into()).expect("a socket")),
            control: Arc::clone(&self.control),
        }
    }

    fn connect(&mut self) {
        self.programs.truncate(MAX_PROGRAMS - 1);
        // Nobody takes it when the device has as many as it wants: then it waits in the backlog, which
        // is far longer than a program can fill.
        let program = UnixStream::connect_addr(&self.address).expect("a connection");
        program.set_nonblocking(true).expect("a socket");
        self.programs.insert(0, program);
    }

    fn program(&mut self, input: &mut Input<'_>) -> Option<&mut UnixStream> {
        let index = input.below(MAX_PROGRAMS);
        self.programs.get_mut(index)
    }

    fn attach(&mut self) {
        let (unix, flags) = (AddressFamily::Unix, SockFlag::SOCK_NONBLOCK);
        let (ours, theirs) = socketpair(unix, SockType::SeqPacket, None, flags).expect("sockets");
        self.control.attach_broker(theirs).expect("a broker");
        self.broker = Some(ours);
    }

    /// Reads a question.
    fn receive(&mut self) {
        let mut packet = [0; 32];
        let received = self
            .broker
            .as_ref()
            .and_then(|broker| recv(broker.as_raw_fd(), &mut packet, MsgFlags::MSG_DONTWAIT).ok());
        if received.is_some_and(|bytes| bytes >= 8)
            && let Some(number) = packet.first_chunk()
        {
            self.asked = u64::from_le_bytes(*number);
        }
    }

    /// Says something: a nearly right answer, or anything.
    fn answer(&mut self, input: &mut Input<'_>) {
        let number = if input.u8() < 200 {
            self.asked.wrapping_add((input.u8() / 64).into())
        } else {
            input.u64()
        };
        let mut packet = number.to_le_bytes().to_vec();
        packet.extend(u32::from(input.u8() % 3).to_le_bytes());
        packet.extend(u32::from(input.u8() / 230).to_le_bytes());
        if input.u8() > 230 {
            let length = input.below(40);
            packet = input.bytes(length).to_vec();
        }
        let descriptors: Vec<OwnedFd> = (0..input.below(4)).map(|_| descriptor(input)).collect();
        let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[_] = if raw.is_empty() { &[] } else { &rights };
        let flags = MsgFlags::MSG_NOSIGNAL | MsgFlags::MSG_DONTWAIT;
        if let Some(broker) = &self.broker {
            // The device may have left it alone.
            let part = [IoSlice::new(&packet)];
            let _ = sendmsg::<()>(broker.as_raw_fd(), &part, control, flags, None);
        }
    }
}

/// What a broker may hand over: a connected stream, mostly.
fn descriptor(input: &mut Input<'_>) -> OwnedFd {
    let kind = match input.below(8) {
        0 => return std::fs::File::open("/dev/null").expect("a file").into(),
        1 => SockType::SeqPacket,
        2 => SockType::Datagram,
        _ => SockType::Stream,
    };
    let (unix, flags) = (AddressFamily::Unix, SockFlag::empty());
    let (ours, theirs) = socketpair(unix, kind, None, flags).expect("sockets");
    let _ = nix::unistd::write(&theirs, input.bytes(20));
    ours
}

impl Peer for VsockHostPeer {
    fn device(&self) -> Box<dyn VirtioDevice> {
        Box::new(VsockDevice::new(self.config()).expect("a device"))
    }

    fn restored(&self, payloads: &mut Payloads) -> Option<Box<dyn VirtioDevice>> {
        let device = VsockDevice::restored(self.config(), payloads).ok()?;
        Some(Box::new(device))
    }

    fn request(&self, input: &mut Input<'_>) -> Vec<u8> {
        let host_port = if input.flag() {
            FIRST_HOST_PORT | u32::from(input.u8() % 8)
        } else {
            u32::from(input.u8() % 4)
        };
        header(input, host_port)
    }

    fn happen(&mut self, input: &mut Input<'_>) {
        for _ in 0..=input.below(MAX_EVENTS) {
            match input.below(10) {
                0 => self.connect(),
                1 => {
                    let port = input.u8() % 4;
                    let line = format!("CONNECT {port}\n");
                    // One whose socket is full, or that was refused, says nothing.
                    let _ = self.program(input).map(|p| p.write(line.as_bytes()));
                }
                2 => {
                    let length = input.below(64);
                    let said = input.bytes(length);
                    let _ = self.program(input).map(|program| program.write(said));
                }
                3 => {
                    let many = vec![b'x'; usize::from(input.u16() % 9000)];
                    let _ = self.program(input).map(|program| program.write(&many));
                }
                4 => {
                    let mut received = [0; 4096];
                    let _ = self
                        .program(input)
                        .map(|program| program.read(&mut received));
                }
                5 => {
                    let index = input.below(MAX_PROGRAMS);
                    if index < self.programs.len() {
                        self.programs.remove(index);
                    }
                }
                6 => self.attach(),
                7 => self.receive(),
                8 => self.answer(input),
                _ => self.broker = None,
            }
        }
    }
}

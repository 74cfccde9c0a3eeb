//! Sockets between the guest and this process.

use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};
use vmm_devices::virtio::vsock::{VsockConfig, VsockControl};
use vmm_sys::socket::ListeningSocket;

use super::*;

const CID: u32 = 4711;
/// The guest echoes here.
const PORT: u32 = 7;

struct Sockets {
    directory: tempfile::TempDir,
    control: Arc<VsockControl>,
}

impl Sockets {
    fn new() -> (Self, DeviceConfig) {
        let directory = tempfile::tempdir().expect("a directory");
        let listener = UnixListener::bind(directory.path().join("vsock")).expect("a socket");
        let control = Arc::new(VsockControl::new().expect("a handle"));
        let config = VsockConfig {
            guest_cid: CID,
            listener: Some(ListeningSocket::adopt(listener.into()).expect("a listener")),
            control: Arc::clone(&control),
        };
        (Self { directory, control }, DeviceConfig::Vsock(config))
    }

    /// A program that wants to reach `port` of the guest.
    fn connect(&self, port: u32) -> UnixStream {
        let path = self.directory.path().join("vsock");
        let mut program = UnixStream::connect(path).expect("connected");
        program.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        writeln!(program, "CONNECT {port}").expect("said");
        program
    }
}

/// Reads the answer to `CONNECT`.
fn expect_ok(program: &mut UnixStream) {
    let mut line = Vec::new();
    while line.last() != Some(&b'\n') {
        let mut byte = [0];
        program.read_exact(&mut byte).expect("an answer");
        line.extend(byte);
    }
    assert!(line.starts_with(b"OK "), "{line:?}");
}

fn data(bytes: u32) -> Vec<u8> {
    (0..bytes).map(|i| (i % 253).to_le_bytes()[0]).collect()
}

/// Writes all of `data` and ends, while it reads what comes back.
fn exchange(mut program: UnixStream, data: Vec<u8>) {
    let mut writer = program.try_clone().expect("a descriptor");
    let expected = data.clone();
    let writing = std::thread::spawn(move || {
        writer.write_all(&data).expect("written");
        writer
            .shutdown(std::net::Shutdown::Write)
            .expect("half closed");
    });
    let mut back = Vec::new();
    program.read_to_end(&mut back).expect("read");
    writing.join().expect("written");
    assert!(back == expected, "{} of {}", back.len(), expected.len());
}

#[test]
fn a_mebibyte_is_echoed_with_interrupts_and_by_polling() {
    skip_if!(without_machine());
    for mode in ["irq", "poll"] {
        let (sockets, device) = Sockets::new();
        let command_line = format!("tests=vsock vsock_serve=1 mode={mode}");
        let machine = Machine::boot(&command_line, KernelEntry::Default, vec![device]);
        // Nobody listens there.
        let mut refused = sockets.connect(PORT + 1);
        assert_eq!(refused.read(&mut [0]).expect("closed"), 0);
        let mut program = sockets.connect(PORT);
        expect_ok(&mut program);
        exchange(program, data(1 << 20));
        let (status, results) = machine.ended();
        assert!(results.one("done").contains(" failed=0 "), "{results:#?}");
        assert_eq!(results.number("vsock", "cid"), u64::from(CID));
        assert_eq!(results.number("vsock", "echoed_bytes"), 1 << 20);
        assert_eq!(results.number("vsock", "irqs") > 0, mode == "irq");
        assert_powered_off(&status, &results);
    }
}

#[test]
fn a_hundred_programs_are_served_at_once() {
    skip_if!(without_machine());
    let (sockets, device) = Sockets::new();
    let command_line = "tests=vsock vsock_serve=100";
    let machine = Machine::boot(command_line, KernelEntry::Default, vec![device]);
    let mut programs: Vec<_> = (0..100).map(|_| sockets.connect(PORT)).collect();
    programs.iter_mut().for_each(expect_ok);
    // All write before any reads.
    let data = data(5000);
    for program in &mut programs {
        program.write_all(&data).expect("written");
    }
    for mut program in programs {
        let mut back = vec![0; data.len()];
        program.read_exact(&mut back).expect("read");
        assert!(back == data);
        // The other half is still open.
        program
            .shutdown(std::net::Shutdown::Write)
            .expect("half closed");
        assert_eq!(program.read(&mut [0]).expect("closed"), 0);
    }
    let (_, results) = machine.ended();
    assert!(results.one("done").contains(" failed=0 "), "{results:#?}");
    assert_eq!(results.number("vsock", "served"), 100);
}

/// A broker that connects the guest, once, to a program that sends all back; or refuses.
fn broker(control: &VsockControl, accepts: bool) -> JoinHandle<()> {
    let (unix, none) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    let (ours, theirs) =
        socketpair(unix, SockType::SeqPacket, None, none).expect("a pair of sockets");
    control.attach_broker(theirs).expect("attached");
    std::thread::spawn(move || {
        let mut question = [0; 16];
        let bytes = recv(ours.as_raw_fd(), &mut question, MsgFlags::empty());
        assert_eq!(bytes, Ok(16));
        assert_eq!(question[8..], [80, 0, 0, 0, 0, 0, 0, 0]);
        let mut answer = [0; 16];
        answer[..8].copy_from_slice(&question[..8]);
        answer[8] = accepts.into();
        if accepts {
            let (mut program, guest) = UnixStream::pair().expect("a pair of sockets");
            reply(&ours, &answer, &[guest.as_raw_fd()]);
            drop(guest);
            let mut reader = program.try_clone().expect("a descriptor");
            std::io::copy(&mut reader, &mut program).expect("echoed");
        } else {
            reply(&ours, &answer, &[]);
        }
    })
}

fn reply(socket: &OwnedFd, answer: &[u8], descriptors: &[i32]) {
    let rights = [ControlMessage::ScmRights(descriptors)];
    let control: &[_] = if descriptors.is_empty() { &[] } else { &rights };
    let part = [std::io::IoSlice::new(answer)];
    sendmsg::<()>(socket.as_raw_fd(), &part, control, MsgFlags::empty(), None).expect("answered");
}

#[test]
fn the_guest_reaches_programs_by_a_broker_that_wants_it_to() {
    skip_if!(without_machine());
    for (accepts, outcome) in [(true, "connect=echoed"), (false, "connect=refused")] {
        let (sockets, device) = Sockets::new();
        let broker = broker(&sockets.control, accepts);
        let command_line = "tests=vsock vsock_connect=80 vsock_kib=1024";
        let machine = Machine::boot(command_line, KernelEntry::Default, vec![device]);
        let (_, results) = machine.ended();
        assert!(results.one("vsock").contains(outcome), "{results:#?}");
        broker.join().expect("a broker");
    }
}

#[test]
fn without_a_broker_the_guest_is_refused_and_goes_on() {
    skip_if!(without_machine());
    let (sockets, device) = Sockets::new();
    let command_line = "tests=vsock vsock_connect=80 vsock_serve=1";
    let machine = Machine::boot(command_line, KernelEntry::Default, vec![device]);
    let mut program = sockets.connect(PORT);
    expect_ok(&mut program);
    exchange(program, data(10_000));
    let (_, results) = machine.ended();
    assert!(
        results.one("vsock").contains("connect=refused"),
        "{results:#?}"
    );
    assert_eq!(results.number("vsock", "served"), 1);
}

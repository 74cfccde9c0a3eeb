//! The ports of a virtio console.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::time::Duration;

use integration::skip::without_kvm;
use integration::vmm_client::{VmmClient, VmmProcess};
use integration::{skip_if, testguest};
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::{ByHand, soon};

const AGENT: &str = "org.qemu.guest_agent.0";
const GREETING: &[u8] = b"TESTGUEST on the console port\r\n";

/// `testguest` with a console, and the agent's port behind a listening socket.
fn guest(sessions: u32) -> ByHand {
    let elf = testguest::elf().expect("checked before");
    let mut by_hand = ByHand::new(File::open(elf).expect("the guest"));
    let kernel = by_hand.config.kernel.as_mut().expect("a kernel");
    kernel.cmdline = format!("tests=console console_sessions={sessions}");
    let ports = vec![
        v1::VirtioConsolePort {
            is_console: true,
            ..v1::VirtioConsolePort::default()
        },
        v1::VirtioConsolePort {
            name: AGENT.to_owned(),
            listen_fd: Some(4),
            ..v1::VirtioConsolePort::default()
        },
    ];
    by_hand.config.devices = vec![v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: 0,
            device: 1,
            function: 0,
        }),
        kind: Some(v1::pci_device::Kind::Console(v1::VirtioConsole {
            ports,
            ..v1::VirtioConsole::default()
        })),
        ..v1::PciDevice::default()
    }];
    by_hand
}

fn connect(path: &Path) -> UnixStream {
    let peer = UnixStream::connect(path).expect("connected");
    peer.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    peer
}

fn attach(client: &mut VmmClient, port: &str, force: bool) -> (UnixStream, v1::Response) {
    let (ours, theirs) = UnixStream::pair().expect("a pair");
    ours.set_read_timeout(Some(Duration::from_secs(20)))
        .expect("set");
    let attach = Kind::AttachPort(v1::AttachPort {
        port: port.to_owned(),
        force,
        client: "test".to_owned(),
        replay: true,
        replay_from: 10,
    });
    let response = client
        .request(attach, &[theirs.as_fd()])
        .expect("an answer");
    (ours, response)
}

fn exchange(peer: &mut UnixStream, text: &[u8]) {
    peer.write_all(text).expect("written");
    let mut echo = vec![0; text.len()];
    peer.read_exact(&mut echo).expect("an echo");
    assert_eq!(echo, text);
}

#[test]
fn peers_come_by_the_socket_or_by_the_agent_one_at_a_time() {
    skip_if!(without_kvm().or_else(testguest::missing));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let by_hand = guest(3);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot_with(&mut client, &[listener.as_fd()]);
    drop(listener);

    let mut first = connect(&path);
    exchange(&mut first, b"first");
    assert_eq!(connect(&path).read(&mut [0; 1]).unwrap(), 0, "a second one");
    let (_, refused) = attach(&mut client, AGENT, false);
    let error = refused.error.unwrap();
    assert_eq!(error.code(), v1::ErrorCode::ConsoleBusy);
    assert!(error.message.contains("its socket"), "{}", error.message);
    exchange(&mut first, b"still there");

    let (mut second, attached) = attach(&mut client, AGENT, true);
    assert_eq!(attached.error, None);
    assert_eq!(first.read(&mut [0; 1]).unwrap(), 0);
    exchange(&mut second, b"second");
    drop(second);

    // As soon as the one before is gone, whether or not the guest knows it.
    let mut third = connect(&path);
    exchange(&mut third, b"third");

    let (mut terminal, attached) = attach(&mut client, "", false);
    assert_eq!(attached.error, None);
    assert_eq!(attached.console_offset, 10);
    let mut rest = vec![0; GREETING.len() - 10];
    terminal.read_exact(&mut rest).unwrap();
    assert_eq!(rest, GREETING[10..]);
    let (_, unknown) = attach(&mut client, "nobody", false);
    assert_eq!(
        unknown.error.unwrap().code(),
        v1::ErrorCode::InvalidArgument
    );
    client
        .must(Kind::ResizeConsole(v1::ResizeConsole {
            columns: 132,
            rows: 43,
        }))
        .unwrap();

    drop(third);
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);
    let printed = by_hand.printed();
    assert!(printed.contains("console ok"), "{printed}");
    assert!(printed.contains("sessions=3"), "{printed}");
}

#[test]
fn a_pause_neither_refuses_nor_loses_a_peer() {
    skip_if!(without_kvm().or_else(testguest::missing));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let by_hand = guest(1);
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.boot_with(&mut client, &[listener.as_fd()]);
    soon(|| by_hand.printed().contains("pci ok"));
    client.must(Kind::Pause(v1::Pause {})).unwrap();
    let mut peer = connect(&path);
    peer.write_all(b"while you slept").unwrap();
    client.must(Kind::Resume(v1::Resume {})).unwrap();
    let mut echo = [0; 15];
    peer.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"while you slept");
    drop(peer);
    client.wait_for_exit().unwrap();
}

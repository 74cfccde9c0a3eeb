//! Sockets of a guest whose VMM is a process of its own, confined as it is.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};

use integration::skip::without_kvm;
use integration::skip_if;
use integration::testguest::{self, Results};
use integration::vmm_client::VmmProcess;
use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, setsockopt,
    socketpair, sockopt::ReceiveTimeout,
};
use nix::sys::time::{TimeVal, TimeValLike};
use proto_vmm::v1::{self, request::Kind};

use crate::by_hand::ByHand;

fn attach() -> Kind {
    Kind::AttachBroker(v1::AttachBroker {})
}

fn pair() -> (OwnedFd, OwnedFd) {
    let (unix, flags) = (AddressFamily::Unix, SockFlag::SOCK_CLOEXEC);
    let pair = socketpair(unix, SockType::SeqPacket, None, flags).expect("a pair of sockets");
    // A guest that does not ask fails its test.
    setsockopt(&pair.0, ReceiveTimeout, &TimeVal::seconds(60)).expect("a timeout");
    pair
}

/// `testguest` with a socket device; its listening socket is the fifth descriptor.
fn guest(command_line: &str) -> ByHand {
    let kernel = File::open(testguest::elf().expect("checked before")).expect("the guest");
    let mut by_hand = ByHand::new(kernel);
    if let Some(kernel) = &mut by_hand.config.kernel {
        command_line.clone_into(&mut kernel.cmdline);
    }
    by_hand.config.devices = vec![v1::PciDevice {
        address: Some(v1::PciAddress {
            bus: 0,
            device: 1,
            function: 0,
        }),
        kind: Some(v1::pci_device::Kind::Vsock(v1::VirtioVsock {
            guest_cid: 5,
            listen_fd: Some(4),
            broker_fd: None,
        })),
        ..v1::PciDevice::default()
    }];
    by_hand
}

/// Answers one question with a connection to a program that sends all back.
fn serve(broker: &OwnedFd) {
    let mut packet = [0; 16];
    let bytes = recv(broker.as_raw_fd(), &mut packet, MsgFlags::empty());
    assert_eq!(bytes, Ok(16));
    packet[8..].copy_from_slice(&[1, 0, 0, 0, 0, 0, 0, 0]);
    let (mut program, guest) = UnixStream::pair().expect("a pair of sockets");
    let raw = [guest.as_raw_fd()];
    let rights = [ControlMessage::ScmRights(&raw)];
    let part = [std::io::IoSlice::new(&packet)];
    sendmsg::<()>(broker.as_raw_fd(), &part, &rights, MsgFlags::empty(), None).expect("answered");
    drop(guest);
    let mut reader = program.try_clone().expect("a descriptor");
    std::io::copy(&mut reader, &mut program).expect("echoed");
}

#[test]
fn sockets_go_both_ways_through_a_confined_process() {
    skip_if!(without_kvm().or_else(testguest::missing));
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vsock");
    let listener = UnixListener::bind(&path).unwrap();
    let by_hand = guest("tests=vsock vsock_connect=80 vsock_serve=1");
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    by_hand.configure_with(&mut client, &[listener.as_fd()]);

    let (ours, theirs) = pair();
    let attached = client.request(attach(), &[theirs.as_fd()]).unwrap();
    assert_eq!(attached.error, None);
    drop(theirs);
    client.must(Kind::Subscribe(v1::Subscribe {})).unwrap();
    client.must(Kind::Boot(v1::Boot {})).unwrap();
    let mut program = UnixStream::connect(&path).unwrap();
    program.write_all(b"CONNECT 7\nhello").unwrap();
    program.shutdown(std::net::Shutdown::Write).unwrap();
    let mut text = String::new();
    program.read_to_string(&mut text).unwrap();
    assert!(
        text.starts_with("OK ") && text.ends_with("\nhello"),
        "{text:?}"
    );
    // Then it is the guest's turn.
    serve(&ours);
    let exit = client.wait_for_exit().unwrap();
    assert_eq!(exit.reason(), v1::ExitReason::GuestPoweroff);
    let results = Results::of_console(&by_hand.printed());
    assert!(
        results.one("vsock").contains("cid=5 served=1"),
        "{results:#?}"
    );
    assert!(
        results.one("vsock").contains("connect=echoed"),
        "{results:#?}"
    );
}

#[test]
fn a_broker_is_a_packet_socket_of_a_machine_with_a_socket_device() {
    skip_if!(without_kvm().or_else(testguest::missing));
    let directory = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(directory.path().join("vsock")).unwrap();
    let by_hand = guest("tests=none");
    let vmm = VmmProcess::start().unwrap();
    let mut client = vmm.connect().unwrap();
    let (_ours, theirs) = pair();
    let mut attach = |descriptors: &[BorrowedFd<'_>]| {
        let error = client.request(attach(), descriptors).unwrap().error;
        error.map(|error| error.code())
    };
    let early = attach(&[theirs.as_fd()]);
    assert_eq!(early, Some(v1::ErrorCode::WrongState));
    let mut second = vmm.connect().unwrap();
    by_hand.configure_with(&mut second, &[listener.as_fd()]);
    let wrong = Some(v1::ErrorCode::InvalidArgument);
    assert_eq!(attach(&[]), wrong);
    assert_eq!(attach(&[listener.as_fd()]), wrong);
    assert_eq!(attach(&[theirs.as_fd(), theirs.as_fd()]), wrong);
    assert_eq!(attach(&[theirs.as_fd()]), None);
}

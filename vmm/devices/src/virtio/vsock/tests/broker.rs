//! Connections that the guest begins.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use nix::sys::socket::{
    AddressFamily, ControlMessage, MsgFlags, SockFlag, SockType, recv, sendmsg, socketpair,
};

use super::*;

/// A broker's end.
pub(super) struct Broker(pub(super) OwnedFd);

impl Broker {
    pub(super) fn attached_to(control: &VsockControl) -> Self {
        let (unix, flags) = (AddressFamily::Unix, SockFlag::SOCK_NONBLOCK);
        let (ours, theirs) = socketpair(unix, SockType::SeqPacket, None, flags).unwrap();
        control.attach_broker(theirs).unwrap();
        Self(ours)
    }

    /// The next question: number and port.
    pub(super) fn question(&self) -> Option<(u64, u32)> {
        let mut packet = [0; 32];
        let got = recv(self.0.as_raw_fd(), &mut packet, MsgFlags::empty());
        let bytes = got.ok().filter(|bytes| *bytes > 0)?;
        assert_eq!(bytes, 16);
        assert_eq!(packet[12..16], [0; 4]);
        let number = u64::from_le_bytes(packet[..8].try_into().unwrap());
        Some((
            number,
            u32::from_le_bytes(packet[8..12].try_into().unwrap()),
        ))
    }

    pub(super) fn send(&self, packet: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let raw: Vec<_> = descriptors.iter().map(AsRawFd::as_raw_fd).collect();
        let rights = [ControlMessage::ScmRights(&raw)];
        let control: &[_] = if raw.is_empty() { &[] } else { &rights };
        let part = [std::io::IoSlice::new(packet)];
        // The device may have left.
        sendmsg::<()>(
            self.0.as_raw_fd(),
            &part,
            control,
            MsgFlags::MSG_NOSIGNAL,
            None,
        )
        .ok();
    }

    fn answer(&self, number: u64, status: u32, descriptors: &[BorrowedFd<'_>]) {
        let mut packet = number.to_le_bytes().to_vec();
        packet.extend(status.to_le_bytes());
        packet.extend([0; 4]);
        self.send(&packet, descriptors);
    }

    pub(super) fn refuse(&self, number: u64) {
        self.answer(number, 0, &[]);
    }

    /// Gives the guest a socket; returns the program's end.
    pub(super) fn accept(&self, number: u64) -> UnixStream {
        let (program, theirs) = UnixStream::pair().unwrap();
        self.answer(number, 1, &[theirs.as_fd()]);
        let patience = Some(Duration::from_secs(20));
        program.set_read_timeout(patience).unwrap();
        program
    }
}

fn with_broker() -> (Bench, Broker) {
    let mut bench = Bench::new();
    let broker = Broker::attached_to(&bench.control);
    bench.settle();
    (bench, broker)
}

#[test]
fn without_a_broker_the_guest_is_refused_at_once() {
    let mut bench = Bench::new();
    bench.send(&packet(Operation::Request, 80, 1024), &[]);
    let reset = bench.expect(Operation::Reset);
    assert_eq!((reset.source_port, reset.destination_port), (80, 1024));
    assert_eq!(reset.source_cid, HOST_CID);
}

#[test]
fn the_guest_reaches_what_the_broker_connects_it_to() {
    let (mut bench, broker) = with_broker();
    bench.send(&packet(Operation::Request, 80, 1024), &[]);
    assert_eq!(bench.receive(), None);
    let (number, port) = broker.question().expect("a question");
    assert_eq!(port, 80);
    let mut program = broker.accept(number);
    let response = bench.expect(Operation::Response);
    assert_eq!(response.source_port, 80);
    bench.send_data(&response, b"ping");
    assert_eq!(text(&mut program, 4), "ping");
    program.write_all(b"pong").unwrap();
    bench.expect_data(b"pong");
    bench.send(&shutdown(&response, 3), &[]);
    bench.expect(Operation::Reset);
    assert_eq!(rest(&mut program), b"");
}

#[test]
fn what_the_broker_refuses_is_reset() {
    let (mut bench, broker) = with_broker();
    bench.send(&packet(Operation::Request, 80, 1), &[]);
    bench.send(&packet(Operation::Request, 81, 1), &[]);
    let (first, _) = broker.question().unwrap();
    let (second, _) = broker.question().unwrap();
    // In any order; and a descriptor that is no connection is none.
    let file = tempfile::tempfile().unwrap();
    broker.answer(second, 1, &[file.as_fd()]);
    assert_eq!(bench.expect(Operation::Reset).source_port, 81);
    broker.refuse(first);
    assert_eq!(bench.expect(Operation::Reset).source_port, 80);
}

#[test]
fn a_broker_that_goes_refuses_and_its_successor_takes_over() {
    let (mut bench, broker) = with_broker();
    bench.send(&packet(Operation::Request, 80, 1), &[]);
    drop(broker);
    bench.expect(Operation::Reset);
    bench.send(&packet(Operation::Request, 80, 2), &[]);
    bench.expect(Operation::Reset);

    let second = Broker::attached_to(&bench.control);
    bench.settle();
    bench.send(&packet(Operation::Request, 80, 3), &[]);
    let (asked, _) = second.question().unwrap();
    // What the second has not answered when a third comes is refused.
    let third = Broker::attached_to(&bench.control);
    bench.expect(Operation::Reset);
    second.refuse(asked);
    bench.send(&packet(Operation::Request, 80, 4), &[]);
    let (number, _) = third.question().unwrap();
    third.accept(number);
    bench.expect(Operation::Response);
}

#[test]
fn a_broker_that_came_before_the_driver_is_asked() {
    let (_listener, socket) = Listener::new();
    let (config, control) = device(socket);
    let broker = Broker::attached_to(&control);
    let device = VsockDevice::new(config).unwrap();
    let mut bench = Bench::new();
    bench.driver = Driver::ready(Box::new(device), QUEUE, VERSION_1);
    bench.send(&packet(Operation::Request, 80, 1), &[]);
    assert!(broker.question().is_some());
}

#[test]
fn a_broker_that_sends_nonsense_is_left_alone() {
    for nonsense in [&[0; 15][..], &[0; 17], &[0xff; 16], b"x"] {
        let (mut bench, broker) = with_broker();
        bench.send(&packet(Operation::Request, 80, 1), &[]);
        broker.send(nonsense, &[]);
        bench.expect(Operation::Reset);
        bench.send(&packet(Operation::Request, 80, 2), &[]);
        bench.expect(Operation::Reset);
    }
}

#[test]
fn questions_are_bounded() {
    let (mut bench, broker) = with_broker();
    for port in 0..64 {
        bench.send(&packet(Operation::Request, 80, port), &[]);
        assert_eq!(bench.receive(), None);
    }
    bench.send(&packet(Operation::Request, 80, 64), &[]);
    assert_eq!(bench.expect(Operation::Reset).destination_port, 64);
    let (number, _) = broker.question().unwrap();
    broker.refuse(number);
    bench.expect(Operation::Reset);
    bench.send(&packet(Operation::Request, 80, 64), &[]);
    assert_eq!(bench.receive(), None);
}

#[test]
fn a_late_answer_is_closed() {
    let (mut bench, broker) = with_broker();
    bench.send(&packet(Operation::Request, 80, 1), &[]);
    bench.send(&packet(Operation::Reset, 80, 1), &[]);
    let (number, _) = broker.question().unwrap();
    let mut program = broker.accept(number);
    bench.settle();
    assert_eq!(rest(&mut program), b"");
    // An answer to no question at all.
    let mut program = broker.accept(12345);
    bench.settle();
    assert_eq!(rest(&mut program), b"");
    assert_eq!(bench.receive(), None);
    bench.send(&packet(Operation::Request, 80, 1), &[]);
    assert!(broker.question().is_some(), "it is still the broker");
}

#[test]
fn a_broker_that_does_not_answer_is_given_up() {
    let (mut bench, _broker) = with_broker();
    bench.send(&packet(Operation::Request, 80, 1), &[]);
    // The timer.
    assert!(bench.driver.settle_own(20_000));
    bench.expect(Operation::Reset);
}

//! Connected stream sockets of peers that must not be waited for.
//!
//! No call blocks or raises `SIGPIPE`, however the socket is set: its other owner may have set it
//! otherwise.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{MsgFlags, SockType, getsockopt, recv, send, sockopt};

/// Outcome of [`send_now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// So many bytes were taken; at least one unless none was offered.
    Bytes(usize),
    /// The socket takes nothing now.
    Full,
    /// The peer reads no more.
    Ended,
}

/// Outcome of [`receive_now`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// So many bytes, at least one unless there was no room.
    Bytes(usize),
    /// There is nothing now.
    Nothing,
    /// The peer sends no more.
    Ended,
}

/// Sends what the socket takes of `bytes`.
pub fn send_now(socket: &impl AsFd, bytes: &[u8]) -> Sent {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
    loop {
        match send(socket.as_fd().as_raw_fd(), bytes, flags) {
            Ok(count) => return Sent::Bytes(count),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Sent::Full,
            Err(_) => return Sent::Ended,
        }
    }
}

/// Receives what is there, at most as much as `buffer` has room for, which is at least a byte.
pub fn receive_now(socket: &impl AsFd, buffer: &mut [u8]) -> Received {
    loop {
        match recv(socket.as_fd().as_raw_fd(), buffer, MsgFlags::MSG_DONTWAIT) {
            Ok(0) => return Received::Ended,
            Ok(count) => return Received::Bytes(count),
            Err(Errno::EINTR) => {}
            Err(Errno::EAGAIN) => return Received::Nothing,
            Err(_) => return Received::Ended,
        }
    }
}

/// Whether the peer is gone in both directions; what it sent before may still be there.
pub fn is_hung_up(socket: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(socket.as_fd(), PollFlags::empty())];
    match poll(&mut polled, PollTimeout::ZERO) {
        Ok(0) => false,
        Ok(_) => {
            let gone = PollFlags::POLLHUP | PollFlags::POLLERR | PollFlags::POLLNVAL;
            let [polled] = polled;
            polled
                .revents()
                .is_some_and(|events| events.intersects(gone))
        }
        // Nothing is known; the next call finds out.
        Err(_) => false,
    }
}

/// Whether something that was received waits to be taken.
pub fn has_input(socket: &impl AsFd) -> bool {
    let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_PEEK;
    matches!(recv(socket.as_fd().as_raw_fd(), &mut [0], flags), Ok(1))
}

/// Whether a descriptor is a stream socket.
pub fn is_stream(descriptor: &impl AsFd) -> bool {
    getsockopt(descriptor, sockopt::SockType) == Ok(SockType::Stream)
}

/// Whether a descriptor is a stream socket that takes connections.
///
/// # Errors
/// It is no socket.
pub fn is_listening(descriptor: &impl AsFd) -> io::Result<bool> {
    Ok(getsockopt(descriptor, sockopt::AcceptConn)? && is_stream(descriptor))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::Shutdown;
    use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};

    use super::*;

    #[test]
    fn a_peer_that_does_not_read_is_not_waited_for() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut sent = 0;
        while let Sent::Bytes(count) = send_now(&ours, &[b'x'; 10_000]) {
            sent += count;
        }
        assert_eq!(send_now(&ours, b"x"), Sent::Full);
        let mut all = vec![0; sent];
        theirs.read_exact(&mut all).unwrap();
        assert_eq!(send_now(&ours, b"x"), Sent::Bytes(1));
    }

    #[test]
    fn what_a_peer_sent_before_it_went_is_received() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let mut buffer = [0; 16];
        assert_eq!(receive_now(&ours, &mut buffer), Received::Nothing);
        theirs.write_all(b"last").unwrap();
        assert!(!is_hung_up(&ours));
        theirs.shutdown(Shutdown::Write).unwrap();
        assert!(!is_hung_up(&ours));
        drop(theirs);
        assert!(is_hung_up(&ours) && has_input(&ours));
        assert_eq!(receive_now(&ours, &mut buffer), Received::Bytes(4));
        assert!(!has_input(&ours));
        assert_eq!(receive_now(&ours, &mut buffer), Received::Ended);
        assert_eq!(send_now(&ours, b"x"), Sent::Ended);
    }

    #[test]
    fn sockets_are_distinguished() {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("socket")).unwrap();
        let (stream, _) = UnixStream::pair().unwrap();
        let (datagram, _) = UnixDatagram::pair().unwrap();
        let file = tempfile::tempfile().unwrap();
        assert!(is_listening(&listener).unwrap());
        assert!(!is_listening(&stream).unwrap());
        assert!(is_listening(&file).is_err());
        assert!(is_stream(&stream));
        assert!(!is_stream(&datagram));
        assert!(!is_stream(&file));
    }
}

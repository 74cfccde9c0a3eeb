//! Sockets that somebody else made and handed over. None of them ever blocks.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::sys::socket::{
    MsgFlags, Shutdown, SockFlag, SockType, accept4, getsockopt, recv, send, shutdown, sockopt,
};

use crate::frame::{self, FrameError};

/// Why a descriptor cannot be taken over.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// It is something else.
    #[error("it is no {wanted}")]
    Kind {
        /// What it has to be.
        wanted: &'static str,
    },
    /// The kernel refused.
    #[error("{call} failed")]
    Call {
        /// Name of the system call or ioctl.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

/// One direction of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamDirection {
    /// What the peer sends.
    Incoming,
    /// The direction from us to the peer.
    Outgoing,
}

/// A connected stream socket of any family.
#[derive(Debug)]
pub struct StreamSocket(OwnedFd);

impl StreamSocket {
    /// Takes over a stream socket that does not listen, and makes it non-blocking: for everybody
    /// who holds the same open socket.
    ///
    /// # Errors
    /// It is none.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, SocketError> {
        check(&descriptor, SockType::Stream, false, "stream socket")?;
        never_block(&descriptor)?;
        Ok(Self(descriptor))
    }

    /// Takes what has come, as much as fits into `buffer` (not empty); 0 when the peer sends no
    /// more, `None` when nothing is there now.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.receive_with(buffer, MsgFlags::empty())
    }

    /// As [`receive`](Self::receive), but leaves it there.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn peek(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        self.receive_with(buffer, MsgFlags::MSG_PEEK)
    }

    fn receive_with(&self, buffer: &mut [u8], flags: MsgFlags) -> io::Result<Option<usize>> {
        let flags = flags | MsgFlags::MSG_DONTWAIT;
        loop {
            match recv(self.as_raw_fd(), buffer, flags) {
                Ok(count) => return Ok(Some(count)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Sends as much of `data` as the socket takes now; returns how much, which may be nothing.
    ///
    /// # Errors
    /// The peer takes no more.
    pub fn send(&self, data: &[u8]) -> io::Result<usize> {
        let flags = MsgFlags::MSG_DONTWAIT | MsgFlags::MSG_NOSIGNAL;
        loop {
            match send(self.as_raw_fd(), data, flags) {
                Ok(count) => return Ok(count),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return Ok(0),
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Ends one direction. There is nothing to do about a connection that has ended already.
    pub fn end(&self, direction: StreamDirection) {
        let how = match direction {
            StreamDirection::Incoming => Shutdown::Read,
            StreamDirection::Outgoing => Shutdown::Write,
        };
        // `ENOTCONN`: the peer was first.
        shutdown(self.as_raw_fd(), how).unwrap_or_default();
    }
}

impl AsRawFd for StreamSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A listening stream socket.
#[derive(Debug)]
pub struct ListeningSocket(OwnedFd);

impl ListeningSocket {
    /// Takes over a stream socket that listens, and makes it non-blocking: for everybody who holds
    /// the same open socket.
    ///
    /// # Errors
    /// It is none.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, SocketError> {
        check(
            &descriptor,
            SockType::Stream,
            true,
            "listening stream socket",
        )?;
        never_block(&descriptor)?;
        Ok(Self(descriptor))
    }

    /// The next connection; `None` when there is none now.
    ///
    /// # Errors
    /// Such as no descriptor being left: the connection stays in the queue.
    pub fn accept(&self) -> io::Result<Option<StreamSocket>> {
        let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
        loop {
            match accept4(self.as_raw_fd(), flags) {
                // SAFETY: the kernel made the descriptor for us a moment ago; nobody else owns it.
                Ok(fd) => return Ok(Some(StreamSocket(unsafe { OwnedFd::from_raw_fd(fd) }))),
                // A peer that is gone before it is accepted concerns nobody.
                Err(Errno::EINTR | Errno::ECONNABORTED) => {}
                Err(Errno::EAGAIN) => return Ok(None),
                Err(errno) => return Err(errno.into()),
            }
        }
    }
}

impl AsRawFd for ListeningSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// A connected Unix socket of packets (`SOCK_SEQPACKET`), which descriptors may come with.
#[derive(Debug)]
pub struct PacketSocket(OwnedFd);

impl PacketSocket {
    /// Takes over a packet socket that does not listen, and makes it non-blocking: for everybody
    /// who holds the same open socket.
    ///
    /// # Errors
    /// It is none.
    pub fn adopt(descriptor: OwnedFd) -> Result<Self, SocketError> {
        let wanted = "SOCK_SEQPACKET socket";
        check(&descriptor, SockType::SeqPacket, false, wanted)?;
        never_block(&descriptor)?;
        Ok(Self(descriptor))
    }

    /// Sends one packet, not empty.
    ///
    /// # Errors
    /// The peer is gone, or (`WouldBlock`) does not read.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        frame::send(self, packet, &[]).map(|_whole| ())
    }

    /// Receives one packet, cut to the length of `buffer`, and the descriptors that came with it.
    /// No byte at all means that the peer is gone.
    ///
    /// # Errors
    /// The socket fails, has no packet now ([`FrameError::Io`] of kind `WouldBlock`), or
    /// descriptors were lost because of our own limit.
    pub fn receive(&self, buffer: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), FrameError> {
        frame::receive(self, buffer)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for PacketSocket {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

fn check(
    descriptor: &OwnedFd,
    kind: SockType,
    listens: bool,
    wanted: &'static str,
) -> Result<(), SocketError> {
    let found = getsockopt(descriptor, sockopt::SockType);
    let found_listens = getsockopt(descriptor, sockopt::AcceptConn);
    if found == Ok(kind) && found_listens == Ok(listens) {
        Ok(())
    } else {
        Err(SocketError::Kind { wanted })
    }
}

fn never_block(descriptor: &OwnedFd) -> Result<(), SocketError> {
    let failed = |call| {
        move |errno: Errno| SocketError::Call {
            call,
            source: errno.into(),
        }
    };
    let flags = fcntl(descriptor, FcntlArg::F_GETFL).map_err(failed("F_GETFL"))?;
    let flags = OFlag::from_bits_retain(flags) | OFlag::O_NONBLOCK;
    fcntl(descriptor, FcntlArg::F_SETFL(flags)).map_err(failed("F_SETFL"))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use nix::sys::socket::{AddressFamily, socketpair};

    use super::*;

    fn packets() -> (OwnedFd, OwnedFd) {
        let (unix, none) = (AddressFamily::Unix, SockFlag::empty());
        socketpair(unix, SockType::SeqPacket, None, none).unwrap()
    }

    #[test]
    fn a_stream_is_read_and_written_as_far_as_it_goes() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let socket = StreamSocket::adopt(ours.into()).unwrap();
        let mut buffer = [0; 8];
        assert_eq!(socket.receive(&mut buffer).unwrap(), None);
        theirs.write_all(b"abc").unwrap();
        assert_eq!(socket.peek(&mut buffer).unwrap(), Some(3));
        assert_eq!(socket.receive(&mut buffer[..2]).unwrap(), Some(2));
        assert_eq!(socket.receive(&mut buffer).unwrap(), Some(1));
        let mut sent = 0;
        loop {
            match socket.send(&[7; 4096]).unwrap() {
                0 => break,
                count => sent += count,
            }
        }
        socket.end(StreamDirection::Outgoing);
        let mut got = Vec::new();
        theirs.read_to_end(&mut got).unwrap();
        assert_eq!(got.len(), sent);
        drop(theirs);
        assert_eq!(socket.receive(&mut buffer).unwrap(), Some(0));
        assert!(socket.send(&[7]).is_err());
    }

    #[test]
    fn connections_are_accepted_while_there_are_some() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let listener = ListeningSocket::adopt(listener.into()).unwrap();
        assert!(listener.accept().unwrap().is_none());
        let _peer = UnixStream::connect(&path).unwrap();
        assert!(listener.accept().unwrap().is_some());
        assert!(listener.accept().unwrap().is_none());
    }

    #[test]
    fn packets_come_whole_and_with_their_descriptors() {
        let (ours, theirs) = packets();
        let socket = PacketSocket::adopt(ours).unwrap();
        let theirs = PacketSocket::adopt(theirs).unwrap();
        socket.send(b"one").unwrap();
        frame::send(&theirs, b"two", &[theirs.as_fd()]).unwrap();
        let mut buffer = [0; 8];
        let (bytes, descriptors) = socket.receive(&mut buffer).unwrap();
        assert_eq!((&buffer[..bytes], descriptors.len()), (&b"two"[..], 1));
        assert!(matches!(
            socket.receive(&mut buffer),
            Err(FrameError::Io(error)) if error.kind() == io::ErrorKind::WouldBlock
        ));
        drop((theirs, descriptors));
        // What was sent to a peer that is gone was lost, and the kernel may say so first.
        assert!(matches!(socket.receive(&mut buffer), Ok((0, _)) | Err(_)));
    }

    #[test]
    fn other_descriptors_are_refused() {
        let file = || OwnedFd::from(tempfile::tempfile().unwrap());
        let stream = || OwnedFd::from(UnixStream::pair().unwrap().0);
        assert!(StreamSocket::adopt(file()).is_err());
        assert!(StreamSocket::adopt(packets().0).is_err());
        assert!(ListeningSocket::adopt(stream()).is_err());
        assert!(PacketSocket::adopt(stream()).is_err());
    }
}

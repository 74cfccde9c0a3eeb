//! One connected peer. Its memory and its time are bounded, whatever it sends or does not read.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use proto_vmm::v1::{Frame, frame::Body};
use proto_vmm::{FrameDecoder, FrameError, encode_frame};

/// A peer that lets more than this pile up is cut off.
const MAX_UNSENT_BYTES: usize = 512 << 10;
/// Read at a time; the next peer has its turn after.
const READ_BYTES: usize = 8 << 10;
/// The handshake, and every frame once begun, must be complete within this time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why a connection is closed.
#[derive(Debug, thiserror::Error)]
pub enum ConnectionError {
    /// The peer closed it.
    #[error("closed by the peer")]
    Closed,
    /// The peer closed it within a frame.
    #[error("closed by the peer within a frame")]
    CutOff,
    /// The peer does not speak the protocol.
    #[error("the peer does not speak the protocol")]
    Protocol(#[from] FrameError),
    /// The socket failed, or descriptors were lost.
    #[error("the socket failed")]
    Receive(#[source] vmm_sys::frame::FrameError),
    /// The socket failed.
    #[error("the socket failed")]
    Send(#[source] io::Error),
    /// The peer does not read what it is sent.
    #[error("the peer does not read what it is sent")]
    NotReading,
    /// The peer does not finish what it began.
    #[error("the peer did not complete its handshake or frame in time")]
    Late,
}

/// A peer.
pub struct Connection {
    socket: UnixStream,
    decoder: FrameDecoder<OwnedFd>,
    unsent: VecDeque<u8>,
    deadline: Option<Instant>,
    /// The version agreed on, after the handshake.
    pub protocol: Option<u32>,
    /// Gets events of changes after so many updates of the machine's status, if any.
    pub subscribed_at: Option<u64>,
}

impl Connection {
    /// A peer that has just connected.
    pub fn new(socket: UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self {
            socket,
            decoder: FrameDecoder::new(),
            unsent: VecDeque::new(),
            deadline: Some(Instant::now() + PATIENCE),
            protocol: None,
            subscribed_at: None,
        })
    }

    /// The socket, for polling.
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    /// When the peer's patience, or rather ours, ends.
    pub fn deadline(&self) -> Option<Instant> {
        self.deadline
    }

    /// Whether there is something to send once the socket takes it.
    pub fn wants_to_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Reads once.
    pub fn receive(&mut self) -> Result<(), ConnectionError> {
        let mut buffer = vec![0; READ_BYTES];
        let (length, descriptors) = match vmm_sys::frame::receive(&self.socket, &mut buffer) {
            Ok(received) => received,
            Err(vmm_sys::frame::FrameError::Io(error))
                if error.kind() == io::ErrorKind::WouldBlock =>
            {
                return Ok(());
            }
            Err(error) => return Err(ConnectionError::Receive(error)),
        };
        if length == 0 {
            return Err(if self.decoder.is_at_boundary() {
                ConnectionError::Closed
            } else {
                ConnectionError::CutOff
            });
        }
        let bytes = buffer.get(..length).unwrap_or_default();
        self.decoder.push(bytes, descriptors)?;
        Ok(())
    }

    /// The next whole frame that was received.
    pub fn next_frame(&mut self) -> Result<Option<(Frame, Vec<OwnedFd>)>, ConnectionError> {
        let frame = self.decoder.next_frame()?;
        if frame.is_none() {
            self.update_deadline();
        }
        Ok(frame)
    }

    /// The handshake is over: from now on only begun frames are timed.
    pub fn complete_handshake(&mut self, protocol: u32) {
        self.protocol = Some(protocol);
        self.deadline = None;
    }

    fn update_deadline(&mut self) {
        if self.protocol.is_none() {
            return;
        }
        if self.decoder.is_at_boundary() {
            self.deadline = None;
        } else if self.deadline.is_none() {
            self.deadline = Some(Instant::now() + PATIENCE);
        }
    }

    /// Sends a frame, now or when the socket takes it.
    pub fn send(&mut self, body: Body) -> Result<(), ConnectionError> {
        let bytes = encode_frame(&Frame { body: Some(body) }, 0)?;
        if self.unsent.len() + bytes.len() > MAX_UNSENT_BYTES {
            return Err(ConnectionError::NotReading);
        }
        self.unsent.extend(bytes);
        self.flush()
    }

    /// Sends what the socket takes.
    pub fn flush(&mut self) -> Result<(), ConnectionError> {
        while !self.unsent.is_empty() {
            let (first, _) = self.unsent.as_slices();
            match self.socket.write(first) {
                Ok(sent) => {
                    self.unsent.drain(..sent);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(ConnectionError::Send(error)),
            }
        }
        self.unsent = VecDeque::new();
        Ok(())
    }
}

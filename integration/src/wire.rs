//! The protocol between the tests and `node-agent` inside a node, over one virtio-serial port.
//!
//! A frame is `length: u32, kind: u8, session: u32`, little-endian, then `length` bytes. The tests
//! open sessions under numbers of their choice; many run at once.
//!
//! ```text
//!   tests                         node-agent
//!     Ping            ──────────►
//!                     ◄──────────  Hello
//!     Start(7, Request) ────────►
//!     Input(7) ...    ──────────►  to the program's standard input, or the file's content
//!     InputEnd(7)     ──────────►
//!                     ◄──────────  Output(7), Errors(7) ...
//!                     ◄──────────  End(7, Outcome)
//! ```

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Name of the virtio-serial port.
pub const PORT: &str = "kvmlet.node-agent";

/// Longest payload of one frame.
pub const MAX_PAYLOAD_BYTES: usize = 1 << 20;

/// What a frame means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Tests ask whether the agent listens.
    Ping = 0,
    /// The agent listens.
    Hello = 1,
    /// Opens a session; the payload is a [`Request`].
    Start = 2,
    /// Bytes for the program's standard input or for the file.
    Input = 3,
    /// No more [`Kind::Input`].
    InputEnd = 4,
    /// Bytes of standard output or of the file.
    Output = 5,
    /// Bytes of standard error.
    Errors = 6,
    /// The session's [`Outcome`]; its number is free again.
    End = 7,
    /// Kills the program.
    Kill = 8,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [
            Self::Ping,
            Self::Hello,
            Self::Start,
            Self::Input,
            Self::InputEnd,
            Self::Output,
            Self::Errors,
            Self::End,
            Self::Kill,
        ]
        .into_iter()
        .find(|kind| *kind as u8 == byte)
    }
}

/// What a session does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Request {
    /// Run a program.
    Exec {
        /// The program and its arguments.
        argv: Vec<String>,
        /// Added to the agent's environment.
        env: Vec<(String, String)>,
        /// Kill the program's process group after so long.
        timeout_ms: Option<u64>,
        /// Give the program a terminal; its output and errors then come as one.
        terminal: bool,
    },
    /// Write a file of the session's input.
    Put {
        /// Where to; missing directories are made.
        path: String,
        /// Permission bits.
        mode: u32,
    },
    /// Read a file.
    Get {
        /// Path of the file.
        path: String,
    },
}

/// How a session ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The program exited with this code.
    Exited(i32),
    /// The program was ended by this signal.
    Signalled(i32),
    /// The program outran its timeout and was killed.
    TimedOut,
    /// The file was written or read.
    Done,
    /// It could not be done, and why.
    Failed(String),
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Type of the frame.
    pub kind: Kind,
    /// Which session it belongs to; 0 for those without.
    pub session: u32,
    /// Its bytes.
    pub payload: Vec<u8>,
}

impl Frame {
    /// A frame.
    #[must_use]
    pub fn new(kind: Kind, session: u32, payload: Vec<u8>) -> Self {
        Self {
            kind,
            session,
            payload,
        }
    }

    /// A frame whose payload is `value` as JSON.
    ///
    /// # Errors
    /// When `value` cannot be encoded.
    pub fn json(kind: Kind, session: u32, value: &impl Serialize) -> io::Result<Self> {
        Ok(Self::new(kind, session, serde_json::to_vec(value)?))
    }

    /// Writes the frame in one call, so that frames of several threads do not mix under a lock.
    ///
    /// # Errors
    /// When the stream fails or the payload is too long.
    pub fn write(&self, stream: &mut impl Write) -> io::Result<()> {
        if self.payload.len() > MAX_PAYLOAD_BYTES {
            return Err(io::Error::other("frame too long"));
        }
        let length = u32::try_from(self.payload.len()).map_err(io::Error::other)?;
        let mut bytes = Vec::with_capacity(9 + self.payload.len());
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.push(self.kind as u8);
        bytes.extend_from_slice(&self.session.to_le_bytes());
        bytes.extend_from_slice(&self.payload);
        stream.write_all(&bytes)?;
        stream.flush()
    }

    /// Reads the next frame.
    ///
    /// # Errors
    /// When the stream ends or fails, or when the bytes are no frame.
    pub fn read(stream: &mut impl Read) -> io::Result<Self> {
        let mut header = [0; 9];
        stream.read_exact(&mut header)?;
        let [l0, l1, l2, l3, kind, s0, s1, s2, s3] = header;
        let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
        let kind = Kind::of(kind).ok_or_else(|| io::Error::other("unknown kind of frame"))?;
        if length > MAX_PAYLOAD_BYTES {
            return Err(io::Error::other("frame too long"));
        }
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        Ok(Self {
            kind,
            session: u32::from_le_bytes([s0, s1, s2, s3]),
            payload,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Frame, Kind, MAX_PAYLOAD_BYTES};

    #[test]
    fn a_frame_survives_the_wire() {
        let frame = Frame::new(Kind::Output, 7, b"hello".to_vec());
        let mut wire = Vec::new();
        frame.write(&mut wire).expect("a Vec takes everything");
        assert_eq!(Frame::read(&mut wire.as_slice()).expect("whole"), frame);
    }

    #[test]
    fn a_frame_of_absurd_length_is_refused() {
        let mut wire = u32::MAX.to_le_bytes().to_vec();
        wire.extend_from_slice(&[Kind::Output as u8, 0, 0, 0, 0]);
        assert!(Frame::read(&mut wire.as_slice()).is_err());
        assert!(
            Frame::new(Kind::Input, 0, vec![0; MAX_PAYLOAD_BYTES + 1])
                .write(&mut Vec::new())
                .is_err()
        );
    }
}

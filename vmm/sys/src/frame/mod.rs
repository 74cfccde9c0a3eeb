//! Frames with descriptors over a Unix stream socket: the transport of the agent-VMM protocol.
//!
//! A frame is a header of 8 bytes (`u32` length of the body, `u16` number of descriptors, `u16`
//! zero; little endian) and a body. Its descriptors come by `SCM_RIGHTS` with the header's first
//! byte. The peer is not trusted: lengths are bounded, descriptors that were not announced are
//! closed, and whatever fails leaves no descriptor behind.
//!
//! Both calls block as the socket does; a timeout set on the socket
//! ([`UnixStream::set_read_timeout`]) ends them with [`FrameError::Io`] of kind `WouldBlock`. After
//! an error the stream is out of step and has to be closed.

mod error;
mod rights;

use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

pub use error::{FrameError, MAX_BODY_BYTES, MAX_DESCRIPTORS};
pub use rights::receive;
pub(crate) use rights::send;

const HEADER_BYTES: usize = 8;

/// A frame as received.
#[derive(Debug, Default)]
pub struct Frame {
    /// The encoded message.
    pub body: Vec<u8>,
    /// As many as the header announced, close-on-exec, in the sender's order.
    pub descriptors: Vec<OwnedFd>,
}

/// Sends one frame.
///
/// # Errors
/// The frame is too big (nothing was sent), or the socket fails.
pub fn send_frame(
    socket: &UnixStream,
    body: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> Result<(), FrameError> {
    let too_long = || FrameError::BodyTooLong { bytes: body.len() };
    let too_many = || FrameError::TooManyDescriptors {
        count: descriptors.len(),
    };
    if body.len() > MAX_BODY_BYTES {
        return Err(too_long());
    }
    if descriptors.len() > MAX_DESCRIPTORS {
        return Err(too_many());
    }
    let body_bytes = u32::try_from(body.len()).map_err(|_| too_long())?;
    let count = u16::try_from(descriptors.len()).map_err(|_| too_many())?;

    let mut frame = Vec::with_capacity(HEADER_BYTES + body.len());
    frame.extend_from_slice(&body_bytes.to_le_bytes());
    frame.extend_from_slice(&count.to_le_bytes());
    frame.extend_from_slice(&[0, 0]);
    frame.extend_from_slice(body);

    let sent = send(socket, &frame, descriptors)?;
    let mut writer = socket;
    writer.write_all(frame.get(sent..).unwrap_or_default())?;
    Ok(())
}

/// Receives one frame. `None` when the peer closed the connection between frames.
///
/// # Errors
/// See [`FrameError`]; all descriptors received are closed again.
pub fn receive_frame(socket: &UnixStream) -> Result<Option<Frame>, FrameError> {
    let mut header = [0u8; HEADER_BYTES];
    let (got, descriptors) = rights::receive(socket, &mut header)?;
    if got == 0 {
        return Ok(None);
    }
    // Descriptors come with the header's first byte: a plain read makes the kernel drop later ones.
    let mut reader = socket;
    reader
        .read_exact(header.get_mut(got..).unwrap_or_default())
        .map_err(truncated)?;

    let [l0, l1, l2, l3, c0, c1, r0, r1] = header;
    let body_bytes = u32::from_le_bytes([l0, l1, l2, l3]);
    let announced = usize::from(u16::from_le_bytes([c0, c1]));
    let reserved = u16::from_le_bytes([r0, r1]);
    if reserved != 0 {
        return Err(FrameError::Reserved { value: reserved });
    }
    let bytes = usize::try_from(body_bytes).unwrap_or(usize::MAX);
    if bytes > MAX_BODY_BYTES {
        return Err(FrameError::BodyTooLong { bytes });
    }
    if announced > MAX_DESCRIPTORS {
        return Err(FrameError::TooManyDescriptors { count: announced });
    }
    if announced != descriptors.len() {
        return Err(FrameError::DescriptorCount {
            announced,
            received: descriptors.len(),
        });
    }

    // Grows with what comes, not with what was announced.
    let mut body = Vec::new();
    reader.take(u64::from(body_bytes)).read_to_end(&mut body)?;
    if body.len() != bytes {
        return Err(FrameError::Truncated);
    }
    Ok(Some(Frame { body, descriptors }))
}

fn truncated(error: io::Error) -> FrameError {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        FrameError::Truncated
    } else {
        FrameError::Io(error)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "threads of a test, not of a VMM")]
mod tests;

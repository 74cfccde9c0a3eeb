//! Messages in JSON between the agent and its children, each of which may bear descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};
use serde::{Serialize, de::DeserializeOwned};

use super::descriptors::{receive_with, send_with};

/// Longest message.
const MAX_BYTES: usize = 64 << 10;

/// Sends a message over a socket that keeps their bounds. With `DONTWAIT` it fails where the other side does not keep up.
///
/// # Errors
/// When the message is too long, or cannot be sent.
pub fn send_message(
    socket: &impl AsFd,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let text = serde_json::to_vec(message)?;
    if text.len() > MAX_BYTES {
        return Err(io::Error::other("a message has more than 64 KiB"));
    }
    send_with(socket, &text, descriptors, flags)
}

/// Result of receiving from a socket.
pub enum Received<T> {
    /// A message, with its descriptors.
    Message(T, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End,
}

/// Receives a message, if there is one.
///
/// # Errors
/// When what came is no such message, or the socket fails.
pub fn receive_message<T: DeserializeOwned>(socket: &impl AsFd) -> io::Result<Received<T>> {
    let mut text = vec![0; MAX_BYTES];
    let (bytes, descriptors) = match receive_with(socket, &mut text, RecvFlags::DONTWAIT) {
        Ok(received) => received,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
        Err(error) => return Err(error.into()),
    };
    if bytes == 0 {
        return Ok(Received::End);
    }
    let text = text.get(..bytes).unwrap_or_default();
    Ok(Received::Message(
        serde_json::from_slice(text)?,
        descriptors,
    ))
}

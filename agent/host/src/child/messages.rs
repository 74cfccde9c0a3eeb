//! Messages in JSON between the agent and its helpers, each of which may bear descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{RecvFlags, SendFlags};
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

use super::descriptors::{receive_with, send_with};

/// Longest message.
const MAX_BYTES: usize = 64 << 10;

/// Sends a message over a socket that keeps their bounds. With `DONTWAIT` it fails where the other side does not keep up.
pub(super) fn send_message(
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
pub(super) enum Received<T> {
    /// A message, with its descriptors.
    Message(T, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End,
}

/// Receives a message, if there is one.
pub(super) fn receive_message<T: DeserializeOwned>(socket: &impl AsFd) -> io::Result<Received<T>> {
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

/// Receives the next message, once it has come. `None`: none comes any more.
pub(crate) async fn next_message<T: DeserializeOwned>(
    socket: &UnixDatagram,
) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let received = socket.async_io(Interest::READABLE, || match receive_message(socket)? {
        Received::Nothing => Err(io::ErrorKind::WouldBlock.into()),
        Received::Message(message, descriptors) => Ok(Some((message, descriptors))),
        Received::End => Ok(None),
    });
    received.await
}

/// Sends a message, once the other side has room for it.
pub(crate) async fn send_in_turn(
    socket: &UnixDatagram,
    message: &impl Serialize,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    let sent = socket.async_io(Interest::WRITABLE, || {
        send_message(socket, message, descriptors, SendFlags::DONTWAIT)
    });
    sent.await
}

//! Messages between the agent and helpers that have a runtime.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use agent_confined::{Received, receive_message, send_message};
use rustix::net::SendFlags;
use serde::{Serialize, de::DeserializeOwned};
use tokio::io::Interest;
use tokio::net::UnixDatagram;

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

//! Orders of the agent to the DHCP server: one message each, with descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_dhcp::Guest;
use rustix::net::{RecvFlags, SendFlags};
use serde::{Deserialize, Serialize};

use super::descriptors::{receive_with, send_with};

/// Longest order.
const MAX_BYTES: usize = 64 << 10;

/// An order of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Answer a guest. With the descriptor of the VMM's process (pidfd), and the VMM's network namespace; to the server
    /// itself, the guest's sockets in the place of that.
    Serve {
        /// Names the guest's VMM.
        id: String,
        /// The guest is bridged to the pod network.
        bridged: bool,
        /// The content of its answers.
        guest: Box<Guest>,
    },
    /// Leave a guest alone.
    Leave {
        /// As it was named.
        id: String,
    },
}

/// Sends an order, or fails where the other side does not keep up.
pub(crate) fn send(
    socket: &impl AsFd,
    order: &Order,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_by(socket, order, descriptors, SendFlags::DONTWAIT)
}

/// Sends an order, and waits for the other side as long as the socket does.
pub(super) fn send_waiting(
    socket: &impl AsFd,
    order: &Order,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_by(socket, order, descriptors, SendFlags::empty())
}

fn send_by(
    socket: &impl AsFd,
    order: &Order,
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let text = serde_json::to_vec(order)?;
    if text.len() > MAX_BYTES {
        return Err(io::Error::other("an order has more than 64 KiB"));
    }
    send_with(socket, &text, descriptors, flags)
}

/// Result of receiving from a socket.
pub(super) enum Received {
    Order(Order, Vec<OwnedFd>),
    /// Nothing yet.
    Nothing,
    /// Nothing any more.
    End,
}

/// Receives an order, if there is one.
pub(super) fn receive(socket: &impl AsFd) -> io::Result<Received> {
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
    Ok(Received::Order(serde_json::from_slice(text)?, descriptors))
}

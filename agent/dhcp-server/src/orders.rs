//! Orders of the agent to the DHCP server: one message each, with descriptors.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use agent_confined::send_message;
use agent_dhcp::Guest;
use rustix::net::SendFlags;
use serde::{Deserialize, Serialize};

/// An order of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub enum Order {
    /// Answer a guest. With the descriptor of the VMM's process (pidfd), and the VMM's network namespace; to the server
    /// itself, the guest's sockets in the place of that.
    Serve {
        /// Names the guest's VMM.
        id: String,
        /// Where the server writes what it dropped of the guest.
        place: Option<u32>,
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
///
/// # Errors
/// When the order is not taken.
pub fn send(socket: &impl AsFd, order: &Order, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_message(socket, order, descriptors, SendFlags::DONTWAIT)
}

/// Sends an order, and waits for the other side as long as the socket does.
///
/// # Errors
/// When the order is not taken.
pub fn send_waiting(
    socket: &impl AsFd,
    order: &Order,
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<()> {
    send_message(socket, order, descriptors, SendFlags::empty())
}

//! What the agent says to the address server, and what goes along: one message each, with descriptors.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use agent_dhcp::Guest;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};
use serde::{Deserialize, Serialize};

/// Longest order.
const MAX_BYTES: usize = 64 << 10;

/// Descriptors that go with one.
const MAX_DESCRIPTORS: usize = 4;

/// What the agent says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    /// Answer a guest. With the descriptor of the VMM's process (pidfd), and the VMM's network namespace; to the server
    /// itself, the guest's sockets in the place of that.
    Serve {
        /// Names the guest's VMM.
        id: String,
        /// The guest is bridged to the pod network.
        bridged: bool,
        /// What the guest is told.
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
    let text = serde_json::to_vec(order)?;
    if text.len() > MAX_BYTES {
        return Err(io::Error::other("what the guest is told is too much"));
    }
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    if !descriptors.is_empty() && !ancillary.push(rights) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(socket, &[IoSlice::new(&text)], &mut ancillary, flags)?;
    Ok(())
}

/// What a socket had to say.
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
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(&mut text)];
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let received = match recvmsg(socket, &mut buffers, &mut ancillary, flags) {
        Ok(received) => received,
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(Received::Nothing),
        Err(error) => return Err(error.into()),
    };
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(received) = message {
            descriptors.extend(received);
        }
    }
    if received.bytes == 0 {
        return Ok(Received::End);
    }
    let text = text.get(..received.bytes).unwrap_or_default();
    Ok(Received::Order(serde_json::from_slice(text)?, descriptors))
}

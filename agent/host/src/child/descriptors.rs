//! Descriptors that a helper is handed with the first byte of its socket.

use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Most of them: what the kernel sends in one message (`SCM_MAX_FD`).
const MAX_DESCRIPTORS: usize = 253;

/// Sends a byte with the descriptors.
pub(crate) fn send(socket: &impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let buffers = [IoSlice::new(b"d")];
    sendmsg(socket, &buffers, &mut ancillary, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// The descriptor that comes with a byte `d`; `None` when another byte comes.
pub(super) fn receive_one(socket: &impl AsFd) -> io::Result<Option<OwnedFd>> {
    let mut byte = [0];
    let descriptor = receive_with(socket, &mut byte)?.pop();
    match (byte, descriptor) {
        (_, Some(descriptor)) => Ok(Some(descriptor)),
        ([0], None) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, None) => Ok(None),
    }
}

/// The descriptors that come with the first byte.
pub(super) fn receive(socket: &impl AsFd) -> io::Result<Vec<OwnedFd>> {
    receive_with(socket, &mut [0])
}

fn receive_with(socket: &impl AsFd, byte: &mut [u8; 1]) -> io::Result<Vec<OwnedFd>> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(byte)];
    let flags = RecvFlags::CMSG_CLOEXEC;
    recvmsg(socket, &mut buffers, &mut ancillary, flags)?;
    let mut received = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(descriptors) = message {
            received.extend(descriptors);
        }
    }
    Ok(received)
}

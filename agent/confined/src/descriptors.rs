//! Bytes with descriptors, over the sockets between the agent and its helpers.

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
///
/// # Errors
/// When the other side is gone, or there are too many descriptors.
pub fn send(socket: &impl AsFd, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    send_with(socket, b"d", descriptors, SendFlags::empty())
}

/// Sends bytes, and the descriptors with the first of them.
///
/// # Errors
/// As [`send`], and with `DONTWAIT` when the other side does not keep up.
pub fn send_with(
    socket: &impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
    flags: SendFlags,
) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let rights = SendAncillaryMessage::ScmRights(descriptors);
    if !descriptors.is_empty() && !ancillary.push(rights) {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let flags = flags | SendFlags::NOSIGNAL;
    sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    Ok(())
}

/// The descriptor that comes with a byte `d`; `None` when another byte comes.
///
/// # Errors
/// When nothing comes any more.
pub fn receive_one(socket: &impl AsFd) -> io::Result<Option<OwnedFd>> {
    let (bytes, mut descriptors) = receive_with(socket, &mut [0], RecvFlags::empty())?;
    match (bytes, descriptors.pop()) {
        (_, Some(descriptor)) => Ok(Some(descriptor)),
        (0, None) => Err(io::ErrorKind::UnexpectedEof.into()),
        (_, None) => Ok(None),
    }
}

/// The descriptors that come with the first byte.
///
/// # Errors
/// When the socket fails.
pub fn receive(socket: &impl AsFd) -> io::Result<Vec<OwnedFd>> {
    Ok(receive_with(socket, &mut [0], RecvFlags::empty())?.1)
}

/// As many bytes as came, and the descriptors that came with them.
///
/// # Errors
/// When the socket fails, and with `DONTWAIT` when nothing has come.
pub fn receive_with(
    socket: &impl AsFd,
    bytes: &mut [u8],
    flags: RecvFlags,
) -> rustix::io::Result<(usize, Vec<OwnedFd>)> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_DESCRIPTORS))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut buffers = [IoSliceMut::new(bytes)];
    let flags = flags | RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(socket, &mut buffers, &mut ancillary, flags)?;
    let mut descriptors = Vec::new();
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            descriptors.extend(rights);
        }
    }
    Ok((received.bytes, descriptors))
}

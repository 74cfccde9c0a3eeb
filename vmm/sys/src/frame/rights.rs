//! `SCM_RIGHTS` on one `sendmsg` and one `recvmsg`.
//!
//! Written on the system calls rather than on a wrapper, because no descriptor that the kernel has
//! installed may be forgotten, not even when the control data was truncated.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

use super::error::FrameError;

/// The kernel's `SCM_MAX_FD`: nobody can send more in one message, so a buffer for this many is
/// only ever too small when our own descriptor limit is reached.
const KERNEL_MAX_DESCRIPTORS: usize = 253;

/// Control buffer: one `cmsghdr` (16 bytes) and the descriptors, in units of the alignment.
type Control = [u64; (16 + KERNEL_MAX_DESCRIPTORS * mem::size_of::<RawFd>()).div_ceil(8)];

const EMPTY: Control = [0; mem::size_of::<Control>() / 8];

/// Sends `bytes` (not empty) and `descriptors`, all of them with the first byte. Returns how many
/// bytes were sent.
pub(crate) fn send(
    socket: &impl AsFd,
    bytes: &[u8],
    descriptors: &[BorrowedFd<'_>],
) -> io::Result<usize> {
    let payload = mem::size_of_val(descriptors);
    if descriptors.len() > KERNEL_MAX_DESCRIPTORS {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let payload = libc::c_uint::try_from(payload).map_err(io::Error::other)?;
    let mut control = EMPTY;
    let mut part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    let sent = loop {
        // SAFETY: a zeroed msghdr is valid. CMSG_FIRSTHDR points into `control`, which is aligned
        // for cmsghdr and, by the check above, large enough for the header and all descriptors;
        // `part` and `control` outlive the call, which does not write to either.
        let sent = unsafe {
            let mut message: libc::msghdr = mem::zeroed();
            message.msg_iov = &raw mut part;
            message.msg_iovlen = 1;
            if !descriptors.is_empty() {
                message.msg_control = control.as_mut_ptr().cast();
                message.msg_controllen = libc::CMSG_SPACE(payload) as usize;
                let header = libc::CMSG_FIRSTHDR(&raw const message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(payload) as usize;
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for (index, descriptor) in descriptors.iter().enumerate() {
                    data.add(index).write_unaligned(descriptor.as_raw_fd());
                }
            }
            libc::sendmsg(
                socket.as_fd().as_raw_fd(),
                &raw const message,
                libc::MSG_NOSIGNAL,
            )
        };
        match usize::try_from(sent) {
            Ok(sent) => break sent,
            Err(_) => retry_if_interrupted()?,
        }
    };
    Ok(sent)
}

/// Receives up to `bytes.len()` bytes and the descriptors that came with them. For peers that must
/// not be waited for: on a non-blocking socket it is [`FrameError::Io`] of kind `WouldBlock` when
/// there is nothing. No bytes at all mean that the peer closed the connection.
///
/// # Errors
/// The socket fails, or descriptors were lost because of our own limit.
pub fn receive(socket: &impl AsFd, bytes: &mut [u8]) -> Result<(usize, Vec<OwnedFd>), FrameError> {
    let mut control = EMPTY;
    let mut part = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: a zeroed msghdr is valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    let got = loop {
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = mem::size_of_val(&control);
        // SAFETY: the message names `part` and `control` with their true lengths; both outlive the
        // call.
        let got = unsafe {
            libc::recvmsg(
                socket.as_fd().as_raw_fd(),
                &raw mut message,
                libc::MSG_CMSG_CLOEXEC,
            )
        };
        match usize::try_from(got) {
            Ok(got) => break got,
            Err(_) => retry_if_interrupted()?,
        }
    };
    let descriptors = take_descriptors(&message);
    if message.msg_flags & libc::MSG_CTRUNC != 0 {
        // Those that did come are closed as `descriptors` goes.
        return Err(FrameError::DescriptorsLost);
    }
    Ok((got, descriptors))
}

/// Takes ownership of every descriptor in the control data of a message just received.
fn take_descriptors(message: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the kernel wrote well-formed control messages of `msg_controllen` bytes into the
    // buffer that `msg_control` names; CMSG_NXTHDR stays within them. Descriptors in SCM_RIGHTS
    // were installed for us a moment ago, so each has no owner but the one made here.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(message);
        while !header.is_null() {
            if (*header).cmsg_level == libc::SOL_SOCKET && (*header).cmsg_type == libc::SCM_RIGHTS {
                let bytes = (*header)
                    .cmsg_len
                    .saturating_sub(libc::CMSG_LEN(0) as usize);
                let data = libc::CMSG_DATA(header).cast::<RawFd>();
                for index in 0..bytes / mem::size_of::<RawFd>() {
                    descriptors.push(OwnedFd::from_raw_fd(data.add(index).read_unaligned()));
                }
            }
            header = libc::CMSG_NXTHDR(message, header);
        }
    }
    descriptors
}

/// `Ok` when the system call that just failed was only interrupted.
fn retry_if_interrupted() -> io::Result<()> {
    let error = io::Error::last_os_error();
    if error.kind() == io::ErrorKind::Interrupted {
        Ok(())
    } else {
        Err(error)
    }
}

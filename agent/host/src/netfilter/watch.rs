//! Word of the kernel that rules have changed.

use std::io;

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use nix::libc;

/// `NFNLGRP_NFTABLES`
const GROUP: u32 = 7;

/// Hears of each transaction in the network namespace in which it was made, its own process's too.
pub(crate) struct RuleWatch(TokioSocket);

impl RuleWatch {
    /// Has to be called within a runtime.
    ///
    /// # Errors
    /// When there can be no such socket.
    pub(crate) fn open() -> io::Result<Self> {
        let mut socket = TokioSocket::new(NETLINK_NETFILTER)?;
        let inner = socket.socket_mut();
        inner.bind(&SocketAddr::new(0, 0))?;
        inner.add_membership(GROUP)?;
        Ok(Self(socket))
    }

    /// Waits for the next transaction, and forgets all that there were until then. What they were is not looked at: more of them
    /// than the socket has room for is word of a change, too.
    ///
    /// # Errors
    /// When the runtime ends.
    pub(crate) async fn changed(&mut self) -> io::Result<()> {
        // Each read has room for no more than the beginning of a message.
        let mut said = Vec::with_capacity(1);
        let mut heard = self.0.recv(&mut said).await.map(drop);
        loop {
            match heard {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // Messages were lost.
                Err(error) if error.raw_os_error() == Some(libc::ENOBUFS) => {}
                heard => heard?,
            }
            said.clear();
            let inner = self.0.socket_ref();
            heard = inner.recv(&mut said, libc::MSG_DONTWAIT).map(drop);
        }
    }
}

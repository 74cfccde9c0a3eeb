//! Changes to the device while its guest runs.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError};

use vmm_sys::event;
use vmm_sys::socket::{PacketSocket, SocketError};
use vmm_sys_util::eventfd::{EFD_CLOEXEC, EFD_NONBLOCK, EventFd};

/// A handle on the device, for whoever configures it. Nothing here waits for the device.
#[derive(Debug)]
pub struct VsockControl {
    broker: Mutex<Option<PacketSocket>>,
    /// Written for the device to look at `broker`.
    event: EventFd,
}

impl VsockControl {
    /// A handle for a device that is yet to be made.
    ///
    /// # Errors
    /// The process or the host has no descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            broker: Mutex::default(),
            event: EventFd::new(EFD_CLOEXEC | EFD_NONBLOCK)?,
        })
    }

    /// Gives the device another broker, a connected `SOCK_SEQPACKET` socket. What the one before
    /// has not answered is refused.
    ///
    /// # Errors
    /// The descriptor is no such socket.
    pub fn attach_broker(&self, descriptor: OwnedFd) -> Result<(), SocketError> {
        let socket = PacketSocket::adopt(descriptor)?;
        *self.lock() = Some(socket);
        event::signal(&self.event);
        Ok(())
    }

    /// The broker that was attached since the last call.
    pub(super) fn take_broker(&self) -> Option<PacketSocket> {
        self.lock().take()
    }

    pub(super) fn event(&self) -> &EventFd {
        &self.event
    }

    fn lock(&self) -> MutexGuard<'_, Option<PacketSocket>> {
        // A socket is there or not, whatever happened to another holder of the lock.
        self.broker.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The host's side of a named port: at most one peer, which comes and goes.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use vmm_sys::stream::{Received, Sent, has_input, is_hung_up, receive_now, send_now};

use super::watch::Watch;

/// A peer cannot be attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Another one is.
    #[error("{client} is attached")]
    Busy {
        /// Name of the client that is attached.
        client: String,
    },
    /// The host cannot watch its socket.
    #[error("the socket cannot be watched")]
    Watch(#[source] io::Error),
}

/// A named port, for those who attach peers to it.
pub struct HostPort {
    number: u16,
    name: String,
    watch: Arc<Watch>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    peer: Option<Peer>,
    /// Peers that there ever were.
    attached: u64,
}

struct Peer {
    socket: OwnedFd,
    client: String,
    /// No two peers of a port have the same.
    number: u64,
}

impl HostPort {
    pub(super) fn new(number: u16, name: String, watch: Arc<Watch>) -> Self {
        Self {
            number,
            name,
            watch,
            state: Mutex::default(),
        }
    }

    /// Number of the port, from 1 on.
    #[must_use]
    pub fn number(&self) -> u16 {
        self.number
    }

    /// Name of the port, by which guests find it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Attaches a connected stream socket, in place of another one with `force`, and notifies the guest.
    /// One whose other end is gone is no obstacle. Never waits for the device.
    ///
    /// # Errors
    /// Another peer is attached, or the host cannot watch the socket.
    pub fn attach(&self, socket: OwnedFd, client: &str, force: bool) -> Result<(), AttachError> {
        let mut state = self.lock();
        if let Some(present) = &state.peer
            && !force
            && !is_hung_up(&present.socket)
        {
            let client = present.client.clone();
            return Err(AttachError::Busy { client });
        }
        self.watch
            .add(socket.as_raw_fd(), self.number)
            .map_err(AttachError::Watch)?;
        self.detach(&mut state);
        state.attached += 1;
        state.peer = Some(Peer {
            socket,
            client: client.to_owned(),
            number: state.attached,
        });
        drop(state);
        self.watch.wake();
        Ok(())
    }

    /// The number of the present peer.
    pub(in super::super) fn present(&self) -> Option<u64> {
        self.lock().peer.as_ref().map(|peer| peer.number)
    }

    /// Sends to the peer of this number; another one in its place gets nothing.
    pub(in super::super) fn send(&self, peer: u64, bytes: &[u8]) -> Sent {
        match self.lock().numbered(peer) {
            Some(peer) => send_now(&peer.socket, bytes),
            None => Sent::Ended,
        }
    }

    /// Receives from the peer of this number.
    pub(in super::super) fn receive(&self, peer: u64, buffer: &mut [u8]) -> Received {
        match self.lock().numbered(peer) {
            Some(peer) => receive_now(&peer.socket, buffer),
            None => Received::Ended,
        }
    }

    /// Lets go of the peer of this number if it has closed its socket; not before what it left was
    /// received, if that `is_wanted`.
    pub(in super::super) fn end_if_gone(&self, peer: u64, is_wanted: bool) {
        let mut state = self.lock();
        let is_over = state.numbered(peer).is_some_and(|peer| {
            is_hung_up(&peer.socket) && !(is_wanted && has_input(&peer.socket))
        });
        if is_over {
            self.detach(&mut state);
        }
    }

    fn detach(&self, state: &mut State) {
        if let Some(peer) = state.peer.take() {
            self.watch.remove(peer.socket.as_raw_fd());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A peer is whole whatever happened to another holder of the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn numbered(&self, number: u64) -> Option<&Peer> {
        self.peer.as_ref().filter(|peer| peer.number == number)
    }
}

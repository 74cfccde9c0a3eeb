//! One port: two sides, and the data between them and the port's queues.
//!
//! Nothing is kept here of what passes. What the guest sends stays in its descriptors until the peer
//! takes it, what the peer sends stays in its socket until the guest offers buffers: each side is
//! read as fast as the other takes. Output without a peer is dropped.

use std::sync::Arc;

use vmm_sys::stream::{Received, Sent};

use super::config::MAX_CHAINS;
use super::control::DeviceMessage;
use super::guest::{GuestSide, Introduction, PortDescription};
use super::host::{ConsoleLine, ConsoleSize, HostPort};
use crate::virtio::fault::DeviceFault;
use crate::virtio::queue::{Chain, VirtQueue, copy_in, copy_out, window};
use vmm_memory::GuestRam;

/// Bytes moved by one system call at most.
const PIECE_BYTES: usize = 16 << 10;
/// What a port moves in one direction before others have their turn.
const TURN_BYTES: usize = 64 << 10;
const TURN_CHAINS: u32 = 128;

/// What stands behind a port.
enum HostSide {
    /// A peer, or none.
    Peer(Arc<HostPort>),
    /// The console port's line to its clients.
    Console(Arc<ConsoleLine>),
}

/// Room for what is on its way, shared by the ports of a device.
pub(super) struct Scratch {
    chain: Chain,
    piece: Vec<u8>,
}

impl Scratch {
    pub(super) fn new() -> Self {
        Self {
            chain: Chain::default(),
            piece: vec![0; PIECE_BYTES],
        }
    }
}

/// A port of the device, as the driver has set it up.
pub(super) struct Port {
    pub(super) number: u16,
    host: HostSide,
    pub(super) guest: GuestSide,
    /// Number of the peer that the guest talks to, as far as the device knows.
    peer: Option<u64>,
    /// Bytes that the peer has taken of the chain that comes next.
    sent: u64,
    /// Chains that may be for a peer that is no more.
    stale_chains: u16,
}

/// Result of writing a chain of the guest's to the peer.
enum WriteOutcome {
    /// The peer took all of it.
    All,
    /// The peer takes no more now.
    Full,
    /// The queue has rescheduled itself.
    BudgetSpent,
}

impl Port {
    pub(super) fn console(line: Arc<ConsoleLine>) -> Self {
        Self::new(0, HostSide::Console(line))
    }

    pub(super) fn named(port: Arc<HostPort>) -> Self {
        Self::new(port.number(), HostSide::Peer(port))
    }

    fn new(number: u16, host: HostSide) -> Self {
        Self {
            number,
            host,
            guest: GuestSide::default(),
            peer: None,
            sent: 0,
            stale_chains: 0,
        }
    }

    pub(super) fn name(&self) -> &str {
        match &self.host {
            HostSide::Peer(port) => port.name(),
            HostSide::Console(line) => line.name(),
        }
    }

    pub(super) fn is_console(&self) -> bool {
        matches!(self.host, HostSide::Console(_))
    }

    /// Forgets the guest; the peer stays.
    pub(super) fn reset(&mut self) {
        self.guest = GuestSide::default();
        self.sent = 0;
        self.stale_chains = 0;
        if let HostSide::Console(line) = &self.host {
            line.clear();
        }
    }

    /// Goes on with a guest that was saved. Its peer is no more, and what it wrote to it is not for
    /// the next one.
    pub(super) fn go_on_with(&mut self, guest: GuestSide) {
        self.guest = guest;
        if !self.is_console() {
            self.guest.on_host_close();
            self.stale_chains = MAX_CHAINS;
        }
    }

    fn is_host_open(&self) -> bool {
        self.is_console() || self.peer.is_some()
    }

    /// The driver has made the port, or could not.
    pub(super) fn on_ready(&mut self, made: bool, wants_size: bool) {
        let introduction = Introduction {
            is_console: self.is_console(),
            is_named: !self.name().is_empty(),
            is_open: self.is_host_open(),
            has_size: wants_size && self.size() != ConsoleSize::default(),
        };
        self.guest.on_ready(made, introduction);
    }

    fn size(&self) -> ConsoleSize {
        match &self.host {
            HostSide::Peer(_) => ConsoleSize::default(),
            HostSide::Console(line) => line.size().0,
        }
    }

    /// The next message that the driver is owed.
    pub(super) fn next_message(&self) -> Option<DeviceMessage<'_>> {
        self.guest.next(PortDescription {
            name: self.name(),
            size: self.size(),
        })
    }

    /// Finds out whether the peer is still the one it was.
    pub(super) fn check_peer(&mut self) {
        let HostSide::Peer(port) = &self.host else {
            return;
        };
        let present = port.present();
        if present == self.peer {
            return;
        }
        if self.peer.is_some() {
            self.guest.on_host_close();
            self.sent = 0;
            self.stale_chains = MAX_CHAINS;
        }
        if present.is_some() {
            self.guest.on_host_open();
        }
        self.peer = present;
    }

    /// Lets go of a peer that is gone, once the guest has what it left or does not want it.
    fn end_gone_peer(&mut self) {
        if let (HostSide::Peer(port), Some(peer)) = (&self.host, self.peer) {
            port.end_if_gone(peer, self.guest.is_open);
            self.check_peer();
        }
    }

    /// Data of the guest's, until there is none, the peer takes no more, or the turn is over.
    pub(super) fn transmit(
        &mut self,
        queue: &mut VirtQueue,
        memory: &GuestRam,
        scratch: &mut Scratch,
    ) -> Result<(), DeviceFault> {
        let mut bytes_left = TURN_BYTES;
        let mut chains_left = TURN_CHAINS;
        loop {
            queue.disable_notification()?;
            while queue.pop(&mut scratch.chain)? {
                match self.take(memory, scratch, &mut bytes_left) {
                    WriteOutcome::All => queue.add_used(scratch.chain.head, 0)?,
                    WriteOutcome::Full => {
                        queue.undo_pop(1);
                        return queue.signal_used();
                    }
                    WriteOutcome::BudgetSpent => {
                        queue.undo_pop(1);
                        queue.reschedule();
                        return queue.signal_used();
                    }
                }
                self.sent = 0;
                chains_left -= 1;
                if chains_left == 0 {
                    queue.reschedule();
                    return queue.signal_used();
                }
            }
            self.stale_chains = 0;
            if !queue.enable_notification()? {
                return queue.signal_used();
            }
        }
    }

    fn take(
        &mut self,
        memory: &GuestRam,
        scratch: &mut Scratch,
        bytes_left: &mut usize,
    ) -> WriteOutcome {
        if self.stale_chains > 0 {
            self.stale_chains -= 1;
            return WriteOutcome::All;
        }
        let total = scratch.chain.readable_bytes();
        while self.sent < total && self.is_host_open() {
            if *bytes_left == 0 {
                return WriteOutcome::BudgetSpent;
            }
            let left = usize::try_from(total - self.sent).unwrap_or(usize::MAX);
            let count = left.min(PIECE_BYTES).min(*bytes_left);
            let piece = scratch.piece.get_mut(..count).unwrap_or_default();
            let buffers = window(&scratch.chain.readable, self.sent, count as u64);
            // The rest of a chain that is not all RAM is dropped.
            let Ok(copied) = copy_out(memory, buffers, piece) else {
                return WriteOutcome::All;
            };
            match self.send(piece.get(..copied).unwrap_or_default()) {
                Sent::Bytes(0) | Sent::Ended => return WriteOutcome::All,
                Sent::Bytes(sent) => {
                    self.sent += sent as u64;
                    *bytes_left -= sent.min(*bytes_left);
                }
                Sent::Full => return WriteOutcome::Full,
            }
        }
        WriteOutcome::All
    }

    fn send(&self, piece: &[u8]) -> Sent {
        match (&self.host, self.peer) {
            (HostSide::Console(line), _) => {
                // Linux waits with a spin lock held until a console has taken what it is given.
                line.write(piece);
                Sent::Bytes(piece.len())
            }
            (HostSide::Peer(port), Some(peer)) => port.send(peer, piece),
            (HostSide::Peer(_), None) => Sent::Ended,
        }
    }

    /// Data for the guest, until there is none, the guest has no room, or the turn is over.
    pub(super) fn receive(
        &mut self,
        queue: &mut VirtQueue,
        memory: &GuestRam,
        scratch: &mut Scratch,
    ) -> Result<(), DeviceFault> {
        if self.guest.can_receive() {
            self.fill(queue, memory, scratch)?;
            queue.signal_used()?;
        }
        self.end_gone_peer();
        Ok(())
    }

    fn fill(
        &mut self,
        queue: &mut VirtQueue,
        memory: &GuestRam,
        scratch: &mut Scratch,
    ) -> Result<(), DeviceFault> {
        queue.disable_notification()?;
        let mut moved = 0;
        for _ in 0..TURN_CHAINS {
            if moved >= TURN_BYTES {
                break;
            }
            if !queue.pop(&mut scratch.chain)? {
                if queue.enable_notification()? {
                    continue;
                }
                return Ok(());
            }
            let chain = &scratch.chain;
            let room = usize::try_from(chain.writable_bytes()).unwrap_or(usize::MAX);
            let room = room.min(PIECE_BYTES);
            if room == 0 {
                queue.add_used(chain.head, 0)?;
                continue;
            }
            let piece = scratch.piece.get_mut(..room).unwrap_or_default();
            let Received::Bytes(count) = self.receive_from_host(piece) else {
                queue.undo_pop(1);
                return Ok(());
            };
            moved += count;
            let data = piece.get(..count).unwrap_or_default();
            let buffers = window(&chain.writable, 0, count as u64);
            // A buffer outside of RAM gets nothing; the driver asked for that.
            let written = copy_in(memory, buffers, data).unwrap_or(0);
            queue.add_used(chain.head, u32::try_from(written).unwrap_or(0))?;
        }
        queue.reschedule();
        Ok(())
    }

    fn receive_from_host(&self, piece: &mut [u8]) -> Received {
        match (&self.host, self.peer) {
            (HostSide::Console(line), _) => line.receive(piece),
            (HostSide::Peer(port), Some(peer)) => port.receive(peer, piece),
            (HostSide::Peer(_), None) => Received::Nothing,
        }
    }
}

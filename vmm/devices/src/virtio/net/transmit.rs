//! The transmit side: from the guest's buffers to the port.

use std::io;

use super::card::{Card, Direction};
use super::port::PacketPort;
use super::{MAX_PACKET_BYTES, MIN_PACKET_BYTES};
use crate::GuestRam;
use crate::virtio::device::DeviceFault;
use crate::virtio::queue::{Chain, Turn, VirtQueue, slices_of};

const TURN: Turn = Turn {
    chains: 128,
    bytes: 4 << 20,
};

/// Why no more frames are taken for now.
enum Pause {
    /// There are none. A kick comes with the next.
    Empty,
    TurnOver,
    /// The timer says when to go on.
    Later,
}

/// What became of a frame.
enum Sent {
    /// It is gone, or lost.
    Done,
    /// The host takes none now.
    Busy,
}

/// A transmit queue.
pub(super) struct Transmitter {
    queue: VirtQueue,
    /// Kept for its memory.
    chain: Chain,
    /// There may be frames for which no kick comes.
    is_waiting: bool,
}

impl Transmitter {
    pub(super) fn new(queue: VirtQueue) -> Self {
        Self {
            queue,
            chain: Chain::default(),
            is_waiting: false,
        }
    }

    pub(super) fn queue(&self) -> &VirtQueue {
        &self.queue
    }

    pub(super) fn queue_mut(&mut self) -> &mut VirtQueue {
        &mut self.queue
    }

    /// Whether the queue waits for the timer.
    pub(super) fn is_waiting(&self) -> bool {
        self.is_waiting
    }

    /// Sends frames until the guest has none, the limits say later, or the turn is over.
    pub(super) fn serve(
        &mut self,
        port: &impl PacketPort,
        memory: &GuestRam,
        card: &mut Card,
    ) -> Result<(), DeviceFault> {
        self.is_waiting = false;
        let mut left = TURN;
        loop {
            self.queue.hush()?;
            match self.send_frames(port, memory, card, &mut left)? {
                Pause::Empty if self.queue.listen()? => continue,
                Pause::Empty => {}
                Pause::TurnOver => self.queue.again(),
                Pause::Later => self.is_waiting = true,
            }
            return self.queue.announce();
        }
    }

    fn send_frames(
        &mut self,
        port: &impl PacketPort,
        memory: &GuestRam,
        card: &mut Card,
        left: &mut Turn,
    ) -> Result<Pause, DeviceFault> {
        loop {
            if left.chains == 0 || left.bytes == 0 {
                return Ok(Pause::TurnOver);
            }
            if !card.admits(Direction::FromGuest) {
                return Ok(Pause::Later);
            }
            if !self.queue.pop(&mut self.chain)? {
                return Ok(Pause::Empty);
            }
            if let Sent::Busy = send(port, memory, card, &self.chain) {
                self.queue.unpop(1);
                return Ok(Pause::Later);
            }
            self.queue.push(self.chain.head, 0)?;
            let bytes = self.chain.readable_bytes().min(MAX_PACKET_BYTES);
            left.chains -= 1;
            left.bytes = left.bytes.saturating_sub(bytes);
        }
    }
}

/// Sends one frame, header and all, straight from guest memory. The kernel checks the header: what it
/// refuses is lost, as is what is sent while the link is down.
fn send(port: &impl PacketPort, memory: &GuestRam, card: &mut Card, chain: &Chain) -> Sent {
    let bytes = chain.readable_bytes();
    let possible = (MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&bytes);
    let sent = if possible && card.control.is_link_up() {
        slices_of(memory, chain.readable.iter().copied()).and_then(|parts| port.send(&parts))
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    };
    match sent {
        Ok(()) => {
            card.charge(Direction::FromGuest, bytes - super::HEADER_BYTES);
            card.counters.count_sent();
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && card.call_later() => {
            return Sent::Busy;
        }
        Err(error) => {
            // The kernel's word, and ours, for what the guest did wrong.
            if error.kind() != io::ErrorKind::InvalidInput {
                card.counters.count_port_error();
            }
            card.counters.count_send_dropped();
        }
    }
    Sent::Done
}

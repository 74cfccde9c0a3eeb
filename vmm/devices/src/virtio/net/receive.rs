//! The receive side: from the port into the guest's buffers.
//!
//! ```text
//! avail ring -> taken -> readv(2) by the kernel, then the header's num_buffers -> used ring
//!                  |         |
//!                  |         +- what did not fit, into `buffer` -> more chains, by copy
//!                  |                                        \-> none there: the whole frame waits
//!                  +- at rest: back into the avail ring
//! ```
//!
//! No frame is read while there is no chain at all: frames wait in the port.

use vmm_sys::tap::VNET_HEADER_BYTES;

use super::card::{Card, Direction};
use super::filter::DECIDING_BYTES;
use super::port::PacketPort;
use super::taken::Taken;
use super::{HEADER_BYTES, MAX_PACKET_BYTES};
use crate::GuestRam;
use crate::virtio::device::DeviceFault;
use crate::virtio::queue::{Chain, VirtQueue, copy_in, copy_out, slices_of, window};

/// Frames of one turn; see [`Turn`](crate::virtio::queue::Turn).
const TURN_FRAMES: u32 = 64;

/// Most parts of one `readv(2)`, less one for our own buffer.
const MAX_PARTS: usize = 1023;

/// Where `num_buffers` is in the header.
const NUM_BUFFERS: u64 = 10;
const NUM_BUFFERS_BYTES: u64 = 2;

/// Why no more frames are read for now.
enum Pause {
    /// The port has none now; it becomes readable with the next.
    Empty,
    /// The guest has too few buffers; a kick comes when it adds some.
    Starved,
    TurnOver,
    /// The timer says when to go on.
    Later,
}

/// What became of an attempt to deliver a frame.
enum Step {
    Delivered,
    /// It never fits, or the port failed to give it.
    Dropped,
    /// The driver does not want it.
    Filtered,
    Paused(Pause),
}

/// Whether there is room for a frame.
enum Room {
    Enough,
    /// When the driver adds buffers; it has been asked to kick.
    Later,
    Never,
}

/// A receive queue and the frame on its way.
pub(super) struct Receiver {
    queue: VirtQueue,
    /// A frame may be spread over several chains.
    is_mergeable: bool,
    taken: Taken,
    /// What of a frame does not fit into the chains taken, or a frame that waits.
    buffer: Vec<u8>,
    /// Length of the frame that waits in `buffer`, header and all.
    pending: Option<usize>,
    /// Room that the next frame is likely to need.
    expected: u64,
    /// The guest has been asked to kick; until then there is no use in looking at the port.
    is_starved: bool,
    /// There may be frames for which the port says nothing.
    is_waiting: bool,
    /// Kept for their memory.
    chain: Chain,
    used: Vec<(u16, u32)>,
}

impl Receiver {
    pub(super) fn new(queue: VirtQueue, is_mergeable: bool) -> Self {
        let longest = usize::try_from(MAX_PACKET_BYTES).unwrap_or(0);
        Self {
            queue,
            is_mergeable,
            taken: Taken::default(),
            buffer: vec![0; longest],
            pending: None,
            expected: 0,
            is_starved: false,
            is_waiting: false,
            chain: Chain::default(),
            used: Vec::new(),
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

    /// The port has frames.
    pub(super) fn on_frames(
        &mut self,
        port: &impl PacketPort,
        memory: &GuestRam,
        card: &mut Card,
    ) -> Result<(), DeviceFault> {
        // While the link is down frames are lost, buffers or not.
        if self.is_starved && card.control.is_link_up() {
            return Ok(());
        }
        self.serve(port, memory, card)
    }

    /// Delivers frames until the port has none, the guest has no room, the limits say later, or the
    /// turn is over.
    pub(super) fn serve(
        &mut self,
        port: &impl PacketPort,
        memory: &GuestRam,
        card: &mut Card,
    ) -> Result<(), DeviceFault> {
        (self.is_starved, self.is_waiting) = (false, false);
        self.queue.hush()?;
        match self.take_frames(port, memory, card)? {
            Pause::Empty => {}
            Pause::Starved => self.is_starved = true,
            Pause::Later => self.is_waiting = true,
            Pause::TurnOver => self.queue.again(),
        }
        self.queue.announce()
    }

    /// Gives chains that no frame has filled back to the ring.
    pub(super) fn come_to_rest(&mut self) {
        let count = self.taken.count();
        // No more than the ring has.
        self.queue.unpop(u16::try_from(count).unwrap_or(0));
        self.taken.drop_first(count);
    }

    fn take_frames(
        &mut self,
        port: &impl PacketPort,
        memory: &GuestRam,
        card: &mut Card,
    ) -> Result<Pause, DeviceFault> {
        for _ in 0..TURN_FRAMES {
            if !card.admits(Direction::ToGuest) {
                return Ok(Pause::Later);
            }
            let step = if !card.control.is_link_up() {
                self.lose(port, card)
            } else if let Some(length) = self.pending {
                self.deliver(memory, card, length, 0)?
            } else {
                self.receive(port, memory, card)?
            };
            match step {
                Step::Delivered => card.counters.count_received(),
                Step::Dropped => card.counters.count_receive_dropped(),
                Step::Filtered => card.counters.count_receive_filtered(),
                Step::Paused(pause) => return Ok(pause),
            }
            self.pending = None;
        }
        Ok(Pause::TurnOver)
    }

    /// Reads a frame that nobody gets.
    fn lose(&mut self, port: &impl PacketPort, card: &Card) -> Step {
        if self.pending.is_some() {
            return Step::Dropped;
        }
        match port.receive::<()>(&[], &mut self.buffer) {
            Ok(Some(_)) => Step::Dropped,
            Ok(None) => Step::Paused(Pause::Empty),
            Err(_) => {
                card.counters.count_port_error();
                Step::Paused(Pause::Empty)
            }
        }
    }

    /// Reads a frame into chains of the driver and delivers it.
    fn receive(
        &mut self,
        port: &impl PacketPort,
        memory: &GuestRam,
        card: &mut Card,
    ) -> Result<Step, DeviceFault> {
        while self.taken.room() < self.expected && self.take_chain()? {}
        if let Room::Later = self.require(1)? {
            return Ok(Step::Paused(Pause::Starved));
        }
        // Buffers that are not RAM get nothing: then all goes by our own.
        let parts = slices_of(memory, self.taken.buffers().iter().copied())
            .ok()
            .filter(|parts| parts.len() <= MAX_PARTS)
            .unwrap_or_default();
        let direct = if parts.is_empty() {
            0
        } else {
            self.taken.room()
        };
        let length = match port.receive(&parts, &mut self.buffer) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(Step::Paused(Pause::Empty)),
            Err(_) => {
                card.counters.count_port_error();
                card.counters.count_receive_dropped();
                return Ok(Step::Paused(Pause::Empty));
            }
        };
        drop(parts);
        // Longer than any that could wait: no host sends it.
        if length > self.buffer.len() {
            return Ok(Step::Dropped);
        }
        let there = direct.min(length as u64);
        if !card.filter.is_open() && !self.is_wanted(memory, card, length, there) {
            return Ok(Step::Filtered);
        }
        self.deliver(memory, card, length, there)
    }

    /// Whether the filter lets a frame pass, of which `there` bytes are in the chains taken.
    fn is_wanted(&self, memory: &GuestRam, card: &Card, length: usize, there: u64) -> bool {
        const SEEN: usize = VNET_HEADER_BYTES + DECIDING_BYTES;
        let mut seen = [0; SEEN];
        let start = seen.get_mut(..length.min(SEEN)).unwrap_or_default();
        let buffers = window(self.taken.buffers(), 0, there);
        // The driver may change what it sees: the harm is its own.
        let copied = copy_out(memory, buffers, start).unwrap_or(0);
        let rest = start.get_mut(copied..).unwrap_or_default();
        let from_buffer = self.buffer.get(..rest.len()).unwrap_or_default();
        rest.copy_from_slice(from_buffer);
        let frame = start.get(VNET_HEADER_BYTES..).unwrap_or_default();
        card.filter.passes(frame, card.mac)
    }

    /// Delivers the frame of `length` bytes, header and all, of which `there` are in the chains taken
    /// and the others at the start of `buffer`.
    fn deliver(
        &mut self,
        memory: &GuestRam,
        card: &mut Card,
        length: usize,
        there: u64,
    ) -> Result<Step, DeviceFault> {
        match self.require(length as u64)? {
            Room::Enough => {}
            Room::Never => return Ok(Step::Dropped),
            Room::Later => {
                self.keep(memory, length, there);
                return Ok(Step::Paused(Pause::Starved));
            }
        }
        let bytes = length as u64;
        let missing = usize::try_from(bytes - there).unwrap_or(0);
        let rest = self.buffer.get(..missing).unwrap_or_default();
        let buffers = self.taken.buffers();
        let mut is_intact =
            missing == 0 || copy_in(memory, window(buffers, there, bytes - there), rest).is_ok();
        self.taken.spread(bytes, &mut self.used);
        // 1 without mergeable buffers (5.1.6.4.1).
        let count = u16::try_from(self.used.len()).unwrap_or(u16::MAX);
        let field = window(buffers, NUM_BUFFERS, NUM_BUFFERS_BYTES);
        is_intact &= copy_in(memory, field, &count.to_le_bytes()).is_ok();
        if !is_intact {
            for (_, written) in &mut self.used {
                *written = 0;
            }
        }
        self.queue.push_together(&self.used)?;
        self.taken.drop_first(self.used.len());
        self.expected = bytes.max(self.expected - self.expected / 8);
        if !is_intact {
            return Ok(Step::Dropped);
        }
        card.charge(Direction::ToGuest, bytes.saturating_sub(HEADER_BYTES));
        Ok(Step::Delivered)
    }

    /// Has a frame wait, all of it in `buffer`.
    fn keep(&mut self, memory: &GuestRam, length: usize, there: u64) {
        let first = usize::try_from(there).unwrap_or(0);
        self.buffer.copy_within(..length - first, first);
        if let Some(start) = self.buffer.get_mut(..first) {
            // They were RAM when the kernel wrote them.
            copy_out(memory, window(self.taken.buffers(), 0, there), start).unwrap_or_default();
        }
        self.pending = Some(length);
    }

    /// Takes chains until there is room for `bytes`.
    fn require(&mut self, bytes: u64) -> Result<Room, DeviceFault> {
        loop {
            if self.taken.room() >= bytes {
                return Ok(Room::Enough);
            }
            // More chains than the ring has cannot come, so waiting would be for ever.
            if !self.may_take() {
                return Ok(Room::Never);
            }
            if !self.take_chain()? && !self.queue.listen()? {
                return Ok(Room::Later);
            }
        }
    }

    fn take_chain(&mut self) -> Result<bool, DeviceFault> {
        let is_taken = self.may_take() && self.queue.pop(&mut self.chain)?;
        if is_taken {
            self.taken.push(&self.chain);
        }
        Ok(is_taken)
    }

    fn may_take(&self) -> bool {
        let most = if self.is_mergeable {
            usize::from(self.queue.size())
        } else {
            1
        };
        self.taken.count() < most && !self.taken.is_full()
    }
}

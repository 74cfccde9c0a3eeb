//! The receive side: from the backend into the guest's buffers.
//!
//! ```text
//! avail ring -> popped -> readv(2) by the kernel, then the header's num_buffers -> used ring
//!                  |         |
//!                  |         +- the tail that did not fit, into `buffer` -> more chains, by copy
//!                  |                                        \-> no chains left: the whole frame waits
//!                  +- quiesce: the pops are undone
//! ```
//!
//! No frame is read before a chain was popped: until then frames wait in the backend.

use vmm_sys::tap::VNET_HEADER_BYTES;

use super::backend::PacketBackend;
use super::filter::DECIDING_BYTES;
use super::nic::{Direction, Nic};
use super::packet::{HEADER_BYTES, MAX_PACKET_BYTES};
use super::popped_chains::PoppedChains;
use crate::virtio::fault::DeviceFault;
use crate::virtio::queue::{Chain, VirtQueue, copy_in, copy_out, slices_of, window};
use vmm_memory::GuestRam;

/// Frames received before other devices are served; see [`Budget`](crate::virtio::queue::Budget).
const FRAME_BUDGET: u32 = 64;

/// Most parts of one `readv(2)`, less one for our own buffer.
const MAX_PARTS: usize = 1023;

/// Where `num_buffers` is in the header.
const NUM_BUFFERS: u64 = 10;
const NUM_BUFFERS_BYTES: u64 = 2;

/// Why the receiver stops reading frames for now.
enum StopReason {
    /// The backend has no frame; it becomes readable with the next one.
    Empty,
    /// The avail ring has too few chains; the driver kicks when it adds some.
    OutOfBuffers,
    /// The queue has rescheduled itself.
    BudgetSpent,
    /// The rate limit is reached; the NIC's timer says when to continue.
    Throttled,
}

/// Result of one attempt to receive a frame.
enum FrameOutcome {
    Delivered,
    /// No number of chains could hold it, or the backend failed.
    Dropped,
    /// The driver's receive filter refuses it.
    Filtered,
    Stopped(StopReason),
}

/// Whether the popped chains can hold a frame.
enum BufferSpace {
    Enough,
    /// They can after the driver adds chains; notifications are enabled.
    Later,
    /// The frame needs more chains than the ring has.
    Never,
}

/// A receive queue and the frame that waits for buffers, if any.
pub(super) struct Receiver {
    queue: VirtQueue,
    /// `VIRTIO_NET_F_MRG_RXBUF`: a frame may use several chains.
    is_mergeable: bool,
    /// Chains popped and not yet returned.
    popped: PoppedChains,
    /// The tail of a frame that did not fit into `popped`, or a whole frame that waits for chains.
    buffer: Vec<u8>,
    /// Bytes of the frame that waits in `buffer`, including its header.
    pending: Option<usize>,
    /// Bytes that the next frame is likely to need: a decaying maximum of recent frames.
    expected_bytes: u64,
    /// Notifications are enabled because chains ran out; reading the backend is useless before the kick.
    is_out_of_buffers: bool,
    /// Frames may be left in the backend that caused no new edge of its descriptor; the timer resumes them.
    needs_timer: bool,
    /// Scratch space, kept to reuse its allocation.
    chain: Chain,
    used: Vec<(u16, u32)>,
}

impl Receiver {
    pub(super) fn new(queue: VirtQueue, is_mergeable: bool) -> Self {
        let longest = usize::try_from(MAX_PACKET_BYTES).unwrap_or(0);
        Self {
            queue,
            is_mergeable,
            popped: PoppedChains::default(),
            buffer: vec![0; longest],
            pending: None,
            expected_bytes: 0,
            is_out_of_buffers: false,
            needs_timer: false,
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

    /// Whether the NIC's timer has to resume this queue.
    pub(super) fn needs_timer(&self) -> bool {
        self.needs_timer
    }

    /// Handles an edge of the backend's descriptor: it has frames.
    pub(super) fn on_frames(
        &mut self,
        backend: &impl PacketBackend,
        memory: &GuestRam,
        nic: &mut Nic,
    ) -> Result<(), DeviceFault> {
        // While the link is down frames are lost, buffers or not.
        if self.is_out_of_buffers && nic.control.is_link_up() {
            return Ok(());
        }
        self.serve(backend, memory, nic)
    }

    /// Delivers frames until the backend is empty, chains run out, the rate limit is reached, or the
    /// budget is spent.
    pub(super) fn serve(
        &mut self,
        backend: &impl PacketBackend,
        memory: &GuestRam,
        nic: &mut Nic,
    ) -> Result<(), DeviceFault> {
        (self.is_out_of_buffers, self.needs_timer) = (false, false);
        self.queue.disable_notification()?;
        match self.receive_frames(backend, memory, nic)? {
            StopReason::Empty => {}
            StopReason::OutOfBuffers => self.is_out_of_buffers = true,
            StopReason::Throttled => self.needs_timer = true,
            StopReason::BudgetSpent => self.queue.reschedule(),
        }
        self.queue.signal_used()
    }

    /// Returns popped chains that hold no frame to the avail ring, for a snapshot or for vhost.
    pub(super) fn undo_pops(&mut self) {
        let count = self.popped.count();
        // No more than the ring has.
        self.queue.undo_pop(u16::try_from(count).unwrap_or(0));
        self.popped.drop_first(count);
    }

    fn receive_frames(
        &mut self,
        backend: &impl PacketBackend,
        memory: &GuestRam,
        nic: &mut Nic,
    ) -> Result<StopReason, DeviceFault> {
        for _ in 0..FRAME_BUDGET {
            if !nic.admits(Direction::ToGuest) {
                return Ok(StopReason::Throttled);
            }
            let step = if !nic.control.is_link_up() {
                self.discard_frame(backend, nic)
            } else if let Some(length) = self.pending {
                self.deliver(memory, nic, length, 0)?
            } else {
                self.receive_frame(backend, memory, nic)?
            };
            match step {
                FrameOutcome::Delivered => nic.counters.count_received(),
                FrameOutcome::Dropped => nic.counters.count_receive_dropped(),
                FrameOutcome::Filtered => nic.counters.count_receive_filtered(),
                FrameOutcome::Stopped(pause) => return Ok(pause),
            }
            self.pending = None;
        }
        Ok(StopReason::BudgetSpent)
    }

    /// Reads one frame and drops it, because the link is down.
    fn discard_frame(&mut self, backend: &impl PacketBackend, nic: &Nic) -> FrameOutcome {
        if self.pending.is_some() {
            return FrameOutcome::Dropped;
        }
        match backend.receive::<()>(&[], &mut self.buffer) {
            Ok(Some(_)) => FrameOutcome::Dropped,
            Ok(None) => FrameOutcome::Stopped(StopReason::Empty),
            Err(_) => {
                nic.counters.count_backend_error();
                FrameOutcome::Stopped(StopReason::Empty)
            }
        }
    }

    /// Reads a frame into the driver's chains and delivers it.
    fn receive_frame(
        &mut self,
        backend: &impl PacketBackend,
        memory: &GuestRam,
        nic: &mut Nic,
    ) -> Result<FrameOutcome, DeviceFault> {
        while self.popped.writable_bytes() < self.expected_bytes && self.pop_chain()? {}
        if let BufferSpace::Later = self.ensure_space(1)? {
            return Ok(FrameOutcome::Stopped(StopReason::OutOfBuffers));
        }
        // Buffers outside RAM cannot be given to readv(2): the whole frame then goes through `buffer`.
        let parts = slices_of(memory, self.popped.buffers().iter().copied())
            .ok()
            .filter(|parts| parts.len() <= MAX_PARTS)
            .unwrap_or_default();
        let direct = if parts.is_empty() {
            0
        } else {
            self.popped.writable_bytes()
        };
        let length = match backend.receive(&parts, &mut self.buffer) {
            Ok(Some(length)) => length,
            Ok(None) => return Ok(FrameOutcome::Stopped(StopReason::Empty)),
            Err(_) => {
                nic.counters.count_backend_error();
                nic.counters.count_receive_dropped();
                return Ok(FrameOutcome::Stopped(StopReason::Empty));
            }
        };
        drop(parts);
        // Longer than `buffer`, which no tap device sends.
        if length > self.buffer.len() {
            return Ok(FrameOutcome::Dropped);
        }
        let in_chains = direct.min(length as u64);
        if !nic.filter.is_open() && !self.is_wanted(memory, nic, length, in_chains) {
            return Ok(FrameOutcome::Filtered);
        }
        self.deliver(memory, nic, length, in_chains)
    }

    /// Whether the receive filter accepts a frame, of which `in_chains` bytes are in the popped chains.
    fn is_wanted(&self, memory: &GuestRam, nic: &Nic, length: usize, in_chains: u64) -> bool {
        const SEEN: usize = VNET_HEADER_BYTES + DECIDING_BYTES;
        let mut seen = [0; SEEN];
        let start = seen.get_mut(..length.min(SEEN)).unwrap_or_default();
        let buffers = window(self.popped.buffers(), 0, in_chains);
        // A driver that changes its buffers meanwhile only misleads its own filter.
        let copied = copy_out(memory, buffers, start).unwrap_or(0);
        let rest = start.get_mut(copied..).unwrap_or_default();
        let from_buffer = self.buffer.get(..rest.len()).unwrap_or_default();
        rest.copy_from_slice(from_buffer);
        let frame = start.get(VNET_HEADER_BYTES..).unwrap_or_default();
        nic.filter.passes(frame, nic.mac)
    }

    /// Delivers a frame of `length` bytes including its header. `in_chains` of them are in the popped
    /// chains already, the others at the start of `buffer`.
    fn deliver(
        &mut self,
        memory: &GuestRam,
        nic: &mut Nic,
        length: usize,
        in_chains: u64,
    ) -> Result<FrameOutcome, DeviceFault> {
        match self.ensure_space(length as u64)? {
            BufferSpace::Enough => {}
            BufferSpace::Never => return Ok(FrameOutcome::Dropped),
            BufferSpace::Later => {
                self.hold_frame(memory, length, in_chains);
                return Ok(FrameOutcome::Stopped(StopReason::OutOfBuffers));
            }
        }
        let bytes = length as u64;
        let missing = usize::try_from(bytes - in_chains).unwrap_or(0);
        let rest = self.buffer.get(..missing).unwrap_or_default();
        let buffers = self.popped.buffers();
        let mut is_intact = missing == 0
            || copy_in(memory, window(buffers, in_chains, bytes - in_chains), rest).is_ok();
        self.popped.used_elements(bytes, &mut self.used);
        // 1 without mergeable buffers (5.1.6.4.1).
        let count = u16::try_from(self.used.len()).unwrap_or(u16::MAX);
        let field = window(buffers, NUM_BUFFERS, NUM_BUFFERS_BYTES);
        is_intact &= copy_in(memory, field, &count.to_le_bytes()).is_ok();
        if !is_intact {
            for (_, written) in &mut self.used {
                *written = 0;
            }
        }
        self.queue.add_used_together(&self.used)?;
        self.popped.drop_first(self.used.len());
        self.expected_bytes = bytes.max(self.expected_bytes - self.expected_bytes / 8);
        if !is_intact {
            return Ok(FrameOutcome::Dropped);
        }
        nic.charge(Direction::ToGuest, bytes.saturating_sub(HEADER_BYTES));
        Ok(FrameOutcome::Delivered)
    }

    /// Collects a whole frame in `buffer`, where it waits until the driver adds chains.
    fn hold_frame(&mut self, memory: &GuestRam, length: usize, in_chains: u64) {
        let first = usize::try_from(in_chains).unwrap_or(0);
        self.buffer.copy_within(..length - first, first);
        if let Some(start) = self.buffer.get_mut(..first) {
            // Cannot fail: the kernel has just written these bytes through the same RAM.
            copy_out(memory, window(self.popped.buffers(), 0, in_chains), start)
                .unwrap_or_default();
        }
        self.pending = Some(length);
    }

    /// Pops chains until they can hold `bytes`.
    fn ensure_space(&mut self, bytes: u64) -> Result<BufferSpace, DeviceFault> {
        loop {
            if self.popped.writable_bytes() >= bytes {
                return Ok(BufferSpace::Enough);
            }
            // The driver cannot add more chains than the ring has: the frame would wait for ever.
            if !self.may_pop() {
                return Ok(BufferSpace::Never);
            }
            if !self.pop_chain()? && !self.queue.enable_notification()? {
                return Ok(BufferSpace::Later);
            }
        }
    }

    fn pop_chain(&mut self) -> Result<bool, DeviceFault> {
        let is_popped = self.may_pop() && self.queue.pop(&mut self.chain)?;
        if is_popped {
            self.popped.push(&self.chain);
        }
        Ok(is_popped)
    }

    fn may_pop(&self) -> bool {
        let most = if self.is_mergeable {
            usize::from(self.queue.size())
        } else {
            1
        };
        self.popped.count() < most && !self.popped.is_full()
    }
}

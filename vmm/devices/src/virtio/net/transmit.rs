//! The transmit side: from the guest's buffers to the backend.

use std::io;

use super::backend::PacketBackend;
use super::nic::{Direction, Nic};
use super::packet::{HEADER_BYTES, MAX_PACKET_BYTES, MIN_PACKET_BYTES};
use crate::virtio::fault::DeviceFault;
use crate::virtio::queue::{Budget, Chain, VirtQueue, slices_of};
use vmm_memory::GuestRam;

const BUDGET: Budget = Budget {
    chains: 128,
    bytes: 4 << 20,
};

/// Why the transmitter stops taking frames for now.
enum StopReason {
    /// The avail ring is empty; the driver kicks with the next frame.
    Empty,
    /// The queue has rescheduled itself.
    BudgetSpent,
    /// The rate limit or a busy host; the NIC's timer says when to continue.
    Throttled,
}

/// Result of sending one frame.
enum SendOutcome {
    /// SendOutcome, or dropped and counted: its chain is returned.
    Done,
    /// The backend's send queue is full: the pop is undone and the frame is sent later.
    Busy,
}

/// A transmit queue.
pub(super) struct Transmitter {
    queue: VirtQueue,
    /// Scratch space, kept to reuse its allocation.
    chain: Chain,
    /// Frames may be left in the queue for which no kick comes; the timer resumes them.
    needs_timer: bool,
}

impl Transmitter {
    pub(super) fn new(queue: VirtQueue) -> Self {
        Self {
            queue,
            chain: Chain::default(),
            needs_timer: false,
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

    /// Sends frames until the avail ring is empty, the rate limit is reached, or the budget is spent.
    pub(super) fn serve(
        &mut self,
        backend: &impl PacketBackend,
        memory: &GuestRam,
        nic: &mut Nic,
    ) -> Result<(), DeviceFault> {
        self.needs_timer = false;
        let mut left = BUDGET;
        loop {
            self.queue.disable_notification()?;
            match self.send_frames(backend, memory, nic, &mut left)? {
                StopReason::Empty if self.queue.enable_notification()? => continue,
                StopReason::Empty => {}
                StopReason::BudgetSpent => self.queue.reschedule(),
                StopReason::Throttled => self.needs_timer = true,
            }
            return self.queue.signal_used();
        }
    }

    fn send_frames(
        &mut self,
        backend: &impl PacketBackend,
        memory: &GuestRam,
        nic: &mut Nic,
        left: &mut Budget,
    ) -> Result<StopReason, DeviceFault> {
        loop {
            if left.chains == 0 || left.bytes == 0 {
                return Ok(StopReason::BudgetSpent);
            }
            if !nic.admits(Direction::FromGuest) {
                return Ok(StopReason::Throttled);
            }
            if !self.queue.pop(&mut self.chain)? {
                return Ok(StopReason::Empty);
            }
            if let SendOutcome::Busy = send(backend, memory, nic, &self.chain) {
                self.queue.undo_pop(1);
                return Ok(StopReason::Throttled);
            }
            self.queue.add_used(self.chain.head, 0)?;
            let bytes = self.chain.readable_bytes().min(MAX_PACKET_BYTES);
            left.chains -= 1;
            left.bytes = left.bytes.saturating_sub(bytes);
        }
    }
}

/// Sends one frame, header and all, straight from guest memory. The kernel checks the header: what it
/// refuses is lost, as is what is sent while the link is down.
fn send(
    backend: &impl PacketBackend,
    memory: &GuestRam,
    nic: &mut Nic,
    chain: &Chain,
) -> SendOutcome {
    let bytes = chain.readable_bytes();
    let possible = (MIN_PACKET_BYTES..=MAX_PACKET_BYTES).contains(&bytes);
    let sent = if possible && nic.control.is_link_up() {
        slices_of(memory, chain.readable.iter().copied()).and_then(|parts| backend.send(&parts))
    } else {
        Err(io::ErrorKind::InvalidInput.into())
    };
    match sent {
        Ok(()) => {
            nic.charge(Direction::FromGuest, bytes - HEADER_BYTES);
            nic.counters.count_sent();
        }
        Err(error) if error.kind() == io::ErrorKind::WouldBlock && nic.call_later() => {
            return SendOutcome::Busy;
        }
        Err(error) => {
            // `EINVAL` is for an error of the guest, by the kernel and by ourselves.
            if error.kind() != io::ErrorKind::InvalidInput {
                nic.counters.count_backend_error();
            }
            nic.counters.count_send_dropped();
        }
    }
    SendOutcome::Done
}

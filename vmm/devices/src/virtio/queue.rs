//! A split virtqueue as devices use it: chains are popped, checked as a whole, and returned through the
//! used ring.
//!
//! Rings and descriptors are in guest memory and hostile. A malformed ring or chain (a loop, an index out of
//! range, a table outside RAM, a readable buffer after a writable one) stops the device with [`QueueError`]
//! and `DEVICE_NEEDS_RESET`. Buffers are only address ranges here; whoever accesses them checks that they
//! are RAM.

mod atomics;
mod buffers;
mod chain;
pub(crate) mod error;
mod event_index;
#[cfg(test)]
mod interleavings;
mod notifications;
mod rings;
mod used;
mod vhost_handover;

use std::sync::Arc;

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestMemoryError;
use vmm_sys::event;
use vmm_sys_util::eventfd::EventFd;

pub use self::buffers::{Buffer, copy_in, copy_out, mark_written, slices_of, window};
pub use self::chain::Chain;
pub use self::error::{MAX_CHAIN_DESCRIPTORS, QueueError};
use self::notifications::Notifications;
use self::rings::{Rings, RingsInRam};
use super::fault::DeviceFault;
use super::interrupt::QueueCall;
use vmm_memory::GuestRam;

/// Progress of a queue, as a snapshot holds it: ring indexes, which wrap at 65,536.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct QueuePosition {
    /// Chains popped.
    #[prost(uint32, tag = "1")]
    next_avail: u32,
    /// Chains returned.
    #[prost(uint32, tag = "2")]
    next_used: u32,
    /// `next_used` at the last used-buffer notification.
    #[prost(uint32, tag = "3")]
    signalled: u32,
}

/// One queue of an active device.
pub struct VirtQueue {
    index: u16,
    queue: Queue,
    memory: Arc<GuestRam>,
    /// `None` when the driver has not enabled the queue.
    rings: Option<Rings>,
    /// `avail.idx` as it was last read: chains below it can be popped without reading it again.
    avail_index: u16,
    kick: Arc<EventFd>,
    call: QueueCall,
    /// `used.idx` at the last used-buffer notification.
    signalled: u16,
    /// Used elements were written that `used.idx` does not cover yet.
    has_unpublished: bool,
}

impl VirtQueue {
    /// `None` when a ring is not within one region of RAM.
    pub(crate) fn new(
        index: u16,
        queue: Queue,
        memory: Arc<GuestRam>,
        kick: Arc<EventFd>,
        call: QueueCall,
    ) -> Option<Self> {
        let rings = if queue.ready() {
            Some(Rings::find(&queue, &memory)?)
        } else {
            None
        };
        Some(Self {
            index,
            queue,
            memory,
            rings,
            avail_index: 0,
            kick,
            call,
            signalled: 0,
            has_unpublished: false,
        })
    }

    /// Progress of the queue, for a snapshot.
    pub fn position(&self) -> QueuePosition {
        QueuePosition {
            next_avail: self.queue.next_avail().into(),
            next_used: self.queue.next_used().into(),
            signalled: self.signalled.into(),
        }
    }

    /// Continues at the `position` of a snapshot. False when one of its indexes exceeds 16 bits.
    pub(crate) fn set_position(&mut self, position: &QueuePosition) -> bool {
        let fields = [position.next_avail, position.next_used, position.signalled];
        let [Ok(avail), Ok(used), Ok(signalled)] = fields.map(u16::try_from) else {
            return false;
        };
        self.set_next_avail(avail);
        self.queue.set_next_used(used);
        self.signalled = signalled;
        true
    }

    /// Queue size: the number of descriptors.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Whether the driver has enabled the queue.
    pub fn is_ready(&self) -> bool {
        self.queue.ready()
    }

    /// Reads the next available chain into `chain`, replacing its content. False when the avail ring is
    /// empty or the driver has not enabled the queue.
    ///
    /// # Errors
    /// The ring or the chain is malformed.
    pub fn pop(&mut self, chain: &mut Chain) -> Result<bool, DeviceFault> {
        let popped = match &self.rings {
            Some(rings) => {
                let (queue, avail_index) = (&mut self.queue, &mut self.avail_index);
                pop(rings, queue, avail_index, &self.memory, chain)
            }
            None => Ok(false),
        };
        popped.map_err(|error| self.fault(error))
    }

    /// Sets the index of the next chain to pop, and forgets what is known of `avail.idx`.
    fn set_next_avail(&mut self, next: u16) {
        self.queue.set_next_avail(next);
        self.avail_index = next;
    }

    /// Whether the driver has added chains that were not popped yet.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn has_more(&self) -> Result<bool, DeviceFault> {
        let next = self.queue.next_avail();
        self.with_notifications(false, |notify| Ok(notify.added()? != next))
    }

    /// Undoes the last `count` [`pop`](Self::pop)s: the same chains are popped again.
    pub fn undo_pop(&mut self, count: u16) {
        let next = self.queue.next_avail().wrapping_sub(count);
        self.queue.set_next_avail(next);
    }

    /// Asks the driver not to kick while the device serves the queue anyway (VIRTIO 1.2, 2.7.10).
    ///
    /// # Errors
    /// The ring cannot be written.
    pub fn disable_notification(&mut self) -> Result<(), DeviceFault> {
        let next = self.queue.next_avail();
        self.with_notifications((), |notify| notify.disable_notification(next))
    }

    /// Asks the driver to kick when it adds chains. True when it has added some meanwhile: they may come
    /// without a kick, so the device must look at the ring again.
    ///
    /// # Errors
    /// The ring cannot be written.
    pub fn enable_notification(&mut self) -> Result<bool, DeviceFault> {
        let next = self.queue.next_avail();
        self.with_notifications(false, |notify| notify.enable_notification(next))
    }

    /// Result of `work` on the notification fields; `otherwise` when the driver has not enabled the queue.
    fn with_notifications<T>(
        &self,
        otherwise: T,
        work: impl FnOnce(&Notifications<RingsInRam<'_>>) -> Result<T, GuestMemoryError>,
    ) -> Result<T, DeviceFault> {
        self.with_rings(otherwise, |rings| {
            work(&notify(rings, &self.queue, &self.memory))
        })
    }

    /// Result of `work` on the rings; `otherwise` when the driver has not enabled the queue.
    fn with_rings<T>(
        &self,
        otherwise: T,
        work: impl FnOnce(&Rings) -> Result<T, GuestMemoryError>,
    ) -> Result<T, DeviceFault> {
        match &self.rings {
            None => Ok(otherwise),
            Some(rings) => work(rings).map_err(|error| self.fault(QueueError::Memory(error))),
        }
    }

    /// Kicks the device for this queue, so that it is served again after other devices.
    pub fn reschedule(&self) {
        event::signal(&self.kick);
    }

    fn fault(&self, source: QueueError) -> DeviceFault {
        DeviceFault::Queue {
            queue: self.index,
            source,
        }
    }
}

fn notify<'a>(
    rings: &'a Rings,
    queue: &Queue,
    memory: &'a GuestRam,
) -> Notifications<RingsInRam<'a>> {
    Notifications {
        fields: rings.in_ram(memory),
        has_event_index: queue.event_idx_enabled(),
    }
}

/// Pops the next available chain into `chain`. False when there is none.
fn pop(
    rings: &Rings,
    queue: &mut Queue,
    avail_index: &mut u16,
    memory: &GuestRam,
    chain: &mut Chain,
) -> Result<bool, QueueError> {
    let next = queue.next_avail();
    if *avail_index == next {
        let now = notify(rings, queue, memory).added();
        let now = now.map_err(QueueError::Memory)?;
        if now.wrapping_sub(next) > queue.size() {
            return Err(QueueError::Ring(virtio_queue::Error::InvalidAvailRingIndex));
        }
        *avail_index = now;
    }
    if *avail_index == next {
        return Ok(false);
    }
    let slot = next % queue.size();
    let head = rings.head(memory, slot).map_err(QueueError::Memory)?;
    queue.set_next_avail(next.wrapping_add(1));
    let table = rings.descriptors(memory).map_err(QueueError::Memory)?;
    chain.read(memory, table, head)?;
    Ok(true)
}

/// Limit of the work done for a queue before other devices are served. Without it a guest that keeps
/// adding requests would hold the event loop, and with it the vCPUs that access the device.
#[derive(Clone, Copy, Debug)]
pub struct Budget {
    /// Chains, at least 1.
    pub chains: u32,
    /// Bytes moved; the chain that exceeds the limit is the last.
    pub bytes: u64,
}

/// Result of serving one chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct ChainOutcome {
    /// Bytes written to the guest, for the used element.
    pub written: u32,
    /// Bytes moved in either direction, charged to the [`Budget`].
    pub moved: u64,
}

/// Serves a queue: passes every chain to `one` and returns it to the driver. Stops when the avail ring is
/// empty, or reschedules the queue when `budget` is spent.
///
/// # Errors
/// The ring or a chain is malformed.
pub fn serve(
    queue: &mut VirtQueue,
    budget: Budget,
    mut one: impl FnMut(&Chain) -> ChainOutcome,
) -> Result<(), DeviceFault> {
    let mut chain = Chain::default();
    let (mut chains, mut bytes) = (0, 0u64);
    loop {
        queue.disable_notification()?;
        while queue.pop(&mut chain)? {
            let served = one(&chain);
            queue.add_used(chain.head, served.written)?;
            chains += 1;
            bytes = bytes.saturating_add(served.moved);
            if chains >= budget.chains || bytes >= budget.bytes {
                queue.reschedule();
                return queue.signal_used();
            }
        }
        if !queue.enable_notification()? {
            return queue.signal_used();
        }
    }
}

#[cfg(test)]
mod tests;

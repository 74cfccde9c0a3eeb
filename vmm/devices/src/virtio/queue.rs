//! A split virtqueue as devices use it: chains are taken, checked as a whole, given back.
//!
//! Rings and descriptors are in guest memory and hostile. What is wrong with the structure of a
//! ring or a chain (a loop, an index out of range, a table outside of RAM, a readable buffer after
//! a writable one) ends the device ([`QueueError`], `DEVICE_NEEDS_RESET`). Buffers are only ranges
//! here; whether they lie in RAM is found out by whoever uses them.

mod buffers;
mod chain;
mod event_index;
#[cfg(test)]
mod interleavings;
mod notify;
mod outside;
mod rings;
mod used;

use std::sync::Arc;

use virtio_queue::{Queue, QueueT};
use vm_memory::GuestMemoryError;
use vmm_sys::event;
use vmm_sys_util::eventfd::EventFd;

pub use self::buffers::{Buffer, copy_in, copy_out, mark_written, slices_of, window};
pub use self::chain::Chain;
use self::notify::Notify;
use self::rings::{Rings, RingsInRam};
use super::device::DeviceFault;
use super::interrupt::QueueCall;
use crate::GuestRam;

/// What [`notify`] is made of; loom's in `interleavings`.
mod atomics {
    pub(super) use std::sync::atomic::{Ordering, fence};
}

/// Most descriptors of a chain. An indirect table could have 65,535, each of which costs the host a
/// read and, in most requests, a part of an I/O vector; no driver comes near (and `preadv(2)`
/// takes 1024).
pub const MAX_CHAIN_DESCRIPTORS: usize = 1024;

/// What is wrong with a ring or a chain.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The ring's index or addresses are out of range.
    #[error("ring")]
    Ring(#[source] virtio_queue::Error),
    /// A field of the ring cannot be accessed.
    #[error("ring field")]
    Memory(#[source] GuestMemoryError),
    /// The chain has no descriptor, loops, leaves its table, or is longer than 4 GiB.
    #[error("descriptor chain {head} is malformed")]
    Malformed {
        /// Index of its first descriptor.
        head: u16,
    },
    /// The chain has more descriptors than any request needs.
    #[error("descriptor chain {head} has more than {MAX_CHAIN_DESCRIPTORS} descriptors")]
    TooLong {
        /// Index of its first descriptor.
        head: u16,
    },
    /// A buffer for the driver to read comes before one for the device to read.
    #[error("descriptor chain {head} has a readable buffer after a writable one")]
    Order {
        /// Index of its first descriptor.
        head: u16,
    },
}

/// How far a queue is: counters as the ring has them, which wrap at 65,536.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct QueuePosition {
    /// Chains taken.
    #[prost(uint32, tag = "1")]
    next_avail: u32,
    /// Chains given back.
    #[prost(uint32, tag = "2")]
    next_used: u32,
    /// Chains given back when the driver was last told.
    #[prost(uint32, tag = "3")]
    announced: u32,
}

/// One queue of an active device.
pub struct VirtQueue {
    index: u16,
    queue: Queue,
    memory: Arc<GuestRam>,
    /// Nothing when the driver has not enabled the queue.
    rings: Option<Rings>,
    /// The available index when it was last looked at: up to there, chains are known to be there.
    added: u16,
    kick: Arc<EventFd>,
    call: QueueCall,
    /// The used index when the driver was last told.
    announced: u16,
    /// There are used elements beyond the used index that the driver sees.
    has_unseen: bool,
}

impl VirtQueue {
    /// Nothing when a ring is not in one piece of RAM.
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
            added: 0,
            kick,
            call,
            announced: 0,
            has_unseen: false,
        })
    }

    /// How far the queue is.
    pub fn position(&self) -> QueuePosition {
        QueuePosition {
            next_avail: self.queue.next_avail().into(),
            next_used: self.queue.next_used().into(),
            announced: self.announced.into(),
        }
    }

    /// Goes on at `position`. False when it cannot be one.
    pub(crate) fn go_on_at(&mut self, position: &QueuePosition) -> bool {
        let fields = [position.next_avail, position.next_used, position.announced];
        let [Ok(avail), Ok(used), Ok(announced)] = fields.map(u16::try_from) else {
            return false;
        };
        self.set_taken(avail);
        self.queue.set_next_used(used);
        self.announced = announced;
        true
    }

    /// Number of descriptors.
    pub fn size(&self) -> u16 {
        self.queue.size()
    }

    /// Whether the driver has enabled the queue.
    pub fn is_ready(&self) -> bool {
        self.queue.ready()
    }

    /// Takes the next chain into `chain`, whose former content is dropped. False when there is
    /// none, or the driver has not enabled the queue.
    ///
    /// # Errors
    /// The ring or the chain is broken.
    pub fn pop(&mut self, chain: &mut Chain) -> Result<bool, DeviceFault> {
        let popped = match &self.rings {
            Some(rings) => take(rings, &mut self.queue, &mut self.added, &self.memory, chain),
            None => Ok(false),
        };
        popped.map_err(|error| self.fault(error))
    }

    /// So many chains were taken, modulo 65,536; it is not known whether there are more.
    fn set_taken(&mut self, next: u16) {
        self.queue.set_next_avail(next);
        self.added = next;
    }

    /// Whether the driver has added chains that were not taken yet.
    ///
    /// # Errors
    /// The ring cannot be read.
    pub fn has_more(&self) -> Result<bool, DeviceFault> {
        let next = self.queue.next_avail();
        self.on_notify(false, |notify| Ok(notify.added()? != next))
    }

    /// Takes back the last `count` [`pop`](Self::pop)s: the same chains come again.
    pub fn unpop(&mut self, count: u16) {
        let next = self.queue.next_avail().wrapping_sub(count);
        self.queue.set_next_avail(next);
    }

    /// Asks the driver not to kick: the device is at work anyway.
    ///
    /// # Errors
    /// The ring cannot be written.
    pub fn hush(&mut self) -> Result<(), DeviceFault> {
        let next = self.queue.next_avail();
        self.on_notify((), |notify| notify.hush(next))
    }

    /// Asks the driver to kick when it adds chains. True when it has added some already, for which
    /// there may be no kick.
    ///
    /// # Errors
    /// The ring cannot be written.
    pub fn listen(&mut self) -> Result<bool, DeviceFault> {
        let next = self.queue.next_avail();
        self.on_notify(false, |notify| notify.listen(next))
    }

    /// What `work` says of notifications; `otherwise` when the driver has not enabled the queue.
    fn on_notify<T>(
        &self,
        otherwise: T,
        work: impl FnOnce(&Notify<RingsInRam<'_>>) -> Result<T, GuestMemoryError>,
    ) -> Result<T, DeviceFault> {
        self.on_rings(otherwise, |rings| {
            work(&notify(rings, &self.queue, &self.memory))
        })
    }

    /// What `work` says of the rings; `otherwise` when the driver has not enabled the queue.
    fn on_rings<T>(
        &self,
        otherwise: T,
        work: impl FnOnce(&Rings) -> Result<T, GuestMemoryError>,
    ) -> Result<T, DeviceFault> {
        match &self.rings {
            None => Ok(otherwise),
            Some(rings) => work(rings).map_err(|error| self.fault(QueueError::Memory(error))),
        }
    }

    /// Has the device called for this queue again, after other devices had their turn.
    pub fn again(&self) {
        event::signal(&self.kick);
    }

    fn fault(&self, source: QueueError) -> DeviceFault {
        DeviceFault::Queue {
            queue: self.index,
            source,
        }
    }
}

fn notify<'a>(rings: &'a Rings, queue: &Queue, memory: &'a GuestRam) -> Notify<RingsInRam<'a>> {
    Notify {
        fields: rings.in_ram(memory),
        has_event_index: queue.event_idx_enabled(),
    }
}

/// Takes the next chain that is available, if any is.
fn take(
    rings: &Rings,
    queue: &mut Queue,
    added: &mut u16,
    memory: &GuestRam,
    chain: &mut Chain,
) -> Result<bool, QueueError> {
    let next = queue.next_avail();
    if *added == next {
        let now = notify(rings, queue, memory).added();
        let now = now.map_err(QueueError::Memory)?;
        if now.wrapping_sub(next) > queue.size() {
            return Err(QueueError::Ring(virtio_queue::Error::InvalidAvailRingIndex));
        }
        *added = now;
    }
    if *added == next {
        return Ok(false);
    }
    let slot = next % queue.size();
    let head = rings.head(memory, slot).map_err(QueueError::Memory)?;
    queue.set_next_avail(next.wrapping_add(1));
    let table = rings.descriptors(memory).map_err(QueueError::Memory)?;
    chain.read(memory, table, head)?;
    Ok(true)
}

/// How much of a queue is served before other devices have their turn: a guest that keeps adding
/// requests must not hold the event loop (nor, meanwhile, the vCPUs that access the device).
#[derive(Clone, Copy, Debug)]
pub struct Turn {
    /// Chains, at least 1.
    pub chains: u32,
    /// Bytes moved; the chain that exceeds them is the last.
    pub bytes: u64,
}

/// Outcome of one chain.
#[derive(Clone, Copy, Debug, Default)]
pub struct Served {
    /// Bytes written to the guest, for the used ring.
    pub written: u32,
    /// Bytes moved in either direction, for the turn.
    pub moved: u64,
}

/// Serves a queue: every chain goes through `one` and back to the driver. Ends when there is none,
/// or when the turn is over; the queue then kicks itself.
///
/// # Errors
/// The ring or a chain is broken.
pub fn serve(
    queue: &mut VirtQueue,
    turn: Turn,
    mut one: impl FnMut(&Chain) -> Served,
) -> Result<(), DeviceFault> {
    let mut chain = Chain::default();
    let (mut chains, mut bytes) = (0, 0u64);
    loop {
        queue.hush()?;
        while queue.pop(&mut chain)? {
            let served = one(&chain);
            queue.push(chain.head, served.written)?;
            chains += 1;
            bytes = bytes.saturating_add(served.moved);
            if chains >= turn.chains || bytes >= turn.bytes {
                queue.again();
                return queue.announce();
            }
        }
        if !queue.listen()? {
            return queue.announce();
        }
    }
}

#[cfg(test)]
mod tests;

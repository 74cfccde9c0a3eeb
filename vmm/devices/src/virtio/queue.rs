//! A split virtqueue as devices use it: chains are taken, checked as a whole, given back.
//!
//! Rings and descriptors are in guest memory and hostile. What is wrong with the structure of a
//! ring or a chain (a loop, an index out of range, a table outside of RAM, a readable buffer after
//! a writable one) ends the device ([`QueueError`], `DEVICE_NEEDS_RESET`). Buffers are only ranges
//! here; whether they lie in RAM is found out by whoever uses them.

mod buffers;
mod event_index;
mod outside;
mod used;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use virtio_queue::{Queue, QueueOwnedT, QueueT};
use vm_memory::{Bytes, GuestAddress, GuestMemoryError};
use vmm_sys_util::eventfd::EventFd;

use self::buffers::total;
pub use self::buffers::{Buffer, copy_in, copy_out, mark_written, slices_of, window};
use super::device::DeviceFault;
use super::interrupt::QueueCall;
use crate::GuestRam;

/// Most descriptors of a chain. An indirect table could have 65,535, each of which costs the host a
/// read and, in most requests, a part of an I/O vector; no driver comes near (and `preadv(2)`
/// takes 1024).
pub const MAX_CHAIN_DESCRIPTORS: usize = 1024;

/// More chains than a ring can have between two looks of the device.
const FAR: u16 = 0x8000;

/// What is wrong with a ring or a chain.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    /// The ring's index or addresses are out of range.
    #[error("ring")]
    Ring(#[source] virtio_queue::Error),
    /// A field of the ring can not be accessed.
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

/// A descriptor chain, copied out of guest memory.
#[derive(Clone, Debug, Default)]
pub struct Chain {
    /// Index of the first descriptor: what the used ring wants back.
    pub head: u16,
    /// Buffers that the device reads, in order.
    pub readable: Vec<Buffer>,
    /// Buffers that the device writes, in order.
    pub writable: Vec<Buffer>,
}

impl Chain {
    /// Sum of the readable buffers; less than 4 GiB.
    pub fn readable_bytes(&self) -> u64 {
        total(&self.readable)
    }

    /// Sum of the writable buffers; less than 4 GiB.
    pub fn writable_bytes(&self) -> u64 {
        total(&self.writable)
    }
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
    kick: Arc<EventFd>,
    call: QueueCall,
    /// The used index when the driver was last told.
    announced: u16,
    /// There are used elements beyond the used index that the driver sees.
    has_unseen: bool,
}

impl VirtQueue {
    pub(crate) fn new(
        index: u16,
        queue: Queue,
        memory: Arc<GuestRam>,
        kick: Arc<EventFd>,
        call: QueueCall,
    ) -> Self {
        Self {
            index,
            queue,
            memory,
            kick,
            call,
            announced: 0,
            has_unseen: false,
        }
    }

    /// How far the queue is.
    pub fn position(&self) -> QueuePosition {
        QueuePosition {
            next_avail: self.queue.next_avail().into(),
            next_used: self.queue.next_used().into(),
            announced: self.announced.into(),
        }
    }

    /// Goes on at `position`. False when it can not be one.
    pub(crate) fn go_on_at(&mut self, position: &QueuePosition) -> bool {
        let fields = [position.next_avail, position.next_used, position.announced];
        let [Ok(avail), Ok(used), Ok(announced)] = fields.map(u16::try_from) else {
            return false;
        };
        self.queue.set_next_avail(avail);
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
        if !self.queue.ready() {
            return Ok(false);
        }
        let next = self
            .queue
            .iter(&*self.memory)
            .map(|mut iterator| iterator.next());
        match next {
            Err(error) => Err(self.fault(QueueError::Ring(error))),
            Ok(None) => Ok(false),
            Ok(Some(descriptors)) => {
                read_chain(descriptors, chain).map_err(|error| self.fault(error))?;
                Ok(true)
            }
        }
    }

    /// Whether the driver has added chains that were not taken yet.
    ///
    /// # Errors
    /// The ring can not be read.
    pub fn has_more(&self) -> Result<bool, DeviceFault> {
        if !self.queue.ready() {
            return Ok(false);
        }
        // The index follows the flags (VIRTIO 1.2, 2.7.6).
        let added = self.load(self.queue.avail_ring() + 2)?;
        Ok(added != self.queue.next_avail())
    }

    /// Takes back the last `count` [`pop`](Self::pop)s: the same chains come again.
    pub fn unpop(&mut self, count: u16) {
        let next = self.queue.next_avail().wrapping_sub(count);
        self.queue.set_next_avail(next);
    }

    /// A field of the ring.
    fn load(&self, address: u64) -> Result<u16, DeviceFault> {
        self.memory
            .load(GuestAddress(address), Ordering::Relaxed)
            .map(u16::from_le)
            .map_err(|error| self.fault(QueueError::Memory(error)))
    }

    /// Asks the driver not to kick: the device is at work anyway.
    ///
    /// # Errors
    /// The ring can not be written.
    pub fn hush(&mut self) -> Result<(), DeviceFault> {
        if !self.queue.ready() {
            return Ok(());
        }
        if self.queue.event_idx_enabled() {
            // There is no flag. An element that the driver does not come to for half of all indexes
            // is as good.
            let far = self.queue.next_avail().wrapping_add(FAR).to_le();
            let at = self.queue.used_ring() + 4 + 8 * u64::from(self.queue.size());
            return self
                .memory
                .store(far, GuestAddress(at), Ordering::Relaxed)
                .map_err(|error| self.fault(QueueError::Memory(error)));
        }
        self.queue
            .disable_notification(&*self.memory)
            .map_err(|error| self.fault(QueueError::Ring(error)))
    }

    /// Asks the driver to kick when it adds chains. True when it has added some already, for which
    /// there may be no kick.
    ///
    /// # Errors
    /// The ring can not be written.
    pub fn listen(&mut self) -> Result<bool, DeviceFault> {
        if !self.queue.ready() {
            return Ok(false);
        }
        self.queue
            .enable_notification(&*self.memory)
            .map_err(|error| self.fault(QueueError::Ring(error)))
    }

    /// Has the device called for this queue again, after other devices had their turn.
    pub fn again(&self) {
        // Fails only when the counter is at its end, and then the eventfd is readable all the same.
        self.kick.write(1).unwrap_or_default();
    }

    fn fault(&self, source: QueueError) -> DeviceFault {
        DeviceFault::Queue {
            queue: self.index,
            source,
        }
    }
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

fn read_chain(
    descriptors: virtio_queue::DescriptorChain<&GuestRam>,
    chain: &mut Chain,
) -> Result<(), QueueError> {
    let head = descriptors.head_index();
    chain.head = head;
    chain.readable.clear();
    chain.writable.clear();
    // The iterator ends at whatever it dislikes: only a last descriptor without successor is the
    // chain's true end.
    let mut complete = false;
    for (index, descriptor) in descriptors.enumerate() {
        if index >= MAX_CHAIN_DESCRIPTORS {
            return Err(QueueError::TooLong { head });
        }
        let buffer = Buffer {
            address: descriptor.addr().0,
            bytes: descriptor.len(),
        };
        if descriptor.is_write_only() {
            chain.writable.push(buffer);
        } else if chain.writable.is_empty() {
            chain.readable.push(buffer);
        } else {
            return Err(QueueError::Order { head });
        }
        complete = !descriptor.has_next();
    }
    if complete {
        Ok(())
    } else {
        Err(QueueError::Malformed { head })
    }
}

#[cfg(test)]
mod tests;

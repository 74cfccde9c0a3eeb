//! A split virtqueue (virtio 1.2, 2.7), driven with interrupts or by polling.

use core::sync::atomic::{Ordering, fence};

use super::error::DeviceError;
use crate::clock::{Clock, Moment};
use crate::memory::{DmaBuffer, Registers};
use crate::trap;

const DESCRIPTOR_BYTES: usize = 16;
const DESCRIPTOR_NEXT: u16 = 1;
const DESCRIPTOR_WRITE: u16 = 2;
const AVAIL_NO_INTERRUPT: u16 = 1;
/// Flags and index precede both rings.
const RING_HEADER_BYTES: usize = 4;
const USED_ENTRY_BYTES: usize = 8;

/// A part of a buffer that the device reads or writes.
#[derive(Clone, Copy)]
pub struct Segment {
    /// Guest physical address.
    pub address: u64,
    /// Length in bytes.
    pub bytes: u32,
    /// The device writes it.
    pub device_writes: bool,
}

/// What the device says about a chain it is done with.
#[derive(Clone, Copy, Debug)]
pub struct Used {
    /// The chain's first descriptor.
    pub head: u16,
    /// How many bytes the device wrote.
    pub bytes: u32,
}

/// A virtqueue. Its owner decides which descriptors a chain takes: consecutive ones from a head.
pub struct Queue<'a> {
    index: u16,
    size: u16,
    descriptors: DmaBuffer,
    avail: DmaBuffer,
    used: DmaBuffer,
    next_avail: u16,
    next_used: u16,
    /// What was published when it was last looked at whether the device wants to know.
    announced: u16,
    kick: Registers,
    vector: Option<u8>,
    irqs_at_kick: u32,
    clock: &'a Clock,
}

impl<'a> Queue<'a> {
    /// An empty queue of `size` entries. With a `vector` the owner sleeps until it comes, without
    /// one the queue is polled.
    pub fn new(
        index: u16,
        size: u16,
        kick: Registers,
        vector: Option<u8>,
        clock: &'a Clock,
    ) -> Result<Self, DeviceError> {
        let entries = usize::from(size);
        let memory =
            |bytes| DmaBuffer::new(bytes).ok_or(DeviceError::Missing("memory for a queue"));
        let queue = Self {
            index,
            size,
            descriptors: memory(entries * DESCRIPTOR_BYTES)?,
            avail: memory(RING_HEADER_BYTES + entries * 2 + 2)?,
            used: memory(RING_HEADER_BYTES + entries * USED_ENTRY_BYTES + 2)?,
            next_avail: 0,
            next_used: 0,
            announced: 0,
            kick,
            vector,
            irqs_at_kick: 0,
            clock,
        };
        let flags = if vector.is_some() {
            0
        } else {
            AVAIL_NO_INTERRUPT
        };
        queue.avail.write16(0, flags);
        Ok(queue)
    }

    /// Addresses of descriptor table, avail ring and used ring.
    pub fn addresses(&self) -> (u64, u64, u64) {
        (
            self.descriptors.address(),
            self.avail.address(),
            self.used.address(),
        )
    }

    /// Number of descriptors.
    pub fn size(&self) -> u16 {
        self.size
    }

    /// Interrupts this queue has had, as far as its vector is its own.
    pub fn irqs(&self) -> u32 {
        self.vector.map_or(0, trap::irq_count)
    }

    /// Makes a chain of `segments` available, in the descriptors from `head` on.
    ///
    /// # Panics
    /// When the chain does not fit into the table; a mistake of the caller.
    pub fn submit(&mut self, head: u16, segments: &[Segment]) {
        self.describe(head, segments);
        self.offer(head);
        self.publish();
    }

    /// Writes a chain of `segments` into the descriptors from `head` on, where it stays.
    ///
    /// # Panics
    /// As [`submit`](Self::submit).
    pub fn describe(&mut self, head: u16, segments: &[Segment]) {
        let mut left = segments.len();
        for (index, segment) in (head..).zip(segments) {
            assert!(index < self.size, "chain beyond the descriptor table");
            left -= 1;
            let next = if left == 0 { 0 } else { DESCRIPTOR_NEXT };
            let write = if segment.device_writes {
                DESCRIPTOR_WRITE
            } else {
                0
            };
            let entry = usize::from(index) * DESCRIPTOR_BYTES;
            self.descriptors
                .write(entry, &segment.address.to_le_bytes());
            self.descriptors
                .write(entry + 8, &segment.bytes.to_le_bytes());
            self.descriptors.write16(entry + 12, next | write);
            self.descriptors.write16(entry + 14, index + 1);
        }
    }

    /// Puts a chain that is described into the ring. The device sees it once it is
    /// [published](Self::publish).
    pub fn offer(&mut self, head: u16) {
        let slot = usize::from(self.next_avail % self.size);
        self.avail.write16(RING_HEADER_BYTES + slot * 2, head);
        self.next_avail = self.next_avail.wrapping_add(1);
    }

    /// Makes all that was offered available.
    pub fn publish(&mut self) {
        // The device must see entries before the index that covers them.
        fence(Ordering::SeqCst);
        self.avail.write16(2, self.next_avail);
    }

    /// Tells the device to look at the queue.
    pub fn kick(&mut self) {
        self.irqs_at_kick = self.irqs();
        fence(Ordering::SeqCst);
        self.kick.write16(0, self.index);
    }

    /// The same, if the device's `avail_event` is among the chains since the last kick (2.7.7.2).
    /// For queues whose device agreed on `VIRTIO_F_EVENT_IDX`.
    pub fn kick_if_wanted(&mut self) -> bool {
        let (old, new) = (self.announced, self.next_avail);
        self.announced = new;
        // What was published must be seen before it is read what the device waits for.
        fence(Ordering::SeqCst);
        let event = self
            .used
            .read16(RING_HEADER_BYTES + usize::from(self.size) * USED_ENTRY_BYTES);
        let wanted = new.wrapping_sub(event).wrapping_sub(1) < new.wrapping_sub(old);
        if wanted {
            self.kick.write16(0, self.index);
        }
        wanted
    }

    /// Asks for an interrupt once the device is done with `more` further chains. True when it is
    /// already. For queues whose device agreed on `VIRTIO_F_EVENT_IDX`.
    pub fn ask_for_irq(&self, more: u16) -> bool {
        let event = self.next_used.wrapping_add(more).wrapping_sub(1);
        let at = RING_HEADER_BYTES + usize::from(self.size) * 2;
        self.avail.write16(at, event);
        // What is asked must be seen before it is read how far the device is.
        fence(Ordering::SeqCst);
        self.used.read16(2).wrapping_sub(self.next_used) >= more
    }

    /// Where the interrupts of the queue arrive, if it has any.
    pub fn vector(&self) -> Option<u8> {
        self.vector
    }

    /// Waits for the next chain the device is done with.
    pub fn wait_used(&mut self, deadline: Moment, what: &'static str) -> Result<Used, DeviceError> {
        loop {
            let irqs = self.irqs();
            if let Some(used) = self.take_used()? {
                return Ok(used);
            }
            if self.clock.now() > deadline {
                return Err(DeviceError::Timeout(what));
            }
            match self.vector {
                // Whether it came or the deadline passed is found out above.
                Some(vector) => _ = self.clock.wait_for_irq(vector, irqs, deadline),
                None => core::hint::spin_loop(),
            }
        }
    }

    /// With interrupts: waits until one has come since the last kick. The used ring may change
    /// before its interrupt arrives, so a chain may be done a moment earlier.
    pub fn confirm_irq(&self, deadline: Moment, what: &'static str) -> Result<(), DeviceError> {
        match self.vector {
            Some(vector) if !self.clock.wait_for_irq(vector, self.irqs_at_kick, deadline) => {
                Err(DeviceError::NoInterrupt(what))
            }
            _ => Ok(()),
        }
    }

    /// Sleeps until an interrupt comes that is not among the `seen` ones; a queue that is polled only
    /// looks at the time.
    pub fn sleep(&self, seen: u32, deadline: Moment) -> Result<(), DeviceError> {
        match self.vector {
            Some(vector) => _ = self.clock.wait_for_irq(vector, seen, deadline),
            None => core::hint::spin_loop(),
        }
        if self.clock.now() > deadline {
            return Err(DeviceError::Timeout("anything to happen"));
        }
        Ok(())
    }

    /// The next chain the device is done with, if there is one.
    pub fn take_used(&mut self) -> Result<Option<Used>, DeviceError> {
        if self.used.read16(2) == self.next_used {
            return Ok(None);
        }
        fence(Ordering::SeqCst);
        let slot = usize::from(self.next_used % self.size);
        let mut entry = [0; USED_ENTRY_BYTES];
        self.used
            .read(RING_HEADER_BYTES + slot * USED_ENTRY_BYTES, &mut entry);
        self.next_used = self.next_used.wrapping_add(1);
        let [a, b, c, d, e, f, g, h] = entry;
        let id = u32::from_le_bytes([a, b, c, d]);
        let head = u16::try_from(id).ok().filter(|head| *head < self.size);
        let head = head.ok_or(DeviceError::WrongDescriptor(id))?;
        Ok(Some(Used {
            head,
            bytes: u32::from_le_bytes([e, f, g, h]),
        }))
    }
}

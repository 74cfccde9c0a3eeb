//! Rings and descriptors of a victim, written as the attacker likes.

use core::sync::atomic::{Ordering, fence};

use super::descriptor::{Desc, Field, NEXT, Ring};
use super::{PAGE_BYTES, SIZE, Victim};
use crate::memory::{DmaBuffer, WriteTarget};

/// Places of rings in the page of a queue.
const AVAIL: usize = 0x400;
const USED: usize = 0x800;

impl Victim<'_> {
    /// A ring as a driver should have it.
    pub fn honest_ring(&self, queue: u16) -> Ring {
        let page = self.memory.rings.address() + (usize::from(queue) * PAGE_BYTES) as u64;
        Ring {
            size: SIZE,
            descriptors: page,
            avail: page + AVAIL as u64,
            used: page + USED as u64,
        }
    }

    /// Writes descriptor `index` of a queue.
    pub fn put(&self, queue: u16, index: u16, desc: Desc) {
        let at = usize::from(queue) * PAGE_BYTES + usize::from(index) * 16;
        put_at(&self.memory.rings, at, desc);
    }

    /// A field of descriptor `index` of a queue, for the second CPU.
    pub fn field(&self, queue: u16, index: u16, field: Field) -> Option<WriteTarget> {
        let at = usize::from(queue) * PAGE_BYTES + usize::from(index) * 16;
        field.of(&self.memory.rings, at)
    }

    /// A field of a descriptor in the buffers, for the second CPU.
    pub fn data_field(&self, offset: usize, field: Field) -> Option<WriteTarget> {
        field.of(&self.memory.data, offset)
    }

    /// A slot of a queue's available ring, for the second CPU.
    pub fn slot(&self, queue: u16, index: u16) -> Option<WriteTarget> {
        let at = usize::from(queue) * PAGE_BYTES + AVAIL + 4 + usize::from(index) * 2;
        self.memory.rings.place(at, 2)
    }

    /// Links `descs` from descriptor `head` on.
    pub fn put_chain(&self, queue: u16, head: u16, descs: &[Desc]) {
        for (index, desc) in (head..).zip(descs) {
            let mut desc = *desc;
            if usize::from(index - head) + 1 < descs.len() {
                desc.flags |= NEXT;
                desc.next = index + 1;
            }
            self.put(queue, index, desc);
        }
    }

    /// Makes `head` available.
    pub fn offer(&mut self, queue: u16, head: u16) {
        let index = usize::from(queue);
        let slot = usize::from(self.avail[index] % SIZE);
        let avail = index * PAGE_BYTES + AVAIL;
        self.memory.rings.write16(avail + 4 + slot * 2, head);
        self.avail[index] = self.avail[index].wrapping_add(1);
        self.set_avail(queue, self.avail[index]);
    }

    /// Writes the index of the available ring.
    pub fn set_avail(&mut self, queue: u16, value: u16) {
        let index = usize::from(queue);
        self.avail[index] = value;
        // The device must see the entries before the index that covers them.
        fence(Ordering::SeqCst);
        self.memory
            .rings
            .write16(index * PAGE_BYTES + AVAIL + 2, value);
        fence(Ordering::SeqCst);
    }

    /// The index of the available ring as it was written last.
    pub fn avail(&self, queue: u16) -> u16 {
        self.avail[usize::from(queue)]
    }

    /// Writes the index of the used ring, which is the device's.
    pub fn set_used(&self, queue: u16, value: u16) {
        let at = usize::from(queue) * PAGE_BYTES + USED + 2;
        self.memory.rings.write16(at, value);
    }

    /// The next chain that came back: its head, and the bytes that were written.
    pub fn take_used(&mut self, queue: u16) -> Option<(u32, u32)> {
        let index = usize::from(queue);
        let used = index * PAGE_BYTES + USED;
        if self.memory.rings.read16(used + 2) == self.seen[index] {
            return None;
        }
        fence(Ordering::SeqCst);
        let slot = usize::from(self.seen[index] % SIZE);
        self.seen[index] = self.seen[index].wrapping_add(1);
        let mut entry = [0; 8];
        self.memory.rings.read(used + 4 + slot * 8, &mut entry);
        let [a, b, c, d, e, f, g, h] = entry;
        let head = u32::from_le_bytes([a, b, c, d]);
        Some((head, u32::from_le_bytes([e, f, g, h])))
    }

    /// Writes a descriptor into the buffers, for indirect tables.
    pub fn put_data(&self, offset: usize, desc: Desc) {
        put_at(&self.memory.data, offset, desc);
    }
}

fn put_at(memory: &DmaBuffer, at: usize, desc: Desc) {
    memory.write(at, &desc.address.to_le_bytes());
    memory.write(at + 8, &desc.bytes.to_le_bytes());
    memory.write16(at + 12, desc.flags);
    memory.write16(at + 14, desc.next);
}

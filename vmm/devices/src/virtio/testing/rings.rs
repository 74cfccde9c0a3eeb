//! What a driver writes to its rings, and reads of them.

use vm_memory::{Bytes, GuestAddress};

use super::{Desc, Driver, NEXT};

impl Driver {
    /// Offers `descriptors` as one chain.
    pub(crate) fn offer(&mut self, queue: usize, descriptors: &[Desc]) -> u16 {
        let head = self.free[queue];
        let mut linked = descriptors.to_vec();
        let last = linked.len() - 1;
        for (index, descriptor) in linked.iter_mut().enumerate() {
            if index < last {
                descriptor.flags |= NEXT;
                descriptor.next = (head + u16::try_from(index).unwrap() + 1) % self.size;
            }
        }
        for (index, descriptor) in linked.iter().enumerate() {
            let at = (head + u16::try_from(index).unwrap()) % self.size;
            self.put_descriptor(queue, at, *descriptor);
        }
        self.free[queue] = (head + u16::try_from(linked.len()).unwrap()) % self.size;
        self.offer_head(queue, head);
        head
    }

    pub(crate) fn put_descriptor(&self, queue: usize, index: u16, descriptor: Desc) {
        let address = self.rings(queue) + u64::from(index) * 16;
        self.put_descriptor_at(address, descriptor);
    }

    pub(crate) fn put_descriptor_at(&self, address: u64, descriptor: Desc) {
        let at = GuestAddress(address);
        self.memory.write_obj(descriptor.address, at).unwrap();
        let at = GuestAddress(address + 8);
        self.memory.write_obj(descriptor.bytes, at).unwrap();
        let rest = u32::from(descriptor.flags) | u32::from(descriptor.next) << 16;
        self.memory
            .write_obj(rest, GuestAddress(address + 12))
            .unwrap();
    }

    /// Writes a whole table, offers `heads`, kicks, and lets the device work until it rests.
    pub(crate) fn go_mad(&mut self, queue: usize, table: &[Desc], heads: &[u16]) {
        for (index, descriptor) in (0..).zip(table) {
            self.put_descriptor(queue, index, *descriptor);
        }
        for head in heads {
            self.offer_head(queue, *head);
        }
        self.kick(queue);
    }

    /// Puts a head into the available ring.
    pub(crate) fn offer_head(&mut self, queue: usize, head: u16) {
        let avail = self.rings(queue) + 0x4000;
        let slot = u64::from(self.avail[queue] % self.size);
        self.memory
            .write_obj(head, GuestAddress(avail + 4 + slot * 2))
            .unwrap();
        self.avail[queue] = self.avail[queue].wrapping_add(1);
        self.memory
            .write_obj(self.avail[queue], GuestAddress(avail + 2))
            .unwrap();
    }

    /// The next used element, which may take a while to come.
    pub(crate) fn wait_used(&mut self, queue: usize) -> Option<(u32, u32)> {
        self.settle();
        loop {
            if let Some(element) = self.used(queue) {
                return Some(element);
            }
            if !self.settle_own(10_000) {
                return None;
            }
        }
    }

    /// The next used element: head and bytes written.
    pub(crate) fn used(&mut self, queue: usize) -> Option<(u32, u32)> {
        let used = self.rings(queue) + 0x6000;
        let index: u16 = self.memory.read_obj(GuestAddress(used + 2)).unwrap();
        if index == self.seen[queue] {
            return None;
        }
        let slot = u64::from(self.seen[queue] % self.size);
        self.seen[queue] = self.seen[queue].wrapping_add(1);
        let at = used + 4 + slot * 8;
        Some((
            self.memory.read_obj(GuestAddress(at)).unwrap(),
            self.memory.read_obj(GuestAddress(at + 4)).unwrap(),
        ))
    }
}

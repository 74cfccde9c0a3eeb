//! A descriptor chain, copied out of guest memory and checked as a whole (VIRTIO 1.2, 2.7.5).
//!
//! The table is looked up once for a chain, not once for a descriptor: that, and no more, is why this is
//! not `virtio_queue::DescriptorChain`, which it is tested against.

use virtio_queue::desc::split::Descriptor;
use vm_memory::VolatileMemory;

use super::buffers::{Buffer, Piece, piece_of, total};
use super::error::{MAX_CHAIN_DESCRIPTORS, QueueError};
use vmm_memory::GuestRam;

/// Bytes of a descriptor.
pub(super) const DESCRIPTOR_BYTES: usize = 16;

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

    /// Reads the chain that begins with descriptor `head` of `table`, in place of what was here.
    pub(super) fn read(
        &mut self,
        memory: &GuestRam,
        table: Piece<'_>,
        head: u16,
    ) -> Result<(), QueueError> {
        self.head = head;
        self.readable.clear();
        self.writable.clear();
        let mut walk = Walk::through(table, head);
        let mut bytes = 0u32;
        for count in 0.. {
            let descriptor = walk.next(memory).ok_or(QueueError::Malformed { head })?;
            // A chain of 4 GiB or more is illegal (2.7.5.2).
            bytes = bytes
                .checked_add(descriptor.len())
                .ok_or(QueueError::Malformed { head })?;
            if count >= MAX_CHAIN_DESCRIPTORS {
                return Err(QueueError::TooLong { head });
            }
            self.push(descriptor)?;
            if !descriptor.has_next() {
                break;
            }
        }
        Ok(())
    }

    fn push(&mut self, descriptor: Descriptor) -> Result<(), QueueError> {
        let buffer = Buffer {
            address: descriptor.addr().0,
            bytes: descriptor.len(),
        };
        if descriptor.is_write_only() {
            self.writable.push(buffer);
        } else if self.writable.is_empty() {
            self.readable.push(buffer);
        } else {
            return Err(QueueError::Order { head: self.head });
        }
        Ok(())
    }
}

/// The descriptors of a chain, one after the other, through an indirect table if there is one.
struct Walk<'a> {
    table: Piece<'a>,
    /// Descriptors of the table.
    length: usize,
    next: u16,
    /// So many may still come: a table has no more than its length, or it loops.
    left: usize,
    is_indirect: bool,
}

impl<'a> Walk<'a> {
    fn through(table: Piece<'a>, head: u16) -> Self {
        let length = table.len() / DESCRIPTOR_BYTES;
        Self {
            table,
            length,
            next: head,
            left: length,
            is_indirect: false,
        }
    }

    /// The next descriptor of a buffer. Nothing when the chain is broken here.
    fn next(&mut self, memory: &'a GuestRam) -> Option<Descriptor> {
        let descriptor = self.descriptor()?;
        if !descriptor.refers_to_indirect_table() {
            return Some(descriptor);
        }
        // One within another is illegal (2.7.5.3.1).
        if self.is_indirect {
            return None;
        }
        *self = Self::indirect(memory, descriptor)?;
        let first = self.descriptor()?;
        (!first.refers_to_indirect_table()).then_some(first)
    }

    /// At the start of the table that `descriptor` names.
    fn indirect(memory: &'a GuestRam, descriptor: Descriptor) -> Option<Self> {
        let table = Buffer {
            address: descriptor.addr().0,
            bytes: descriptor.len(),
        };
        let length = usize::try_from(table.bytes).ok()? / DESCRIPTOR_BYTES;
        // `next` has 16 bits.
        let is_possible = length <= usize::from(u16::MAX)
            && usize::try_from(table.bytes)
                .ok()?
                .is_multiple_of(DESCRIPTOR_BYTES);
        if !is_possible {
            return None;
        }
        let mut walk = Self::through(piece_of(memory, table)?, 0);
        walk.is_indirect = true;
        Some(walk)
    }

    /// Descriptor `next`, which must be in the table and not one too many; on to the one after it.
    fn descriptor(&mut self) -> Option<Descriptor> {
        let index = usize::from(self.next);
        if self.left == 0 || index >= self.length {
            return None;
        }
        let descriptor: Descriptor = self.table.get_ref(index * DESCRIPTOR_BYTES).ok()?.load();
        self.left -= 1;
        self.next = descriptor.next();
        Some(descriptor)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use virtio_queue::{Queue, QueueOwnedT, QueueT};
    use vm_memory::{Bytes, GuestAddress};
    use vmm_memory::{Layout, create_ram};

    use super::*;
    use crate::virtio::testing::{Desc, INDIRECT, RAM_BYTES, mad_descriptors};

    const TABLE: u64 = 0x1_0000;
    const AVAILABLE: u64 = 0x2_0000;
    /// Where indirect tables are, if they are anywhere.
    const INDIRECT_TABLE: u64 = 0x3_0000;

    fn put(memory: &GuestRam, at: u64, table: &[Desc]) {
        for (index, descriptor) in (0u64..).zip(table) {
            let Desc {
                address,
                bytes,
                flags,
                next,
            } = *descriptor;
            let raw = Descriptor::new(address, bytes, flags, next);
            let at = GuestAddress(at + index * DESCRIPTOR_BYTES as u64);
            memory.write_obj(raw, at).unwrap();
        }
    }

    /// The chain as `virtio-queue` walks it. It ends silently at an invalid descriptor, so that only a
    /// last descriptor without successor is a chain's true end.
    fn expected(memory: &GuestRam, size: u16) -> Option<Chain> {
        let mut queue = Queue::new(size).unwrap();
        queue.set_desc_table_address(Some(u32::try_from(TABLE).unwrap()), Some(0));
        queue.set_avail_ring_address(Some(u32::try_from(AVAILABLE).unwrap()), Some(0));
        queue.set_ready(true);
        let mut chain = Chain::default();
        let mut is_whole = false;
        for (index, descriptor) in queue.iter(memory).unwrap().next()?.enumerate() {
            let has_room = index < MAX_CHAIN_DESCRIPTORS;
            if !has_room || chain.push(descriptor).is_err() {
                return None;
            }
            is_whole = !descriptor.has_next();
        }
        is_whole.then_some(chain)
    }

    fn buffers(chain: &Chain) -> (Vec<Buffer>, Vec<Buffer>) {
        (chain.readable.clone(), chain.writable.clone())
    }

    proptest! {
        /// Whatever stands in the tables, a chain is what `virtio-queue` says that it is. But for an
        /// indirect table that is partly outside of RAM: that ends a chain here, whether it comes there
        /// or not.
        #[test]
        fn chains_are_those_of_virtio_queue(
            table in mad_descriptors(),
            inner in mad_descriptors(),
            is_indirect in prop::collection::vec(any::<bool>(), 16),
            lengths in prop::collection::vec(0u32..20, 16),
            head in 0u16..18,
        ) {
            let memory = create_ram(&Layout::new(RAM_BYTES as u64, 40).unwrap()).unwrap();
            let size = u16::try_from(table.len()).unwrap();
            let mut table = table;
            for ((descriptor, is_indirect), length) in table.iter_mut().zip(is_indirect).zip(lengths) {
                if is_indirect && descriptor.flags & INDIRECT != 0 {
                    descriptor.address = INDIRECT_TABLE;
                    descriptor.bytes = length * 16;
                }
            }
            put(&memory, TABLE, &table);
            put(&memory, INDIRECT_TABLE, &inner);
            memory.write_obj(1u16, GuestAddress(AVAILABLE + 2)).unwrap();
            memory.write_obj(head, GuestAddress(AVAILABLE + 4)).unwrap();

            let piece = |address, bytes| piece_of(&memory, Buffer { address, bytes });
            let mut chain = Chain::default();
            let read = chain.read(&memory, piece(TABLE, 16 * u32::from(size)).unwrap(), head);
            let expected = expected(&memory, size);
            let has_strange_table = table.iter().any(|descriptor| {
                descriptor.flags & INDIRECT != 0 && piece(descriptor.address, descriptor.bytes).is_none()
            });
            match (read, expected) {
                (Ok(()), Some(expected)) => prop_assert_eq!(buffers(&chain), buffers(&expected)),
                (Err(_), None) => {}
                (Err(_), Some(_)) => prop_assert!(has_strange_table),
                (Ok(()), None) => prop_assert!(false, "{:?}", chain),
            }
        }
    }
}

//! Chains that the device has taken for frames to come.

use crate::virtio::queue::{Buffer, Chain};

/// Most buffers of all chains taken: more of them are not needed for a frame, but by a driver that
/// wants to cost us memory.
const MAX_BUFFERS: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct TakenChain {
    head: u16,
    bytes: u64,
    buffers: usize,
}

/// Chains, oldest first.
#[derive(Debug, Default)]
pub(super) struct Taken {
    chains: Vec<TakenChain>,
    /// Of all chains, in order.
    buffers: Vec<Buffer>,
    room: u64,
}

impl Taken {
    /// Adds a chain.
    pub(super) fn push(&mut self, chain: &Chain) {
        let bytes = chain.writable_bytes();
        self.chains.push(TakenChain {
            head: chain.head,
            bytes,
            buffers: chain.writable.len(),
        });
        self.buffers.extend_from_slice(&chain.writable);
        self.room += bytes;
    }

    /// How many chains.
    pub(super) fn count(&self) -> usize {
        self.chains.len()
    }

    /// Whether there are so many buffers that no more chains are taken.
    pub(super) fn is_full(&self) -> bool {
        self.buffers.len() >= MAX_BUFFERS
    }

    /// Bytes of all chains.
    pub(super) fn room(&self) -> u64 {
        self.room
    }

    /// Buffers of all chains, in order.
    pub(super) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// How `bytes` (no more than there is room for) spread over chains: for each that is needed, and
    /// at least one, its head and the bytes in it, into `used`.
    pub(super) fn spread(&self, bytes: u64, used: &mut Vec<(u16, u32)>) {
        used.clear();
        let mut left = bytes;
        for chain in &self.chains {
            let here = chain.bytes.min(left);
            left -= here;
            // A chain has less than 4 GiB.
            used.push((chain.head, u32::try_from(here).unwrap_or(u32::MAX)));
            if left == 0 {
                return;
            }
        }
    }

    /// Drops the first `count` chains.
    pub(super) fn drop_first(&mut self, count: usize) {
        let count = count.min(self.chains.len());
        let mut buffers = 0;
        for chain in self.chains.drain(..count) {
            buffers += chain.buffers;
            self.room -= chain.bytes;
        }
        self.buffers.drain(..buffers);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chain(head: u16, lengths: &[u32]) -> Chain {
        let buffer = |bytes: &u32| Buffer {
            address: u64::from(head) << 32,
            bytes: *bytes,
        };
        Chain {
            head,
            readable: Vec::new(),
            writable: lengths.iter().map(buffer).collect(),
        }
    }

    proptest! {
        #[test]
        fn what_is_spread_is_all_and_in_order(
            chains in prop::collection::vec(prop::collection::vec(0u32..3000, 0..4), 1..12),
            share in 0u64..=1000,
        ) {
            let mut taken = Taken::default();
            for (head, lengths) in (0..).zip(&chains) {
                taken.push(&chain(head, lengths));
            }
            let sums: Vec<u64> =
                chains.iter().map(|lengths| lengths.iter().copied().map(u64::from).sum()).collect();
            prop_assert_eq!(taken.room(), sums.iter().sum::<u64>());
            let bytes = taken.room() * share / 1000;
            let mut used = vec![(9, 9)];
            taken.spread(bytes, &mut used);
            prop_assert!(!used.is_empty());
            prop_assert_eq!(used.iter().map(|(_, part)| u64::from(*part)).sum::<u64>(), bytes);
            // All but the last are full.
            let full = used.iter().zip((0u16..).zip(&sums)).take(used.len() - 1);
            for ((head, part), (index, sum)) in full {
                prop_assert_eq!((*head, u64::from(*part)), (index, *sum));
            }

            let count = used.len();
            taken.drop_first(count);
            prop_assert_eq!(taken.count(), chains.len() - count);
            prop_assert_eq!(taken.room(), sums[count..].iter().sum::<u64>());
            let buffers: usize = chains[count..].iter().map(Vec::len).sum();
            prop_assert_eq!(taken.buffers().len(), buffers);
        }
    }

    #[test]
    fn there_is_an_end_to_buffers() {
        let mut taken = Taken::default();
        while !taken.is_full() {
            taken.push(&chain(1, &[1; 100]));
        }
        assert!(taken.buffers().len() <= 1100);
        taken.drop_first(usize::MAX);
        assert_eq!((taken.count(), taken.room()), (0, 0));
    }
}

//! Chains popped from the receive queue, ready for the next frames.

use crate::virtio::queue::{Buffer, Chain};

/// Most buffers of all popped chains. No frame needs as many; without a limit a driver with long chains
/// of tiny buffers could make the device allocate megabytes.
const MAX_BUFFERS: usize = 1024;

#[derive(Clone, Copy, Debug)]
struct PoppedChain {
    head: u16,
    bytes: u64,
    buffers: usize,
}

/// Chains, oldest first.
#[derive(Debug, Default)]
pub(super) struct PoppedChains {
    chains: Vec<PoppedChain>,
    /// Of all chains, in order.
    buffers: Vec<Buffer>,
    writable_bytes: u64,
}

impl PoppedChains {
    /// Adds a chain.
    pub(super) fn push(&mut self, chain: &Chain) {
        let bytes = chain.writable_bytes();
        self.chains.push(PoppedChain {
            head: chain.head,
            bytes,
            buffers: chain.writable.len(),
        });
        self.buffers.extend_from_slice(&chain.writable);
        self.writable_bytes += bytes;
    }

    /// Number of chains.
    pub(super) fn count(&self) -> usize {
        self.chains.len()
    }

    /// Whether `MAX_BUFFERS` is reached and no more chains may be popped.
    pub(super) fn is_full(&self) -> bool {
        self.buffers.len() >= MAX_BUFFERS
    }

    /// Sum of all buffers' lengths.
    pub(super) fn writable_bytes(&self) -> u64 {
        self.writable_bytes
    }

    /// Buffers of all chains, in order.
    pub(super) fn buffers(&self) -> &[Buffer] {
        &self.buffers
    }

    /// Computes the used elements of a frame of `bytes`, which must not exceed
    /// [`writable_bytes`](Self::writable_bytes): `(head, bytes written)` of every chain it fills, and of at
    /// least one. They replace what is in `used`.
    pub(super) fn used_elements(&self, bytes: u64, used: &mut Vec<(u16, u32)>) {
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

    /// Forgets the first `count` chains, which were returned to the driver.
    pub(super) fn drop_first(&mut self, count: usize) {
        let count = count.min(self.chains.len());
        let mut buffers = 0;
        for chain in self.chains.drain(..count) {
            buffers += chain.buffers;
            self.writable_bytes -= chain.bytes;
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
        fn used_elements_sum_to_the_frame_and_keep_the_order_of_chains(
            chains in prop::collection::vec(prop::collection::vec(0u32..3000, 0..4), 1..12),
            share in 0u64..=1000,
        ) {
            let mut popped = PoppedChains::default();
            for (head, lengths) in (0..).zip(&chains) {
                popped.push(&chain(head, lengths));
            }
            let sums: Vec<u64> =
                chains.iter().map(|lengths| lengths.iter().copied().map(u64::from).sum()).collect();
            prop_assert_eq!(popped.writable_bytes(), sums.iter().sum::<u64>());
            let bytes = popped.writable_bytes() * share / 1000;
            let mut used = vec![(9, 9)];
            popped.used_elements(bytes, &mut used);
            prop_assert!(!used.is_empty());
            prop_assert_eq!(used.iter().map(|(_, part)| u64::from(*part)).sum::<u64>(), bytes);
            // All but the last are full.
            let full = used.iter().zip((0u16..).zip(&sums)).take(used.len() - 1);
            for ((head, part), (index, sum)) in full {
                prop_assert_eq!((*head, u64::from(*part)), (index, *sum));
            }

            let count = used.len();
            popped.drop_first(count);
            prop_assert_eq!(popped.count(), chains.len() - count);
            prop_assert_eq!(popped.writable_bytes(), sums[count..].iter().sum::<u64>());
            let buffers: usize = chains[count..].iter().map(Vec::len).sum();
            prop_assert_eq!(popped.buffers().len(), buffers);
        }
    }

    #[test]
    fn the_number_of_buffers_is_bounded() {
        let mut popped = PoppedChains::default();
        while !popped.is_full() {
            popped.push(&chain(1, &[1; 100]));
        }
        assert!(popped.buffers().len() <= 1100);
        popped.drop_first(usize::MAX);
        assert_eq!((popped.count(), popped.writable_bytes()), (0, 0));
    }
}

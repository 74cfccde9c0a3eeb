//! Malformed rings and chains.

use vm_memory::GuestMemoryError;

/// Most descriptors of a chain. An indirect table could have 65,535, each of which costs the host a
/// read and, in most requests, a part of an I/O vector; no driver comes near (and `preadv(2)`
/// takes 1024).
pub const MAX_CHAIN_DESCRIPTORS: usize = 1024;

/// A malformed ring or chain.
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

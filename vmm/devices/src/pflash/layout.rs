//! Sizes of the flash memory.

/// Size of what is erased at once.
pub const BLOCK_BYTES: u64 = 4096;

/// Most bytes of a flash memory.
pub const MAX_BYTES: u64 = 8 << 20;

/// Most bytes of a buffered write, less one.
pub(super) const MOST_BUFFERED: u8 = 63;

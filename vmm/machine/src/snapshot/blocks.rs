//! Blocks in which RAM is written and read.

/// What is looked at to find out whether it is zero, in bytes. Smaller holes would save little.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

pub(super) static ZERO: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

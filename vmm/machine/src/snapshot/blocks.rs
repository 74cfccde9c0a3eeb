//! Blocks in which RAM is written and read.

/// Bytes that are compared with zeros at a time. Smaller holes would save little.
pub(super) const BLOCK_BYTES: usize = 64 << 10;

pub(super) static ZERO: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];

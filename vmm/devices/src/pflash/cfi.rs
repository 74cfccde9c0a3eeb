//! Identification of flash memory (JESD68.01; JEP137 for the numbers).

use super::layout::{BLOCK_BYTES, MOST_BUFFERED};

/// Manufacturer and device: what QEMU's flash of a PC says.
const ID: [u8; 2] = [0, 0];

/// Offset of the query structure.
const QUERY_START: u64 = 0x10;

/// Identification, at `offset`.
pub(super) fn id(offset: u64) -> u8 {
    let at = usize::try_from(offset & 0xff).unwrap_or(0);
    ID.get(at).copied().unwrap_or(0)
}

/// The query structure of memory of `bytes` bytes, at `offset`.
pub(super) fn query(offset: u64, bytes: u64) -> u8 {
    let table = table(bytes);
    let at = (offset & 0xff).checked_sub(QUERY_START);
    let at = at.and_then(|at| usize::try_from(at).ok());
    at.and_then(|at| table.get(at)).copied().unwrap_or(0)
}

fn table(bytes: u64) -> [u8; 0x21] {
    let blocks = (bytes / BLOCK_BYTES).saturating_sub(1);
    let [blocks_low, blocks_high, ..] = blocks.to_le_bytes();
    let [block_low, block_high, ..] = (BLOCK_BYTES / 256).to_le_bytes();
    // The smallest power of two that holds it.
    let size = u8::try_from(bytes.next_power_of_two().trailing_zeros()).unwrap_or(0);
    let buffer = u8::try_from((u32::from(MOST_BUFFERED) + 1).trailing_zeros()).unwrap_or(0);
    [
        b'Q',
        b'R',
        b'Y', // 0x10
        1,
        0, // 0x13: Intel's command set
        0x31,
        0, // 0x15: its own table, which has nothing in it
        0,
        0,
        0,
        0, // 0x17: no other command set
        0x45,
        0x55,
        0,
        0, // 0x1b: voltages
        7,
        7,
        0xa,
        0, // 0x1f: usual times
        4,
        4,
        4,
        0,    // 0x23: longest times
        size, // 0x27
        2,
        0, // 0x28: 8 and 16 bits wide
        buffer,
        0, // 0x2a
        1, // 0x2c: one kind of blocks
        blocks_low,
        blocks_high, // 0x2d
        block_low,
        block_high, // 0x2f
    ]
}

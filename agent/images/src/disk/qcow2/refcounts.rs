//! Reference counts. A reader needs none; but a cluster in use whose count is zero is one that a
//! writer may have given to something else since.

use super::header::{ENTRY_BYTES, Header};
use super::used::Used;
use crate::disk::error::DiskError;
use crate::disk::format::{be64, index};
use crate::disk::source::Source;

/// Largest reference count table in bytes, as in QEMU (`QCOW_MAX_REFTABLE_SIZE`).
const MAX_TABLE_BYTES: u64 = 8 << 20;

/// Bits of a table's entry that are no offset.
const RESERVED: u64 = 0x1ff;

/// Takes the clusters of the table and of all blocks, whose offsets it gives; 0 for none.
pub(super) fn check_table(
    source: &Source,
    header: &Header,
    used: &mut Used,
) -> Result<Vec<u64>, DiskError> {
    let cluster = header.cluster_bytes();
    let bytes = header.refcount_table_clusters << header.cluster_bits;
    let what = "the size of its reference count table in bytes";
    if bytes > MAX_TABLE_BYTES {
        return Err(DiskError::TooLarge {
            image: source.name.clone(),
            what,
            value: bytes,
            limit: MAX_TABLE_BYTES,
            way_out: "",
        });
    }
    let offset = header.refcount_table_offset;
    let table_name = "the reference count table";
    take_table(source, used, (table_name, offset, bytes), cluster)?;
    let mut table = vec![0; index(bytes)];
    source.read(format_args!("{table_name}"), offset, &mut table)?;
    let mut blocks = Vec::new();
    for at in (0..table.len()).step_by(index(ENTRY_BYTES)) {
        let entry = be64(&table, at);
        let number = at as u64 / ENTRY_BYTES;
        let what = format!("reference count block {number}");
        if entry & RESERVED != 0 {
            return Err(source.damaged(format_args!(
                "the table's entry of {what} has bits set that the format reserves ({entry:#018x})"
            )));
        }
        let length = if entry == 0 { 0 } else { cluster };
        take_table(source, used, (&what, entry, length), cluster)?;
        blocks.push(entry);
    }
    Ok(blocks)
}

/// Fails when a cluster is in use whose count is zero.
pub(super) fn check_counts(
    source: &Source,
    header: &Header,
    used: &Used,
    blocks: &[u64],
) -> Result<(), DiskError> {
    // A block has as many counts as bits of a cluster hold: at least 64 of 64 bits.
    let per_block = (header.cluster_bytes() * 8) >> header.refcount_order;
    let mut block = (u64::MAX, Vec::new());
    for word in 0..used.words() {
        let bits = used.word(word);
        if bits == 0 {
            continue;
        }
        let number = word * 64 / per_block;
        if block.0 != number {
            let offset = blocks.get(index(number)).copied().unwrap_or(0);
            let mut bytes = vec![0; index(header.cluster_bytes())];
            if offset != 0 {
                let what = format_args!("reference count block {number}");
                source.read(what, offset, &mut bytes)?;
            }
            block = (number, bytes);
        }
        for bit in (0..64).filter(|bit| bits >> bit & 1 != 0) {
            let cluster = word * 64 + bit;
            if is_zero(&block.1, cluster % per_block, header.refcount_order) {
                return Err(source.damaged(format_args!(
                    "the cluster at byte {} is in use, but its reference count is 0",
                    cluster << header.cluster_bits
                )));
            }
        }
    }
    Ok(())
}

/// Whether count `number` of a block is zero. Counts of less than a byte fill it from its lowest bit.
fn is_zero(block: &[u8], number: u64, order: u32) -> bool {
    if order < 3 {
        let width = 1_u32 << order;
        let bit = number << order;
        let byte = block.get(index(bit / 8)).copied().unwrap_or(0);
        let mask = (1_u32 << width) - 1;
        return u32::from(byte) >> (bit % 8) & mask == 0;
    }
    let width = 1 << (order - 3);
    let start = index(number) * width;
    let count = block.get(start..start + width).unwrap_or_default();
    count.iter().all(|byte| *byte == 0)
}

/// Takes a table that begins at a cluster's start.
pub(super) fn take_table(
    source: &Source,
    used: &mut Used,
    (what, offset, length): (&str, u64, u64),
    cluster_bytes: u64,
) -> Result<(), DiskError> {
    if length == 0 {
        return Ok(());
    }
    if !offset.is_multiple_of(cluster_bytes) {
        return Err(source.damaged(format_args!(
            "{what} would begin at byte {offset}, which is no start of a cluster"
        )));
    }
    source.holds(format_args!("{what}"), offset, length)?;
    if used.take(offset, length) {
        Ok(())
    } else {
        Err(in_use(source, format_args!("{what}"), offset))
    }
}

pub(super) fn in_use(source: &Source, what: std::fmt::Arguments<'_>, offset: u64) -> DiskError {
    source.damaged(format_args!(
        "{what} would begin at byte {offset}, in a cluster that something else is in already"
    ))
}

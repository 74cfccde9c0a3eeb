//! Internal snapshots. They are not converted; but a table of them that is nonsense says that the image
//! is damaged.

use super::header::{ENTRY_BYTES, Header};
use super::refcounts::take_table;
use super::used::Used;
use crate::disk::error::DiskError;
use crate::disk::format::{be32, be64};
use crate::disk::source::Source;

/// Most snapshots, as in QEMU (`QCOW_MAX_SNAPSHOTS`).
const MAX_SNAPSHOTS: u32 = 65_536;
/// Most bytes of all of them, as in QEMU (`QCOW_MAX_SNAPSHOTS_SIZE`).
const MAX_BYTES: u64 = 64 << 20;
/// The part of an entry that has a fixed length.
const FIXED_BYTES: usize = 40;

/// Reads the table and takes its clusters and those of the snapshots' L1 tables.
pub(super) fn check(source: &Source, header: &Header, used: &mut Used) -> Result<(), DiskError> {
    if header.snapshot_count > MAX_SNAPSHOTS {
        return Err(DiskError::TooLarge {
            image: source.name.clone(),
            what: "the number of its snapshots",
            value: header.snapshot_count.into(),
            limit: MAX_SNAPSHOTS.into(),
            way_out: "",
        });
    }
    let start = header.snapshots_offset;
    let mut at = start;
    for number in 0..header.snapshot_count {
        let mut fixed = [0; FIXED_BYTES];
        source.read(format_args!("snapshot {number}"), at, &mut fixed)?;
        let l1 = (be64(&fixed, 0), u64::from(be32(&fixed, 8)) * ENTRY_BYTES);
        let what = format!("the L1 table of snapshot {number}");
        take_table(source, used, (&what, l1.0, l1.1), header.cluster_bytes())?;
        // Lengths of id and name, 16 bits each.
        let texts = be32(&fixed, 12);
        let lengths = u64::from(texts >> 16) + u64::from(texts & 0xffff);
        let bytes = FIXED_BYTES as u64 + u64::from(be32(&fixed, 36)) + lengths;
        at += bytes.next_multiple_of(8);
        if at - start > MAX_BYTES {
            return Err(DiskError::TooLarge {
                image: source.name.clone(),
                what: "the size of its snapshot table in bytes",
                value: at - start,
                limit: MAX_BYTES,
                way_out: "",
            });
        }
    }
    let what = "the snapshot table";
    // The padding of the last entry need not be there.
    let length = (at - start).min(source.bytes.saturating_sub(start));
    take_table(source, used, (what, start, length), header.cluster_bytes())
}

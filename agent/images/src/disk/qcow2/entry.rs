//! Entries of L1 and L2 tables.

use super::header::Header;

/// Bits 9 to 55: where in the file.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
/// Bit 63: the reference count is one. It matters to writers alone.
const COPIED: u64 = 1 << 63;
/// Bit 62 of an L2 entry: the cluster is compressed.
const COMPRESSED: u64 = 1 << 62;
/// Bit 0 of an L2 entry, from version 3 on: the cluster reads as zero.
const ZERO: u64 = 1;
/// Bits of an extended L2 entry's second half: that the first subcluster is there, and that it reads as zero.
const SUBCLUSTER_IS_THERE: u64 = 1;
const SUBCLUSTER_IS_ZERO: u64 = 1 << 32;
const ALL_ARE_THERE: u64 = SUBCLUSTER_IS_ZERO - 1;
/// Lengths of compressed clusters count these.
const SECTOR_BYTES: u64 = 512;

/// What an image has for a cluster of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mapping {
    /// Nothing: what the image below has counts.
    Unallocated,
    /// Zeros, whatever lies below.
    Zero,
    /// Bytes as they are.
    Data {
        /// Byte offset in the image file.
        offset: u64,
    },
    /// A compressed cluster.
    Compressed {
        /// Where in the file it begins.
        offset: u64,
        /// How many bytes it takes at most.
        length: u64,
    },
}

/// Where the L2 table of an L1 entry is; or what is wrong.
pub(super) fn l2_offset(header: &Header, entry: u64) -> Result<Option<u64>, &'static str> {
    if entry & !(OFFSET | COPIED) != 0 {
        return Err("has bits set that the format reserves");
    }
    aligned(header, entry)
}

/// What an L2 entry says; or what is wrong.
pub(super) fn mapping(header: &Header, entry: u64) -> Result<Mapping, &'static str> {
    if entry & COMPRESSED != 0 {
        return compressed(header, entry);
    }
    let is_zero = entry & ZERO != 0;
    if entry & !(OFFSET | COPIED | ZERO) != 0 {
        return Err("has bits set that the format reserves");
    }
    if is_zero && header.version < 3 {
        return Err("is a zero cluster, which version 2 does not have");
    }
    let offset = aligned(header, entry)?;
    Ok(match (is_zero, offset) {
        (true, _) => Mapping::Zero,
        (false, None) => Mapping::Unallocated,
        (false, Some(offset)) => Mapping::Data { offset },
    })
}

/// What an extended L2 entry, with the bitmap of its subclusters, says of one of them; or what is wrong.
pub(super) fn subcluster(
    header: &Header,
    (entry, bitmap): (u64, u64),
    number: u64,
) -> Result<Mapping, &'static str> {
    if entry & COMPRESSED != 0 {
        if bitmap != 0 {
            return Err("is compressed and has subclusters at once");
        }
        return compressed(header, entry);
    }
    if entry & !(OFFSET | COPIED) != 0 {
        return Err("has bits set that the format reserves");
    }
    let offset = aligned(header, entry)?;
    if offset.is_none() && bitmap & ALL_ARE_THERE != 0 {
        return Err("has subclusters and no place for them");
    }
    let is_there = bitmap & SUBCLUSTER_IS_THERE << number != 0;
    let is_zero = bitmap & SUBCLUSTER_IS_ZERO << number != 0;
    match (is_there, is_zero, offset) {
        (true, true, _) => Err("has a subcluster that is there and zero at once"),
        (_, true, _) => Ok(Mapping::Zero),
        (true, _, Some(offset)) => Ok(Mapping::Data { offset }),
        _ => Ok(Mapping::Unallocated),
    }
}

/// The cluster that an L2 entry holds on to, also when it reads as zero. Compressed ones share theirs.
pub(super) fn held(entry: u64) -> u64 {
    if entry & COMPRESSED == 0 {
        entry & OFFSET
    } else {
        0
    }
}

fn aligned(header: &Header, entry: u64) -> Result<Option<u64>, &'static str> {
    let offset = entry & OFFSET;
    if !offset.is_multiple_of(header.cluster_bytes()) {
        return Err("points to no start of a cluster");
    }
    Ok((offset != 0).then_some(offset))
}

/// "Compressed Clusters Descriptor": the offset takes as many bits as a cluster's size leaves.
fn compressed(header: &Header, entry: u64) -> Result<Mapping, &'static str> {
    if entry & COPIED != 0 {
        return Err("is compressed and copied at once");
    }
    let offset_bits = 62 - (header.cluster_bits - 8);
    let offset = entry & ((1 << offset_bits) - 1);
    let more_sectors = (entry & (COMPRESSED - 1)) >> offset_bits;
    let length = (more_sectors + 1) * SECTOR_BYTES - offset % SECTOR_BYTES;
    Ok(Mapping::Compressed { offset, length })
}

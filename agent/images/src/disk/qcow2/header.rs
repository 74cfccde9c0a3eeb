//! The header of a qcow2 image.

use super::super::probe::QCOW2_MAGIC;
use super::super::source::Source;
use super::compressed::Compression;
use super::extensions::Extensions;
use super::features::{self, COMPRESSION, DIRTY, EXTENDED_L2};
use crate::disk::error::DiskError;
use crate::disk::format::{BackingInfo, DiskFormat, be32, be64, index, shown};

/// Size of an entry of an L1 or L2 table in bytes.
pub(super) const ENTRY_BYTES: u64 = 8;

/// Sizes of clusters that QEMU knows: 512 bytes to 2 MiB.
const CLUSTER_BITS: std::ops::RangeInclusive<u32> = 9..=21;
/// Subclusters of a cluster, as a power of two, and the smallest clusters that have them.
const SUBCLUSTER_BITS: u32 = 5;
const LEAST_WITH_SUBCLUSTERS: u32 = 14;
/// Length of a version 2 header in bytes.
const V2_BYTES: u64 = 72;
/// Least length of a version 3 header in bytes.
const V3_BYTES: u64 = 104;
/// Longest name of a backing file in bytes.
const MAX_BACKING_NAME: u64 = 1023;
/// Largest L1 table in bytes, as in QEMU (`QCOW_MAX_L1_SIZE`).
const MAX_L1_BYTES: u64 = 32 << 20;

/// What a header says, as far as a reader needs it. Tables are not looked at.
#[derive(Debug)]
pub(crate) struct Header {
    pub(crate) version: u32,
    pub(super) cluster_bits: u32,
    /// Whether L2 entries are extended: a bitmap says of each subcluster what it is.
    pub(super) has_subclusters: bool,
    pub(crate) virtual_bytes: u64,
    pub(super) l1_offset: u64,
    pub(super) l1_entries: u64,
    pub(super) refcount_table_offset: u64,
    pub(super) refcount_table_clusters: u64,
    /// A reference count has 2 to the power of this many bits.
    pub(crate) refcount_order: u32,
    /// Whether reference counts may be stale.
    pub(super) is_dirty: bool,
    pub(crate) snapshot_count: u32,
    pub(super) snapshots_offset: u64,
    pub(crate) compression: Compression,
    pub(crate) backing: Option<BackingInfo>,
    /// What keeps the image from being read, in words that follow "the image".
    pub(crate) unsupported: Vec<String>,
}

impl Header {
    /// Reads the header. `who` says why the file should be qcow2, for the message when it is not.
    pub(crate) fn read(source: &Source, who: &str) -> Result<Self, DiskError> {
        let head = source.read_up_to(0, 512)?;
        if !head.starts_with(&QCOW2_MAGIC) {
            return Err(DiskError::WrongFormat {
                image: source.name.clone(),
                wanted: DiskFormat::Qcow2,
                who: who.to_owned(),
            });
        }
        source.holds(format_args!("the header"), 0, V2_BYTES)?;
        let version = be32(&head, 4);
        let cluster_bits = be32(&head, 20);
        if !(2..=3).contains(&version) {
            return Err(DiskError::Unsupported {
                image: source.name.clone(),
                what: format!("is qcow2 of version {version}"),
                way_out: "versions 2 and 3 are: convert it with qemu-img",
            });
        }
        if !CLUSTER_BITS.contains(&cluster_bits) {
            return Err(source.damaged(format_args!(
                "its header gives clusters of 2^{cluster_bits} bytes; 2^9 to 2^21 are possible"
            )));
        }
        let header_bytes = if version == 2 {
            V2_BYTES
        } else {
            u64::from(be32(&head, 100))
        };
        let least = if version == 2 { V2_BYTES } else { V3_BYTES };
        if !(least..=1 << cluster_bits).contains(&header_bytes) {
            return Err(source.damaged(format_args!(
                "its header gives itself {header_bytes} bytes; {least} bytes to a cluster are possible"
            )));
        }
        let first = source.read_up_to(0, 1 << cluster_bits)?;
        if first.len() < index(header_bytes) {
            source.holds(format_args!("the header"), 0, header_bytes)?;
        }
        Self::parse(source, &first, header_bytes)
    }

    /// `first` is the first cluster, as far as the file has it.
    fn parse(source: &Source, first: &[u8], header_bytes: u64) -> Result<Self, DiskError> {
        let version = be32(first, 4);
        let name = backing_name(source, first)?;
        let end = if name.is_some() {
            index(be64(first, 8))
        } else {
            first.len()
        };
        let area = first.get(index(header_bytes)..end).unwrap_or_default();
        let extensions = Extensions::read(source, header_bytes, area)?;
        let features = if version == 2 { 0 } else { be64(first, 72) };
        let mut unsupported = features::unsupported(
            features,
            &extensions.feature_names,
            extensions.data_file.as_deref(),
        );
        match be32(first, 32) {
            0 => {}
            1 => unsupported.push("is encrypted (AES)".to_owned()),
            2 => unsupported.push("is encrypted (LUKS)".to_owned()),
            other => unsupported.push(format!("is encrypted (method {other})")),
        }
        let refcount_order = if version == 2 { 4 } else { be32(first, 96) };
        if refcount_order > 6 {
            return Err(source.damaged(format_args!(
                "its header gives reference counts of 2^{refcount_order} bits; at most 2^6 are possible"
            )));
        }
        let cluster_bits = be32(first, 20);
        let has_subclusters = features & EXTENDED_L2 != 0;
        if has_subclusters && cluster_bits < LEAST_WITH_SUBCLUSTERS {
            return Err(source.damaged(format_args!(
                "its header gives clusters of 2^{cluster_bits} bytes with subclusters (extended L2 entries); 2^{LEAST_WITH_SUBCLUSTERS} bytes or more are possible"
            )));
        }
        let header = Self {
            version,
            cluster_bits,
            has_subclusters,
            virtual_bytes: be64(first, 24),
            l1_entries: be32(first, 36).into(),
            l1_offset: be64(first, 40),
            refcount_table_offset: be64(first, 48),
            refcount_table_clusters: be32(first, 56).into(),
            refcount_order,
            is_dirty: features & DIRTY != 0,
            snapshot_count: be32(first, 60),
            snapshots_offset: be64(first, 64),
            compression: compression(source, first, features, header_bytes)?,
            backing: name.map(|name| BackingInfo {
                name,
                format: extensions.backing_format,
            }),
            unsupported,
        };
        header.check_l1(source)?;
        Ok(header)
    }

    /// Fails when the image has something that cannot be read.
    pub(crate) fn refuse_unsupported(&self, source: &Source) -> Result<(), DiskError> {
        let Some(what) = self.unsupported.first() else {
            return Ok(());
        };
        Err(DiskError::Unsupported {
            image: source.name.clone(),
            what: what.clone(),
            way_out: if what.contains("corrupt") {
                "repair it with `qemu-img check -r all`"
            } else {
                "convert it with qemu-img to a plain qcow2 or raw image"
            },
        })
    }

    /// Size of a cluster in bytes.
    pub(crate) fn cluster_bytes(&self) -> u64 {
        1 << self.cluster_bits
    }

    /// Size in bytes of what is mapped as one: a subcluster, or a cluster where there are none.
    pub(super) fn unit_bytes(&self) -> u64 {
        if self.has_subclusters {
            self.cluster_bytes() >> SUBCLUSTER_BITS
        } else {
            self.cluster_bytes()
        }
    }

    /// Size of an entry of an L2 table in bytes.
    pub(super) fn l2_entry_bytes(&self) -> u64 {
        if self.has_subclusters {
            2 * ENTRY_BYTES
        } else {
            ENTRY_BYTES
        }
    }

    /// Bytes of the disk that one L2 table maps.
    pub(super) fn l2_covers_bytes(&self) -> u64 {
        (self.cluster_bytes() / self.l2_entry_bytes()) << self.cluster_bits
    }

    /// The L1 entry of the disk's byte `at`.
    pub(super) fn l1_index(&self, at: u64) -> u64 {
        at / self.l2_covers_bytes()
    }

    /// The entry in its L2 table of the disk's byte `at`.
    pub(super) fn l2_index(&self, at: u64) -> u64 {
        (at % self.l2_covers_bytes()) >> self.cluster_bits
    }

    /// L1 entries that the disk's size takes.
    pub(super) fn l1_needed(&self) -> u64 {
        self.virtual_bytes.div_ceil(self.l2_covers_bytes())
    }

    fn check_l1(&self, source: &Source) -> Result<(), DiskError> {
        let bytes = self.l1_entries * ENTRY_BYTES;
        if bytes > MAX_L1_BYTES {
            return Err(DiskError::TooLarge {
                image: source.name.clone(),
                what: "the size of its L1 table in bytes",
                value: bytes,
                limit: MAX_L1_BYTES,
                way_out: "; larger clusters need a smaller one",
            });
        }
        if self.l1_entries < self.l1_needed() {
            return Err(source.damaged(format_args!(
                "its L1 table has {} entries; a disk of {} bytes needs {}",
                self.l1_entries,
                self.virtual_bytes,
                self.l1_needed()
            )));
        }
        Ok(())
    }
}

/// The backing file's name, which lies in the first cluster.
fn backing_name(source: &Source, first: &[u8]) -> Result<Option<String>, DiskError> {
    let (offset, length) = (be64(first, 8), u64::from(be32(first, 16)));
    if offset == 0 {
        return Ok(None);
    }
    if length > MAX_BACKING_NAME {
        return Err(source.damaged(format_args!(
            "the name of its backing file has {length} bytes; {MAX_BACKING_NAME} are possible"
        )));
    }
    let end = offset.checked_add(length);
    match end.and_then(|end| first.get(index(offset)..index(end))) {
        Some(name) => Ok(Some(shown(name))),
        None => Err(source.damaged(format_args!(
            "the name of its backing file ({length} bytes at byte {offset}) lies outside of its first cluster"
        ))),
    }
}

/// The compression type, whose field is there when the header is long enough.
fn compression(
    source: &Source,
    first: &[u8],
    features: u64,
    header_bytes: u64,
) -> Result<Compression, DiskError> {
    let kind = if header_bytes > V3_BYTES {
        first.get(index(V3_BYTES)).copied().unwrap_or(0)
    } else {
        0
    };
    match (kind, features & COMPRESSION != 0) {
        (0, false) => Ok(Compression::Zlib),
        (1, true) => Ok(Compression::Zstd),
        (0 | 1, _) => Err(source.damaged(format_args!(
            "its header contradicts itself about compression (type {kind}, features {features:#x})"
        ))),
        (kind, _) => Err(DiskError::Unsupported {
            image: source.name.clone(),
            what: format!("has compression type {kind}"),
            way_out: "zlib (0) and zstd (1) are: convert it with qemu-img",
        }),
    }
}

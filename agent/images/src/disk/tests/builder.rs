//! A writer of small qcow2 images, sound unless bytes are changed afterwards.

use std::io::Write;

use flate2::write::DeflateEncoder;

/// What an image has for one cluster of the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Content {
    Hole,
    Zero,
    /// A zero cluster that has a place in the file.
    ZeroHeld,
    /// Bytes made of a seed.
    Data(u8),
    /// The same, compressed.
    Packed(u8),
}

/// An image that a test builds.
#[derive(Debug, Clone)]
pub(super) struct Builder {
    pub(super) version: u32,
    pub(super) cluster_bits: u32,
    pub(super) is_zstd: bool,
    /// L2 entries have bitmaps of subclusters.
    pub(super) has_subclusters: bool,
    pub(super) virtual_bytes: u64,
    pub(super) backing: Option<(&'static str, Option<&'static str>)>,
    pub(super) clusters: Vec<Content>,
}

/// An image, and where in it things are.
#[derive(Debug, Clone)]
pub(super) struct Built {
    pub(super) bytes: Vec<u8>,
    pub(super) l1: usize,
    pub(super) l2: Vec<usize>,
    pub(super) refcount_table: usize,
    pub(super) refcount_block: usize,
    /// Of each cluster of the disk that is plain data.
    pub(super) data: Vec<usize>,
}

impl Built {
    /// The image with a number of eight bytes at `at`.
    pub(super) fn with64(&self, at: usize, value: u64) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at..at + 8].copy_from_slice(&value.to_be_bytes());
        bytes
    }

    /// The image with a number of four bytes at `at`.
    pub(super) fn with32(&self, at: usize, value: u32) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
        bytes
    }
}

const COMPRESSED: u64 = 1 << 62;
const COPIED: u64 = 1 << 63;

impl Builder {
    /// Version 3, zlib, clusters of 512 bytes.
    pub(super) fn new(clusters: Vec<Content>) -> Self {
        Self {
            version: 3,
            cluster_bits: 9,
            is_zstd: false,
            has_subclusters: false,
            virtual_bytes: clusters.len() as u64 * 512,
            backing: None,
            clusters,
        }
    }

    pub(super) fn cluster_bytes(&self) -> usize {
        1 << self.cluster_bits
    }

    /// The bytes of a cluster with something in it.
    pub(super) fn bytes_of(&self, content: Content) -> Option<Vec<u8>> {
        let size = self.cluster_bytes();
        match content {
            Content::Hole => None,
            Content::Zero | Content::ZeroHeld => Some(vec![0; size]),
            Content::Data(seed) | Content::Packed(seed) => {
                let byte = |at: usize| u8::try_from(at / 7 % 251).unwrap().wrapping_mul(seed | 1);
                Some((0..size).map(|at| byte(at) ^ seed).collect())
            }
        }
    }

    pub(super) fn build(&self) -> Built {
        let cluster = self.cluster_bytes();
        let per_l2 = cluster / if self.has_subclusters { 16 } else { 8 };
        let tables = self.clusters.len().div_ceil(per_l2);
        // Header, L1 table (a cluster or more), reference count table, one block.
        let l1 = cluster;
        let refcount_table = l1 + (tables * 8).next_multiple_of(cluster).max(cluster);
        let refcount_block = refcount_table + cluster;
        let mut file = vec![0; refcount_block + cluster];
        let (mut l2, mut data) = (Vec::new(), Vec::new());
        for (number, contents) in self.clusters.chunks(per_l2).enumerate() {
            let entries = self.write_clusters(contents, &mut file, &mut data);
            pad(&mut file, cluster);
            let table = file.len();
            l2.push(table);
            for (entry, content) in entries.into_iter().zip(contents) {
                if self.has_subclusters {
                    let bitmap: u64 = match content {
                        Content::Hole | Content::Packed(_) => 0,
                        Content::Zero | Content::ZeroHeld => 0xffff_ffff << 32,
                        Content::Data(_) => 0xffff_ffff,
                    };
                    // Bit 0 is no longer that of a cluster of zeros.
                    file.extend((entry & !1).to_be_bytes());
                    file.extend(bitmap.to_be_bytes());
                } else {
                    file.extend(entry.to_be_bytes());
                }
            }
            pad(&mut file, cluster);
            put(
                &mut file,
                l1 + number * 8,
                &(table as u64 | COPIED).to_be_bytes(),
            );
        }
        pad(&mut file, cluster);
        self.write_counts(&mut file, refcount_table, refcount_block);
        self.write_header(&mut file, l1, tables, refcount_table);
        Built {
            bytes: file,
            l1,
            l2,
            refcount_table,
            refcount_block,
            data,
        }
    }

    fn write_clusters(
        &self,
        contents: &[Content],
        file: &mut Vec<u8>,
        data: &mut Vec<usize>,
    ) -> Vec<u64> {
        let mut entries = Vec::new();
        for content in contents {
            let bytes = self.bytes_of(*content).unwrap_or_default();
            let entry = match content {
                Content::Hole => 0,
                Content::Zero => 1,
                Content::Packed(_) => {
                    let packed = self.pack(&bytes);
                    let at = file.len();
                    file.extend(&packed);
                    let sectors = (at + packed.len() - 1) / 512 - at / 512;
                    let offset_bits = 62 - (self.cluster_bits - 8);
                    COMPRESSED | (sectors as u64) << offset_bits | at as u64
                }
                Content::ZeroHeld | Content::Data(_) => {
                    pad(file, self.cluster_bytes());
                    let at = file.len();
                    file.extend(&bytes);
                    let is_zero = *content == Content::ZeroHeld;
                    if !is_zero {
                        data.push(at);
                    }
                    COPIED | at as u64 | u64::from(is_zero)
                }
            };
            entries.push(entry);
        }
        entries
    }

    pub(super) fn pack(&self, bytes: &[u8]) -> Vec<u8> {
        if self.is_zstd {
            return zstd::encode_all(bytes, 1).unwrap();
        }
        let mut encoder = DeflateEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    /// Counts of 16 bits, one for each cluster, in as many blocks as the table may have.
    fn write_counts(&self, file: &mut Vec<u8>, table: usize, first: usize) {
        let cluster = self.cluster_bytes();
        let mut blocks = vec![first];
        while blocks.len() * cluster / 2 < file.len() / cluster {
            blocks.push(file.len());
            file.extend(vec![0; cluster]);
        }
        for (number, block) in blocks.iter().enumerate() {
            put(file, table + number * 8, &(*block as u64).to_be_bytes());
        }
        for number in 0..file.len() / cluster {
            let block = blocks[number / (cluster / 2)];
            put(file, block + number % (cluster / 2) * 2, &[0, 1]);
        }
    }

    fn write_header(&self, file: &mut [u8], l1: usize, tables: usize, refcount_table: usize) {
        let number = |value: usize| u32::try_from(value).unwrap().to_be_bytes();
        put(file, 0, b"QFI\xfb");
        put(file, 4, &self.version.to_be_bytes());
        put(file, 20, &self.cluster_bits.to_be_bytes());
        put(file, 24, &self.virtual_bytes.to_be_bytes());
        put(file, 36, &number(tables));
        put(file, 40, &(l1 as u64).to_be_bytes());
        put(file, 48, &(refcount_table as u64).to_be_bytes());
        put(file, 56, &number(1));
        let mut end = 72;
        if self.version >= 3 {
            let features = u8::from(self.is_zstd) << 3 | u8::from(self.has_subclusters) << 4;
            put(file, 79, &[features]);
            put(file, 96, &number(4));
            put(file, 100, &number(112));
            put(file, 104, &[u8::from(self.is_zstd)]);
            end = 112;
        }
        if let Some((name, format)) = self.backing {
            if let Some(format) = format {
                put(file, end, &0xe279_2aca_u32.to_be_bytes());
                put(file, end + 4, &number(format.len()));
                put(file, end + 8, format.as_bytes());
                end += 8 + format.len().next_multiple_of(8);
            }
            put(file, 8, &(end as u64 + 8).to_be_bytes());
            put(file, 16, &number(name.len()));
            put(file, end + 8, name.as_bytes());
        }
    }
}

fn pad(file: &mut Vec<u8>, cluster: usize) {
    file.resize(file.len().next_multiple_of(cluster), 0);
}

fn put(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
}

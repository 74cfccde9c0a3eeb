//! Which clusters of an image's file are in use, so that none is used twice.

use crate::disk::error::DiskError;
use crate::disk::format::index;
use crate::disk::source::Source;

/// Two bits for each cluster of the file.
pub(super) struct Used {
    cluster_bits: u32,
    /// Tables and data.
    whole: Vec<u64>,
    /// Compressed data, which may share a cluster with other compressed data.
    packed: Vec<u64>,
}

impl Used {
    /// No cluster of `source` is in use.
    pub(super) fn new(source: &Source, cluster_bits: u32, limit: u64) -> Result<Self, DiskError> {
        let clusters = source.bytes.div_ceil(1 << cluster_bits);
        let words = clusters.div_ceil(64);
        if words * 16 > limit {
            return Err(DiskError::TooLarge {
                image: source.name.clone(),
                what: "the number of clusters in its file",
                value: clusters,
                limit: limit * 4,
                way_out: "; larger clusters make it smaller",
            });
        }
        // Zeroed by the kernel: what is never set takes no memory. A clone would.
        Ok(Self {
            cluster_bits,
            whole: vec![0; index(words)],
            packed: vec![0; index(words)],
        })
    }

    /// Takes the clusters of `length` bytes at `offset` for one use alone. False when one of them is in
    /// use already. They lie inside of the file.
    pub(super) fn take(&mut self, offset: u64, length: u64) -> bool {
        self.clusters(offset, length).all(|cluster| {
            let is_free = !get(&self.whole, cluster) && !get(&self.packed, cluster);
            set(&mut self.whole, cluster);
            is_free
        })
    }

    /// Takes the clusters of `length` bytes at `offset` for compressed data.
    pub(super) fn share(&mut self, offset: u64, length: u64) -> bool {
        self.clusters(offset, length).all(|cluster| {
            set(&mut self.packed, cluster);
            !get(&self.whole, cluster)
        })
    }

    /// 64 clusters, one bit each, of which the first is `word * 64`: those in use.
    pub(super) fn word(&self, word: u64) -> u64 {
        let of = |map: &[u64]| map.get(index(word)).copied().unwrap_or(0);
        of(&self.whole) | of(&self.packed)
    }

    /// How many such words there are.
    pub(super) fn words(&self) -> u64 {
        self.whole.len() as u64
    }

    fn clusters(&self, offset: u64, length: u64) -> std::ops::Range<u64> {
        let end = offset.saturating_add(length);
        offset >> self.cluster_bits..end.div_ceil(1 << self.cluster_bits)
    }
}

fn get(map: &[u64], cluster: u64) -> bool {
    map.get(index(cluster / 64))
        .is_some_and(|word| word >> (cluster % 64) & 1 != 0)
}

fn set(map: &mut [u64], cluster: u64) {
    if let Some(word) = map.get_mut(index(cluster / 64)) {
        *word |= 1 << (cluster % 64);
    }
}

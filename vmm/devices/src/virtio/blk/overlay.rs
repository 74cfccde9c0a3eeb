//! A read-only base under an image that is thrown away: what the guest wrote is in the image, everything
//! else in the base.
//!
//! A bitmap in memory says which blocks of 4 KiB the image has; nothing of it is on the host's disk, so that no
//! file is trusted and nothing has to be durable. A block is marked only when the image holds all of it: a write
//! that covers a block in part copies the rest from the base first, and a discard or zeros that cover it whole
//! hide the base. Blocks beyond the base's end are the image's from the start.
//!
//! Only the thread that serves the disk marks blocks. The ring gets reads that lie wholly in one file, and writes that
//! cover all blocks which the image does not have: these are marked when the write has ended. The thread itself carries out
//! what has to copy the rest of a block, and not before writes of the ring to that block have ended: no copy of a block's
//! rest can overtake a write.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::request::Extent;

/// Unit of what the image has.
pub(super) const BLOCK_BYTES: u64 = 4096;
/// Largest base: its bitmap has 4 MiB.
pub const MAX_BASE_BYTES: u64 = 128 << 30;

const WORD_BITS: u64 = 64;

/// Where the data of a block lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layer {
    /// In the image.
    Image,
    /// In the base.
    Base,
    /// Nowhere: a block that the image does not have reads as zeros from the base's end on.
    Zeros,
}

/// A base, and which of its blocks are hidden by the image.
pub(super) struct Overlay {
    pub(super) base: File,
    base_bytes: u64,
    /// A bit for each block of the base, the first in the lowest bit. Untouched pages of it cost nothing.
    present: Vec<u64>,
}

impl Overlay {
    /// All of `base`, which has `base_bytes`, at most [`MAX_BASE_BYTES`].
    pub(super) fn new(base: File, base_bytes: u64) -> Self {
        let words = base_bytes.div_ceil(BLOCK_BYTES).div_ceil(WORD_BITS);
        Self {
            base,
            base_bytes,
            present: vec![0; usize::try_from(words).unwrap_or(0)],
        }
    }

    /// Size of the base.
    pub(super) fn base_bytes(&self) -> u64 {
        self.base_bytes
    }

    /// The bitmap.
    pub(super) fn present(&self) -> &[u64] {
        &self.present
    }

    /// Takes the bitmap of an earlier device on the same files, which is as long.
    pub(super) fn adopt(&mut self, present: Vec<u64>) {
        self.present = present;
    }

    /// Whether the image has a block.
    fn has(&self, block: u64) -> bool {
        if block.saturating_mul(BLOCK_BYTES) >= self.base_bytes {
            return true;
        }
        let word = usize::try_from(block / WORD_BITS)
            .ok()
            .and_then(|index| self.present.get(index));
        word.is_none_or(|word| word >> (block % WORD_BITS) & 1 != 0)
    }

    /// The layer that all of an extent is in; `None` when it is in several.
    pub(super) fn layer_of(&self, extent: Extent) -> Option<Layer> {
        let (layer, run) = self.first_run(extent);
        (run.bytes == extent.bytes).then_some(layer)
    }

    /// The longest part at the start of an extent that one layer has. Empty only when the extent is.
    pub(super) fn first_run(&self, extent: Extent) -> (Layer, Extent) {
        let end = extent.offset.saturating_add(extent.bytes);
        let has = self.has(extent.offset / BLOCK_BYTES);
        let mut at = extent.offset;
        while at < end && self.has(at / BLOCK_BYTES) == has {
            at = (at / BLOCK_BYTES + 1).saturating_mul(BLOCK_BYTES);
        }
        let at = at.min(end);
        let (layer, stop) = if has {
            (Layer::Image, at)
        } else if extent.offset < self.base_bytes {
            (Layer::Base, at.min(self.base_bytes))
        } else {
            (Layer::Zeros, at)
        };
        let bytes = stop - extent.offset;
        (layer, Extent { bytes, ..extent })
    }

    /// The blocks that an extent touches without covering what the base has of them, and that the image does
    /// not have: the first and the last at most.
    pub(super) fn torn(&self, extent: Extent) -> impl Iterator<Item = u64> {
        let first = extent.offset / BLOCK_BYTES;
        let last = extent.end().saturating_sub(1) / BLOCK_BYTES;
        let second = (last != first).then_some(last);
        let torn = [Some(first), second].map(|block| {
            block.filter(|block| {
                extent.bytes > 0 && !self.has(*block) && !self.is_covered(*block, extent)
            })
        });
        torn.into_iter().flatten()
    }

    /// Whether an extent covers all that the base has of a block.
    fn is_covered(&self, block: u64, extent: Extent) -> bool {
        let start = block.saturating_mul(BLOCK_BYTES);
        let end = start.saturating_add(BLOCK_BYTES).min(self.base_bytes);
        extent.offset <= start && extent.end() >= end
    }

    /// An extent without its torn blocks.
    pub(super) fn untorn(&self, extent: Extent) -> Extent {
        let (mut start, mut end) = (extent.offset, extent.end());
        for block in self.torn(extent) {
            let block_start = block.saturating_mul(BLOCK_BYTES);
            if block_start <= start {
                start = block_start.saturating_add(BLOCK_BYTES);
            } else {
                end = block_start;
            }
        }
        Extent {
            offset: start,
            bytes: end.saturating_sub(start),
        }
    }

    /// What of a block has to be copied to the image before a part of it is written: whole sectors, which the
    /// image's size allows for.
    pub(super) fn rest_of(&self, block: u64) -> Extent {
        let offset = block.saturating_mul(BLOCK_BYTES);
        let left = self.base_bytes.saturating_sub(offset).min(BLOCK_BYTES);
        Extent {
            offset,
            bytes: left.next_multiple_of(super::config::SECTOR_BYTES),
        }
    }

    /// Reads from the base; zeros beyond its end.
    pub(super) fn read_base(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let there = self.base_bytes.saturating_sub(offset);
        let there = usize::try_from(there)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let (data, beyond) = buffer.split_at_mut(there);
        self.base.read_exact_at(data, offset)?;
        beyond.fill(0);
        Ok(())
    }

    /// The image has every block that an extent touches.
    pub(super) fn mark(&mut self, extent: Extent) {
        if extent.bytes == 0 {
            return;
        }
        let first = extent.offset / BLOCK_BYTES;
        for block in first..=(extent.end() - 1) / BLOCK_BYTES {
            let word = usize::try_from(block / WORD_BITS)
                .ok()
                .and_then(|index| self.present.get_mut(index));
            match word {
                Some(word) => *word |= 1 << (block % WORD_BITS),
                // Beyond the base.
                None => return,
            }
        }
    }
}

//! From a chain of images to a sparse raw disk.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::error::DiskError;
use super::format::{ConvertLimits, index};
use super::source::Layer;

/// What is read at once.
const BUFFER_BYTES: u64 = 1 << 20;

/// Zeros of this length, at a multiple of it, become a hole; the block size of most file systems.
const BLOCK_BYTES: usize = 4096;

/// Where a disk is written to. What is not written reads as zero.
pub trait WriteAt {
    /// Gives the disk its size.
    ///
    /// # Errors
    /// Those of the medium.
    fn set_size(&mut self, bytes: u64) -> io::Result<()>;

    /// Writes all bytes at `offset`.
    ///
    /// # Errors
    /// Those of the medium.
    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// A new, empty file.
impl WriteAt for File {
    fn set_size(&mut self, bytes: u64) -> io::Result<()> {
        self.set_len(bytes)
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }
}

/// An empty disk in memory.
impl WriteAt for Vec<u8> {
    fn set_size(&mut self, bytes: u64) -> io::Result<()> {
        self.resize(index(bytes), 0);
        Ok(())
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let start = index(offset);
        let place = start
            .checked_add(bytes.len())
            .and_then(|end| self.get_mut(start..end))
            .ok_or(io::ErrorKind::InvalidInput)?;
        place.copy_from_slice(bytes);
        Ok(())
    }
}

/// What a conversion did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Converted {
    /// Size of the disk in bytes.
    pub virtual_bytes: u64,
    /// Bytes that were written; all others are holes.
    pub written_bytes: u64,
}

/// Writes the disk that `layers` are, the topmost first, to `output`, which must be new and empty.
///
/// `progress` is called now and then with the bytes that are done and those of the disk. `output` may
/// have been written to in part when an error is returned; but nothing is written before all images'
/// tables were read and found to be sound.
///
/// # Errors
/// See [`DiskError`].
pub fn convert<W: WriteAt>(
    layers: Vec<Layer>,
    output: &mut W,
    limits: &ConvertLimits,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Converted, DiskError> {
    let mut chain = Chain::open(layers, limits)?;
    let total = chain.virtual_bytes();
    let failed = |offset| {
        move |source| DiskError::Write {
            offset,
            total,
            source,
        }
    };
    output.set_size(total).map_err(failed(0))?;
    let mut buffer = vec![0; index(BUFFER_BYTES)];
    let (mut at, mut written_bytes) = (0, 0);
    while at < total {
        progress(at, total);
        // Buffers begin at multiples of their size, so blocks at multiples of theirs.
        let wanted = (BUFFER_BYTES - at % BUFFER_BYTES).min(total - at);
        let hole = chain.hole(at, total - at)?;
        if hole >= wanted {
            at += hole;
            continue;
        }
        let now = buffer.get_mut(..index(wanted)).unwrap_or_default();
        chain.read(at, now)?;
        let lead = index(at % BLOCK_BYTES as u64);
        for (offset, bytes) in data_runs(now, lead) {
            let offset = at + offset as u64;
            output.write_all_at(bytes, offset).map_err(failed(offset))?;
            written_bytes += bytes.len() as u64;
        }
        at += wanted;
    }
    progress(total, total);
    Ok(Converted {
        virtual_bytes: total,
        written_bytes,
    })
}

/// The runs of blocks that are not zero, with their offsets in `bytes`, of which the first lies `lead`
/// bytes behind a block's start, at a multiple of 4 KiB.
#[must_use]
pub fn data_runs(bytes: &[u8], lead: usize) -> Vec<(usize, &[u8])> {
    const ZERO: [u8; BLOCK_BYTES] = [0; BLOCK_BYTES];
    let mut runs: Vec<(usize, usize)> = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let end = (at + BLOCK_BYTES - (at + lead) % BLOCK_BYTES).min(bytes.len());
        let block = bytes.get(at..end).unwrap_or_default();
        if Some(block) != ZERO.get(..block.len()) {
            match runs.last_mut() {
                Some(run) if run.1 == at => run.1 = end,
                _ => runs.push((at, end)),
            }
        }
        at = end;
    }
    runs.into_iter()
        .filter_map(|(from, to)| bytes.get(from..to).map(|run| (from, run)))
        .collect()
}

//! Disk images: raw and qcow2 in, raw bytes out.
//!
//! Every byte of an image was written by somebody else, and so was every name in it. So nothing is
//! ever opened here: a chain of images is what the caller hands over, and what an image says about
//! files of the host is only ever shown. All offsets are checked against the file before they are
//! used, all tables are read before a byte is written, no cluster is used twice, and the output is as
//! large as the limits say at most. Source: QEMU's `docs/interop/qcow2.txt`.

mod chain;
mod convert;
mod error;
mod info;
mod probe;
mod qcow2;
mod source;

use serde::{Deserialize, Serialize};

pub use convert::{Converted, WriteAt, convert};
pub use error::DiskError;
pub use info::{BackingInfo, DiskInfo, Qcow2Info, disk_info};
pub use source::{Layer, ReadAt};

/// Most images in one chain.
pub const MAX_CHAIN: usize = 64;

/// A format of disk images that can be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum DiskFormat {
    /// The disk's bytes as they are.
    Raw,
    /// QEMU's copy-on-write format, versions 2 and 3.
    Qcow2,
}

impl DiskFormat {
    /// The name that `qemu-img` uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

impl std::fmt::Display for DiskFormat {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.as_str())
    }
}

/// Bounds of one conversion.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct ConvertLimits {
    /// Largest disk that is written, in bytes, holes counted.
    pub output_bytes: u64,
    /// Most memory for the map of an image's clusters, in bytes.
    pub map_bytes: u64,
}

impl Default for ConvertLimits {
    /// A disk of 1 TiB; files of 16 TiB with clusters of 64 KiB, of 128 GiB with clusters of 512 bytes.
    fn default() -> Self {
        Self {
            output_bytes: 1 << 40,
            map_bytes: 64 << 20,
        }
    }
}

/// A name that an image holds, fit to be shown: without control characters.
fn shown(name: &[u8]) -> String {
    String::from_utf8_lossy(name)
        .chars()
        .flat_map(|letter| {
            let plain = !letter.is_control() && letter != char::REPLACEMENT_CHARACTER;
            let escaped = (!plain).then(|| letter.escape_default());
            escaped.into_iter().flatten().chain(plain.then_some(letter))
        })
        .collect()
}

/// What fits no `usize` is larger than any buffer.
fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A number of 8 bytes, the highest first, at `at`; 0 beyond the end.
fn be64(bytes: &[u8], at: usize) -> u64 {
    let word = at.checked_add(8).and_then(|end| bytes.get(at..end));
    word.and_then(|word| word.try_into().ok())
        .map_or(0, u64::from_be_bytes)
}

/// A number of 4 bytes, the highest first, at `at`; 0 beyond the end.
fn be32(bytes: &[u8], at: usize) -> u32 {
    let word = at.checked_add(4).and_then(|end| bytes.get(at..end));
    word.and_then(|word| word.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

#[cfg(test)]
mod tests;

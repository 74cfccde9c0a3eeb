//! Formats of disks, bounds, and reading their numbers.

use serde::{Deserialize, Serialize};

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
pub(super) fn shown(name: &[u8]) -> String {
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
pub(super) fn index(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// A number of 8 bytes, the highest first, at `at`; 0 beyond the end.
pub(super) fn be64(bytes: &[u8], at: usize) -> u64 {
    let word = at.checked_add(8).and_then(|end| bytes.get(at..end));
    word.and_then(|word| word.try_into().ok())
        .map_or(0, u64::from_be_bytes)
}

/// A number of 4 bytes, the highest first, at `at`; 0 beyond the end.
pub(super) fn be32(bytes: &[u8], at: usize) -> u32 {
    let word = at.checked_add(4).and_then(|end| bytes.get(at..end));
    word.and_then(|word| word.try_into().ok())
        .map_or(0, u32::from_be_bytes)
}

/// The backing file that an image names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackingInfo {
    /// Its name as the image holds it, without control characters. It is shown, never opened.
    pub name: String,
    /// Its format, when the image names it.
    pub format: Option<String>,
}

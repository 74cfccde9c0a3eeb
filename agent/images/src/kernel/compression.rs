//! Compression formats of kernels.

use std::fmt;

/// Compression formats that can be unpacked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {
    /// RFC 1952.
    Gzip,
    /// The .xz container.
    Xz,
    /// RFC 8878.
    Zstd,
    /// The LZ4 "legacy" frame, the only one that Linux uses for itself.
    Lz4Legacy,
}

impl fmt::Display for Compression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gzip => "gzip",
            Self::Xz => "xz",
            Self::Zstd => "zstd",
            Self::Lz4Legacy => "LZ4",
        })
    }
}

//! What can be wrong with a packed kernel.

use std::io;

use super::compression::Compression;

/// Why a kernel could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackKernelError {
    /// The file is neither ELF nor bzImage nor compressed in a known way.
    #[error("this is no kernel: neither ELF nor bzImage nor gzip, xz, zstd or LZ4 data")]
    NotAKernel,
    /// The file, or its payload, is compressed in a way that is recognised but not supported.
    #[error(
        "the kernel is compressed with {0}, which is not supported; gzip, xz, zstd and LZ4 are"
    )]
    UnsupportedCompression(&'static str),
    /// A bzImage older than boot protocol 2.08 does not say where its payload is.
    #[error("the bzImage speaks boot protocol {major}.{minor}; unpacking needs 2.08 or newer")]
    OldProtocol {
        /// Major number of the boot protocol.
        major: u8,
        /// Minor number of the boot protocol.
        minor: u8,
    },
    /// The setup header points outside of the file.
    #[error("the bzImage's payload ({length} bytes at {offset}) lies outside of its {file} bytes")]
    PayloadOutside {
        /// First byte of the payload.
        offset: u64,
        /// Length of the payload in bytes.
        length: u64,
        /// Length of the file in bytes.
        file: u64,
    },
    /// The compressed data cannot be decoded.
    #[error("the kernel's {0} data is damaged")]
    Damaged(Compression, #[source] io::Error),
    /// The payload unpacked to another size than it announces.
    #[error("the kernel unpacked to {actual} bytes but announces {announced}")]
    WrongSize {
        /// Size in the payload's last four bytes.
        announced: u64,
        /// Bytes that came out.
        actual: u64,
    },
    /// What was unpacked is no ELF.
    #[error("what the kernel unpacks to is not an ELF file")]
    NotElfInside,
    /// The input is larger than the limit.
    #[error("the kernel file has {size} bytes; {limit} are allowed")]
    InputTooLarge {
        /// Size of the input in bytes.
        size: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The output would be larger than the limit.
    #[error("the kernel unpacks to more than {0} bytes, which are allowed")]
    OutputTooLarge(u64),
    /// Reading the input or writing the output failed.
    #[error("the kernel cannot be read or written")]
    Io(#[from] io::Error),
}

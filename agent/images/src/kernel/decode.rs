//! Compression formats of kernels, recognised by their first bytes and decoded as streams.

use std::io::{self, BufReader, Read, Write};

use super::compression::Compression;
use super::error::UnpackKernelError;
use super::lz4_legacy;

/// Memory that an xz stream may ask for: `xz -9` needs 65 MiB, the kernel's own settings 33 MiB.
const XZ_MEMORY_BYTES: u64 = 96 << 20;

/// Largest zstd window: the kernel is packed with `zstd -22 --ultra`, which is 128 MiB.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Tells a format by its magic number.
pub(super) fn by_magic(head: &[u8]) -> Result<Compression, UnpackKernelError> {
    match head {
        [0x1f, 0x8b, ..] => Ok(Compression::Gzip),
        [0xfd, b'7', b'z', b'X', b'Z', 0x00, ..] => Ok(Compression::Xz),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Ok(Compression::Zstd),
        [0x02, 0x21, 0x4c, 0x18, ..] => Ok(Compression::Lz4Legacy),
        [0x04, 0x22, 0x4d, 0x18, ..] => Err(UnpackKernelError::UnsupportedCompression(
            "the LZ4 frame format",
        )),
        [b'B', b'Z', b'h', ..] => Err(UnpackKernelError::UnsupportedCompression("bzip2")),
        [0x89, b'L', b'Z', b'O', ..] => Err(UnpackKernelError::UnsupportedCompression("LZO")),
        [0x5d, 0x00, 0x00, ..] => Err(UnpackKernelError::UnsupportedCompression("LZMA")),
        _ => Err(UnpackKernelError::NotAKernel),
    }
}

/// Decodes one stream of `compression`; what follows its end is not looked at.
pub(super) fn decode<R: Read, W: Write>(
    compression: Compression,
    data: R,
    output: &mut W,
) -> io::Result<()> {
    let data = BufReader::with_capacity(64 << 10, data);
    match compression {
        Compression::Gzip => copy(flate2::bufread::GzDecoder::new(data), output),
        Compression::Xz => {
            let stream = liblzma::stream::Stream::new_stream_decoder(XZ_MEMORY_BYTES, 0)?;
            copy(
                liblzma::bufread::XzDecoder::new_stream(data, stream),
                output,
            )
        }
        Compression::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(data)?.single_frame();
            decoder.window_log_max(ZSTD_WINDOW_LOG)?;
            copy(decoder, output)
        }
        Compression::Lz4Legacy => lz4_legacy::decode(data, output),
    }
}

fn copy<R: Read, W: Write>(mut decoder: R, output: &mut W) -> io::Result<()> {
    io::copy(&mut decoder, output).map(drop)
}

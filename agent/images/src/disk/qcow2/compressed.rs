//! Compressed clusters.

use std::io;

use flate2::{Decompress, FlushDecompress, Status};
use serde::{Deserialize, Serialize};
use zstd::stream::raw::{DParameter, Decoder as Zstd, InBuffer, Operation, OutBuffer};

use super::super::source::Source;
use crate::disk::error::DiskError;
use crate::disk::format::index;

/// How an image's compressed clusters are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Compression {
    /// Deflate without a header, as QEMU's `zlib` writes it.
    Zlib,
    /// Zstandard frames.
    Zstd,
}

impl Compression {
    /// The name that `qemu-img` uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }
}

/// Unpacks clusters and keeps the last: images above may ask for it in pieces.
pub(super) struct Decoder {
    compression: Compression,
    last: Option<(u64, Vec<u8>)>,
}

impl Decoder {
    pub(super) fn new(compression: Compression) -> Self {
        Self {
            compression,
            last: None,
        }
    }

    /// The plain bytes of the disk's cluster at `start`, from `offset` and `length` in the file. What is
    /// compressed may be shorter than `length`, which counts whole sectors; so may the file.
    pub(super) fn cluster(
        &mut self,
        source: &Source,
        (offset, length): (u64, u64),
        (start, cluster_bytes): (u64, u64),
    ) -> Result<&[u8], DiskError> {
        if self.last.as_ref().map(|(known, _)| *known) != Some(start) {
            let what = format_args!("the compressed cluster of the disk's byte {start:#x}");
            source.holds(what, offset, 1)?;
            let packed = source.read_up_to(offset, length)?;
            let mut plain = vec![0; index(cluster_bytes)];
            let done = match self.compression {
                Compression::Zlib => inflate(&packed, &mut plain),
                Compression::Zstd => unzstd(&packed, &mut plain),
            };
            done.map_err(|why| {
                let name = self.compression.as_str();
                source.damaged(format_args!(
                    "the disk's cluster at {start:#x} ({length} bytes at byte {offset} of the file) is no sound {name} data: {why}"
                ))
            })?;
            self.last = Some((start, plain));
        }
        Ok(self.last.as_ref().map_or(&[], |(_, plain)| plain))
    }
}

/// Fills `plain`; what would come after it is not looked at.
fn inflate(packed: &[u8], plain: &mut [u8]) -> io::Result<()> {
    let mut decoder = Decompress::new(false);
    let status = decoder
        .decompress(packed, plain, FlushDecompress::Finish)
        .map_err(io::Error::other)?;
    if decoder.total_out() == plain.len() as u64 {
        return Ok(());
    }
    Err(too_short(
        decoder.total_out(),
        plain.len(),
        status != Status::StreamEnd,
    ))
}

/// Largest zstd window, as a power of two: 8 MiB, four times the largest cluster.
const ZSTD_WINDOW_LOG: u32 = 23;

/// Fills `plain` from as many frames as it takes.
fn unzstd(packed: &[u8], plain: &mut [u8]) -> io::Result<()> {
    let wanted = plain.len();
    let mut decoder = Zstd::new()?;
    decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG))?;
    let mut from = InBuffer::around(packed);
    let mut to = OutBuffer::around(plain);
    while to.pos() < wanted {
        let before = (from.pos(), to.pos());
        decoder.run(&mut from, &mut to)?;
        if (from.pos(), to.pos()) == before {
            return Err(too_short(to.pos() as u64, wanted, true));
        }
    }
    Ok(())
}

fn too_short(got: u64, wanted: usize, is_cut: bool) -> io::Error {
    let how = if is_cut { "is cut" } else { "ends" };
    io::Error::other(format!("it {how} after {got} of {wanted} bytes"))
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_zstd_window_is_bounded() {
        for (log, is_fine) in [(ZSTD_WINDOW_LOG, true), (ZSTD_WINDOW_LOG + 1, false)] {
            // Without the size of the contents the frame has the window that was asked for.
            let mut encoder = zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
            encoder.window_log(log).unwrap();
            encoder.write_all(b"data").unwrap();
            let packed = encoder.finish().unwrap();
            let mut plain = [0; 4];
            assert_eq!(unzstd(&packed, &mut plain).is_ok(), is_fine, "{log}");
            assert_eq!(&plain == b"data", is_fine);
        }
    }
}

//! Configuration space of a disk (`struct virtio_blk_config`).

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

/// Unit of `capacity` and of request offsets.
pub(super) const SECTOR_BYTES: u64 = 512;

const SEG_MAX: u64 = 1 << 2;
const RO: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
/// `VIRTIO_BLK_F_FLUSH`.
pub(super) const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;

/// Data segments of a request: a ring of 256 without header and status.
const MAX_SEGMENTS: u32 = 254;

/// Features offered.
pub(super) fn features(read_only: bool) -> u64 {
    SEG_MAX | BLK_SIZE | FLUSH | TOPOLOGY | if read_only { RO } else { 0 }
}

/// Size and preferred access of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    /// Sectors of 512 bytes.
    pub(super) sectors: u64,
    /// Logical blocks of 512 bytes in one that the image writes without reading first, as power of
    /// two.
    physical_exponent: u8,
}

impl Geometry {
    /// Looks at an image.
    pub(super) fn of(image: &File) -> io::Result<Self> {
        // The end of a block device is found like that of a file; its metadata has no size.
        let bytes = (&*image).seek(SeekFrom::End(0))?;
        let block = image.metadata()?.blksize().clamp(SECTOR_BYTES, 4096);
        Ok(Self {
            sectors: bytes / SECTOR_BYTES,
            physical_exponent: u8::try_from((block / SECTOR_BYTES).ilog2()).unwrap_or(0),
        })
    }

    /// The structure as the driver reads it, up to `opt_io_size`.
    pub(super) fn image(self) -> Vec<u8> {
        let mut image = self.sectors.to_le_bytes().to_vec();
        image.extend_from_slice(&[0; 4]); // size_max: not offered
        image.extend_from_slice(&MAX_SEGMENTS.to_le_bytes());
        image.extend_from_slice(&[0; 4]); // geometry: not offered
        image.extend_from_slice(&512u32.to_le_bytes());
        // No alignment offset; least and best size of I/O are left to the driver.
        image.extend_from_slice(&[self.physical_exponent, 0]);
        image.extend_from_slice(&1u16.to_le_bytes());
        image.extend_from_slice(&0u32.to_le_bytes());
        image
    }
}

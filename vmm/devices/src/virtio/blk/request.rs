//! One request: header, data, status (VIRTIO 1.2, 5.2.6).

use super::config::{Geometry, MAX_DISCARD_BYTES, MAX_ZEROES_BYTES, SECTOR_BYTES};
use super::limits::Cost;
use crate::virtio::queue::{Buffer, Chain, copy_in, copy_out, window};
use vmm_memory::GuestRam;

const HEADER_BYTES: u64 = 16;
/// `struct virtio_blk_discard_write_zeroes`.
const SEGMENT_BYTES: u64 = 16;

const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;
const TYPE_DISCARD: u32 = 11;
const TYPE_WRITE_ZEROES: u32 = 13;

/// `VIRTIO_BLK_WRITE_ZEROES_FLAG_UNMAP`.
const FLAG_UNMAP: u32 = 1;

/// Most data of one request. A chain can name 4 GiB (the same page a thousand times over), which
/// would hold the device for seconds; drivers stay far below.
pub(super) const MAX_REQUEST_BYTES: u64 = 64 << 20;

/// A status byte that is not "OK".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// `VIRTIO_BLK_S_IOERR`
    IoError,
    /// `VIRTIO_BLK_S_UNSUPP`
    Unsupported,
}

impl Refusal {
    const fn status(self) -> u8 {
        match self {
            Self::IoError => 1,
            Self::Unsupported => 2,
        }
    }
}

/// A part of the image that is within the disk, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) offset: u64,
    pub(super) bytes: u64,
}

impl Extent {
    /// First byte behind the extent.
    pub(super) fn end(self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }

    /// What is left of it after its first `bytes`.
    pub(super) fn after(self, bytes: u64) -> Self {
        Self {
            offset: self.offset.saturating_add(bytes),
            bytes: self.bytes.saturating_sub(bytes),
        }
    }
}

/// What the driver wants, copied out of guest memory and found to be possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Read(Extent),
    Write(Extent),
    Flush,
    GetId,
    Discard(Extent),
    WriteZeroes { extent: Extent, unmap: bool },
}

/// What requests are held against.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) geometry: Geometry,
    pub(super) sectors: u64,
}

impl Request {
    /// Copies the request out of guest memory and checks it.
    pub(super) fn parse(memory: &GuestRam, chain: &Chain, shape: &Shape) -> Result<Self, Refusal> {
        let header: [u8; 16] = copied(memory, chain, 0)?;
        let [t0, t1, t2, t3, _, _, _, _, sector @ ..] = header;
        let sector = u64::from_le_bytes(sector);
        match u32::from_le_bytes([t0, t1, t2, t3]) {
            TYPE_IN => Ok(Self::Read(shape.transfer(sector, data_in(chain))?)),
            TYPE_OUT => {
                let extent = shape.transfer(sector, data_out(chain))?;
                shape.check_writable()?;
                Ok(Self::Write(extent))
            }
            TYPE_FLUSH => Ok(Self::Flush),
            TYPE_GET_ID => Ok(Self::GetId),
            TYPE_DISCARD if shape.geometry.discard => {
                let segment = Segment::parse(memory, chain, shape)?;
                if segment.flags != 0 {
                    return Err(Refusal::Unsupported);
                }
                let extent =
                    shape.extent(segment.sector, segment.bytes(), MAX_DISCARD_BYTES.into())?;
                Ok(Self::Discard(extent))
            }
            TYPE_WRITE_ZEROES if !shape.geometry.read_only => {
                let segment = Segment::parse(memory, chain, shape)?;
                if segment.flags & !FLAG_UNMAP != 0 {
                    return Err(Refusal::Unsupported);
                }
                let extent = shape.extent(segment.sector, segment.bytes(), MAX_ZEROES_BYTES)?;
                // Whether space comes back is the disk's to say (5.2.6.2).
                let unmap = segment.flags & FLAG_UNMAP != 0 && shape.geometry.discard;
                Ok(Self::WriteZeroes { extent, unmap })
            }
            _ => Err(Refusal::Unsupported),
        }
    }

    /// What it costs by the limits.
    pub(super) fn cost(self) -> Cost {
        let (is_read, bytes) = match self {
            Self::Read(extent) => (true, extent.bytes),
            Self::Write(extent) | Self::WriteZeroes { extent, .. } => (false, extent.bytes),
            Self::Flush | Self::GetId | Self::Discard(_) => (false, 0),
        };
        Cost { is_read, bytes }
    }

    /// Whether there is nothing to do.
    pub(super) fn is_nothing(self) -> bool {
        match self {
            Self::Read(extent)
            | Self::Write(extent)
            | Self::Discard(extent)
            | Self::WriteZeroes { extent, .. } => extent.bytes == 0,
            Self::Flush | Self::GetId => false,
        }
    }

    /// Whether it brings data to guest memory.
    pub(super) fn is_read(self) -> bool {
        matches!(self, Self::Read(_) | Self::GetId)
    }
}

/// The one segment of a discard or write-zeroes.
struct Segment {
    sector: u64,
    sectors: u32,
    flags: u32,
}

impl Segment {
    fn parse(memory: &GuestRam, chain: &Chain, shape: &Shape) -> Result<Self, Refusal> {
        shape.check_writable()?;
        if data_out(chain) != SEGMENT_BYTES {
            return Err(Refusal::IoError);
        }
        let segment: [u8; 16] = copied(memory, chain, HEADER_BYTES)?;
        let [a, b, c, d, e, f, g, h, n0, n1, n2, n3, flags @ ..] = segment;
        Ok(Self {
            sector: u64::from_le_bytes([a, b, c, d, e, f, g, h]),
            sectors: u32::from_le_bytes([n0, n1, n2, n3]),
            flags: u32::from_le_bytes(flags),
        })
    }

    fn bytes(&self) -> u64 {
        u64::from(self.sectors) * SECTOR_BYTES
    }
}

impl Shape {
    fn check_writable(&self) -> Result<(), Refusal> {
        if self.geometry.read_only {
            Err(Refusal::IoError)
        } else {
            Ok(())
        }
    }

    fn transfer(&self, sector: u64, bytes: u64) -> Result<Extent, Refusal> {
        self.extent(sector, bytes, MAX_REQUEST_BYTES)
    }

    /// `bytes` at `sector`, if they all are on the disk and whole blocks.
    fn extent(&self, sector: u64, bytes: u64, most: u64) -> Result<Extent, Refusal> {
        let end = sector.checked_add(bytes / SECTOR_BYTES);
        let fits = end.is_some_and(|end| end <= self.sectors);
        let offset = sector.checked_mul(SECTOR_BYTES).ok_or(Refusal::IoError)?;
        let block = u64::from(self.geometry.logical_block_bytes);
        let whole = bytes.is_multiple_of(block) && offset.is_multiple_of(block);
        if fits && whole && bytes <= most {
            Ok(Extent { offset, bytes })
        } else {
            Err(Refusal::IoError)
        }
    }
}

/// The chain's buffers that the image is read to or written from.
pub(super) fn data<'a>(request: Request, chain: &'a Chain) -> impl Iterator<Item = Buffer> + 'a {
    let (buffers, skip, bytes) = match request {
        Request::Read(extent) => (&chain.writable, 0, extent.bytes),
        Request::Write(extent) => (&chain.readable, HEADER_BYTES, extent.bytes),
        _ => (&chain.readable, 0, 0),
    };
    window(buffers, skip, bytes)
}

/// Answers `VIRTIO_BLK_T_GET_ID`.
pub(super) fn give_id(
    memory: &GuestRam,
    chain: &Chain,
    id: &[u8; ID_BYTES],
) -> Result<(), Refusal> {
    let bytes = data_in(chain).min(ID_BYTES as u64);
    match copy_in(memory, window(&chain.writable, 0, bytes), id) {
        Ok(copied) if copied as u64 == bytes => Ok(()),
        _ => Err(Refusal::IoError),
    }
}

/// Writes the status, the last writable byte. Returns the length for the used ring: nothing at all
/// was written when a chain has no room for a status.
pub(super) fn finish(memory: &GuestRam, chain: &Chain, outcome: Result<(), Refusal>) -> u32 {
    let status = outcome.map_or_else(Refusal::status, |()| 0);
    match copy_in(memory, status_byte(chain), &[status]) {
        // After an error nothing but the status is vouched for.
        Ok(1) if outcome.is_ok() => u32::try_from(chain.writable_bytes()).unwrap_or(u32::MAX),
        Ok(1) => 1,
        _ => 0,
    }
}

/// 16 bytes of what the driver wrote, from byte `skip` on.
fn copied(memory: &GuestRam, chain: &Chain, skip: u64) -> Result<[u8; 16], Refusal> {
    let mut bytes = [0; 16];
    let buffers = window(&chain.readable, skip, 16);
    match copy_out(memory, buffers, &mut bytes) {
        Ok(16) => Ok(bytes),
        _ => Err(Refusal::IoError),
    }
}

fn status_byte(chain: &Chain) -> impl Iterator<Item = Buffer> + '_ {
    let last = chain.writable_bytes().saturating_sub(1);
    window(&chain.writable, last, 1)
}

/// Writable bytes before the status.
fn data_in(chain: &Chain) -> u64 {
    chain.writable_bytes().saturating_sub(1)
}

/// Readable bytes after the header.
fn data_out(chain: &Chain) -> u64 {
    chain.readable_bytes().saturating_sub(HEADER_BYTES)
}

/// Length of the answer to `VIRTIO_BLK_T_GET_ID`.
pub const ID_BYTES: usize = 20;

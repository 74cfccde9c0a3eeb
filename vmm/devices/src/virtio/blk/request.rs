//! One request: header, data, status (VIRTIO 1.2, 5.2.6).

use std::io;

use vmm_sys::guest_io;

use super::config::SECTOR_BYTES;
use super::{Disk, ID_BYTES};
use crate::GuestRam;
use crate::virtio::queue::{Buffer, Chain, Served, copy_in, copy_out, slices_of, window};

const HEADER_BYTES: u64 = 16;

const TYPE_IN: u32 = 0;
const TYPE_OUT: u32 = 1;
const TYPE_FLUSH: u32 = 4;
const TYPE_GET_ID: u32 = 8;

/// Most data of one request. A chain can name 4 GiB (the same page a thousand times over), which
/// would hold the device for seconds; drivers stay far below.
const MAX_REQUEST_BYTES: u64 = 64 << 20;

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

impl From<io::Error> for Refusal {
    fn from(_: io::Error) -> Self {
        // What went wrong is the host's business; the guest has one word for all of it.
        Self::IoError
    }
}

/// What the driver wants, copied out of guest memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Read { sector: u64 },
    Write { sector: u64 },
    Flush,
    GetId,
}

impl Request {
    pub(super) fn parse(memory: &GuestRam, chain: &Chain) -> Result<Self, Refusal> {
        let mut header = [0; 16];
        let buffers = window(&chain.readable, 0, HEADER_BYTES);
        if copy_out(memory, buffers, &mut header)? < header.len() {
            return Err(Refusal::IoError);
        }
        let [t0, t1, t2, t3, _, _, _, _, sector @ ..] = header;
        let sector = u64::from_le_bytes(sector);
        match u32::from_le_bytes([t0, t1, t2, t3]) {
            TYPE_IN => Ok(Self::Read { sector }),
            TYPE_OUT => Ok(Self::Write { sector }),
            TYPE_FLUSH => Ok(Self::Flush),
            TYPE_GET_ID => Ok(Self::GetId),
            _ => Err(Refusal::Unsupported),
        }
    }

    /// Carries the request out. Returns the bytes of data moved.
    pub(super) fn execute(
        self,
        disk: &Disk,
        memory: &GuestRam,
        chain: &Chain,
    ) -> Result<u64, Refusal> {
        match self {
            Self::Read { sector } => {
                let bytes = data_in(chain);
                let offset = place(disk, sector, bytes)?;
                let slices = slices_of(memory, window(&chain.writable, 0, bytes))?;
                let done = guest_io::read_at(&disk.image, &slices, offset)?;
                complete(done, bytes)
            }
            Self::Write { sector } => {
                let bytes = chain.readable_bytes().saturating_sub(HEADER_BYTES);
                let offset = place(disk, sector, bytes)?;
                if disk.read_only {
                    return Err(Refusal::IoError);
                }
                let slices = slices_of(memory, window(&chain.readable, HEADER_BYTES, bytes))?;
                let done = guest_io::write_at(&disk.image, &slices, offset)?;
                if disk.write_through {
                    disk.image.sync_data()?;
                }
                complete(done, bytes)
            }
            Self::Flush => {
                if !disk.read_only {
                    disk.image.sync_data()?;
                }
                Ok(0)
            }
            Self::GetId => {
                let bytes = data_in(chain).min(ID_BYTES as u64);
                let copied = copy_in(memory, window(&chain.writable, 0, bytes), &disk.id)?;
                complete(copied, bytes)
            }
        }
    }
}

/// Writes the status, the last writable byte.
pub(super) fn finish(memory: &GuestRam, chain: &Chain, outcome: Result<u64, Refusal>) -> Served {
    let moved = outcome.unwrap_or(0);
    let status = outcome.map_or_else(Refusal::status, |_| 0);
    let written = match copy_in(memory, status_byte(chain), &[status]) {
        // After an error nothing but the status is vouched for.
        Ok(1) if outcome.is_ok() => u32::try_from(chain.writable_bytes()).unwrap_or(u32::MAX),
        Ok(1) => 1,
        _ => 0,
    };
    Served { written, moved }
}

fn status_byte(chain: &Chain) -> impl Iterator<Item = Buffer> + '_ {
    let last = chain.writable_bytes().saturating_sub(1);
    window(&chain.writable, last, 1)
}

/// Writable bytes before the status.
fn data_in(chain: &Chain) -> u64 {
    chain.writable_bytes().saturating_sub(1)
}

/// Where in the image `bytes` at `sector` are, if they all are.
fn place(disk: &Disk, sector: u64, bytes: u64) -> Result<u64, Refusal> {
    let end = sector.checked_add(bytes / SECTOR_BYTES);
    let fits = end.is_some_and(|end| end <= disk.geometry.sectors);
    if !fits || !bytes.is_multiple_of(SECTOR_BYTES) || bytes > MAX_REQUEST_BYTES {
        return Err(Refusal::IoError);
    }
    sector.checked_mul(SECTOR_BYTES).ok_or(Refusal::IoError)
}

/// All of the data or an error: an image that became shorter gives no data.
fn complete(done: usize, bytes: u64) -> Result<u64, Refusal> {
    if done as u64 == bytes {
        Ok(bytes)
    } else {
        Err(Refusal::IoError)
    }
}

//! What a disk is configured with, and its configuration space (`struct virtio_blk_config`).

use super::error_policy::ErrorPolicies;
use super::limits::DiskLimits;

/// Unit of `capacity` and of request offsets.
pub(super) const SECTOR_BYTES: u64 = 512;

const SEG_MAX: u64 = 1 << 2;
const RO: u64 = 1 << 5;
const BLK_SIZE: u64 = 1 << 6;
/// `VIRTIO_BLK_F_FLUSH`.
pub(super) const FLUSH: u64 = 1 << 9;
const TOPOLOGY: u64 = 1 << 10;
const MQ: u64 = 1 << 12;
const DISCARD: u64 = 1 << 13;
const WRITE_ZEROES: u64 = 1 << 14;

/// Data segments of a request: a ring of 256 without header and status.
const MAX_SEGMENTS: u32 = 254;

/// Most bytes of one discard. Freeing space is quick, but not free of cost.
pub const MAX_DISCARD_BYTES: u32 = 1 << 30;
/// Most bytes of one write-zeroes: where the host has no better way they are written.
pub(super) const MAX_ZEROES_BYTES: u64 = 32 << 20;

/// Most queues of a disk.
pub const MAX_QUEUES: u16 = 64;
/// Largest logical and physical block size.
pub const MAX_BLOCK_BYTES: u32 = 64 << 10;

/// Caches of the host that a write passes, and when it is synced.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CacheMode {
    /// The host's page cache is the disk's write cache.
    #[default]
    WriteBack,
    /// As `WriteBack`, but a write is synced before it is answered: the guest sees a disk without write
    /// cache.
    WriteThrough,
    /// Past the host's page cache (the image is open with `O_DIRECT`). What is left of a write cache
    /// is the host disk's own.
    Direct,
}

/// Who waits for the host's disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IoEngine {
    /// io_uring where the host has it, else as `Synchronous`.
    #[default]
    Automatic,
    /// The thread that serves the device, request by request.
    Synchronous,
}

/// How a disk is to be.
#[derive(Clone, Debug)]
pub struct BlkConfig {
    /// Writes are refused.
    pub read_only: bool,
    /// Answer to `VIRTIO_BLK_T_GET_ID`, at most [`ID_BYTES`](super::ID_BYTES) long.
    pub serial: String,
    /// How the image is open: checked.
    pub cache: CacheMode,
    /// Who waits for the host's disk.
    pub engine: IoEngine,
    /// Queues, 1 to [`MAX_QUEUES`].
    pub queues: u16,
    /// Least unit of requests, in bytes; 0 for what the image wants (512 unless it is open with
    /// `O_DIRECT` on a disk of larger blocks).
    pub logical_block_bytes: u32,
    /// Unit that the image writes without reading first, in bytes; 0 to ask the image.
    pub physical_block_bytes: u32,
    /// The guest may give space back to the host.
    pub discard: bool,
    /// Unit in which space is given back, in bytes: a multiple of the logical block size, at most
    /// [`MAX_DISCARD_BYTES`]; 0 for the physical block size.
    pub discard_granularity_bytes: u32,
    /// Bytes and requests a second.
    pub limits: DiskLimits,
    /// What the guest learns of the host's failures.
    pub errors: ErrorPolicies,
}

impl Default for BlkConfig {
    fn default() -> Self {
        Self {
            read_only: false,
            serial: String::new(),
            cache: CacheMode::default(),
            engine: IoEngine::default(),
            queues: 1,
            logical_block_bytes: 0,
            physical_block_bytes: 0,
            discard: false,
            discard_granularity_bytes: 0,
            limits: DiskLimits::default(),
            errors: ErrorPolicies::default(),
        }
    }
}

/// What features and configuration space show the driver, less the capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Geometry {
    pub(super) logical_block_bytes: u32,
    pub(super) physical_block_bytes: u32,
    pub(super) queues: u16,
    pub(super) read_only: bool,
    pub(super) discard: bool,
    pub(super) discard_granularity_bytes: u32,
    /// The guest sees a disk without write cache.
    pub(super) durable: bool,
}

impl Geometry {
    /// Features offered.
    pub(super) fn features(self) -> u64 {
        let when = |wanted: bool, feature| if wanted { feature } else { 0 };
        SEG_MAX
            | BLK_SIZE
            | TOPOLOGY
            | when(self.read_only, RO)
            | when(!self.durable, FLUSH)
            | when(self.queues > 1, MQ)
            | when(self.discard, DISCARD)
            | when(!self.read_only, WRITE_ZEROES)
    }

    /// The structure as the driver reads it, up to `write_zeroes_may_unmap`.
    pub(super) fn image(self, sectors: u64) -> Vec<u8> {
        let blocks = |bytes: u64| u32::try_from(bytes / SECTOR_BYTES).unwrap_or(u32::MAX);
        let exponent = (self.physical_block_bytes / self.logical_block_bytes).ilog2();
        let minimum = self.physical_block_bytes / self.logical_block_bytes;
        // What is not offered reads as zero.
        let offered = |wanted: bool, value: u32| if wanted { value } else { 0 };
        let zeroes = !self.read_only;

        let mut image = sectors.to_le_bytes().to_vec();
        image.extend_from_slice(&[0; 4]); // size_max: not offered
        image.extend_from_slice(&MAX_SEGMENTS.to_le_bytes());
        image.extend_from_slice(&[0; 4]); // geometry: not offered
        image.extend_from_slice(&self.logical_block_bytes.to_le_bytes());
        // No alignment offset; the best size of I/O is left to the driver.
        image.extend_from_slice(&[u8::try_from(exponent).unwrap_or(0), 0]);
        image.extend_from_slice(&u16::try_from(minimum).unwrap_or(0).to_le_bytes());
        image.extend_from_slice(&[0; 4]);
        image.extend_from_slice(&[0; 2]); // writeback: not offered
        image.extend_from_slice(&self.queues.to_le_bytes());
        for value in [
            // One segment a request.
            offered(self.discard, blocks(u64::from(MAX_DISCARD_BYTES))),
            offered(self.discard, 1),
            offered(
                self.discard,
                blocks(u64::from(self.discard_granularity_bytes)),
            ),
            offered(zeroes, blocks(MAX_ZEROES_BYTES)),
            offered(zeroes, 1),
        ] {
            image.extend_from_slice(&value.to_le_bytes());
        }
        image.extend_from_slice(&[u8::from(self.discard), 0, 0, 0]);
        image
    }
}

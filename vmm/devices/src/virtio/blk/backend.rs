//! The image behind a disk, and requests carried out on it at once.

use std::fs::File;
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use vmm_sys::guest_io;
use vmm_sys::image::{self, Alignment, PUNCH_HOLE, ZERO_RANGE};

use super::bounce::Bounce;
use super::config::{
    BlkConfig, CacheMode, Geometry, MAX_BLOCK_BYTES, MAX_DISCARD_BYTES, MAX_QUEUES, SECTOR_BYTES,
};
use super::error::BlkError;
use super::failure::Failure;
use super::image::BlkImage;
use super::overlay::{BLOCK_BYTES, Layer, MAX_BASE_BYTES, Overlay};
use super::request::{Extent, Refusal, Request, data};
use crate::virtio::queue::{Buffer, Chain, slices_of, window};
use vmm_memory::GuestRam;

/// The kernel's `EOPNOTSUPP`, `ENOSYS` and `ENOTTY`: the host has no such thing.
const UNSUPPORTED: [i32; 3] = [95, 38, 25];

/// Through the page cache everything goes.
pub(super) const ANY: Alignment = Alignment {
    memory: 1,
    offset: 1,
};

/// An image.
pub(super) struct Backend {
    pub(super) image: File,
    /// A block device, not a file.
    pub(super) is_block: bool,
    /// A file of a file system in memory.
    pub(super) is_in_memory: bool,
    /// What transfers past the page cache have to be aligned to.
    pub(super) alignment: Option<Alignment>,
    /// What the image is laid over, if anything.
    pub(super) overlay: Option<Overlay>,
    /// Open with `O_DSYNC`: the kernel syncs at the end of each write.
    pub(super) writes_sync: bool,
    /// The guest sees a disk without write cache.
    writes_through: bool,
    /// Writes are synced before they are answered: the driver did not take FLUSH.
    durable: bool,
    pub(super) bounce: Bounce,
}

impl Backend {
    /// Looks at an image.
    pub(super) fn new(image: BlkImage, cache: CacheMode) -> Result<Self, BlkError> {
        let BlkImage { image, base } = image;
        let image = File::from(image);
        let mode = image::open_mode(&image).map_err(BlkError::Image)?;
        let fits = match cache {
            CacheMode::WriteBack => !mode.direct,
            CacheMode::WriteThrough => true,
            CacheMode::Direct => mode.direct,
        };
        if !fits {
            return Err(BlkError::Cache { cache, mode });
        }
        let alignment = mode
            .direct
            .then(|| image::direct_alignment(&image))
            .transpose()
            .map_err(BlkError::Image)?;
        let metadata = image.metadata().map_err(BlkError::Image)?;
        let is_block = metadata.file_type().is_block_device();
        let overlay = base
            .map(|base| lay_over(File::from(base), &image, is_block, alignment))
            .transpose()?;
        // The node of a block device is in memory, as all of /dev is; the device is not.
        let is_in_memory = match &overlay {
            Some(overlay) => image::is_in_memory(&overlay.base).map_err(BlkError::Image)?,
            None => true,
        } && !is_block
            && image::is_in_memory(&image).map_err(BlkError::Image)?;
        Ok(Self {
            is_block,
            is_in_memory,
            image,
            alignment,
            overlay,
            writes_sync: mode.durable,
            writes_through: mode.durable || cache == CacheMode::WriteThrough,
            durable: true,
            bounce: Bounce::default(),
        })
    }

    /// What the driver sees of the disk, for this configuration.
    pub(super) fn geometry(&self, config: &BlkConfig) -> Result<Geometry, BlkError> {
        let offset = self.alignment.map_or(512, |alignment| alignment.offset);
        let device = if self.is_block {
            Some(image::block_sizes(&self.image).map_err(BlkError::Image)?)
        } else {
            None
        };
        let least = offset.max(512);
        let or = |wanted: u32, default| if wanted == 0 { default } else { wanted };
        let logical = or(config.logical_block_bytes, least);
        let preferred = match device {
            Some((_, physical)) => physical,
            None => {
                let block = self.image.metadata().map_err(BlkError::Image)?.blksize();
                u32::try_from(block.clamp(512, 4096)).unwrap_or(512)
            }
        };
        let physical = or(config.physical_block_bytes, preferred.max(logical));
        let possible = |bytes: u32| bytes.is_power_of_two() && bytes <= MAX_BLOCK_BYTES;
        if !possible(logical) || !possible(physical) || logical < least || physical < logical {
            return Err(BlkError::BlockSize {
                logical,
                physical,
                least,
            });
        }
        let discard_granularity = or(config.discard_granularity_bytes, physical);
        if discard_granularity % logical != 0 || discard_granularity > MAX_DISCARD_BYTES {
            return Err(BlkError::DiscardGranularity {
                bytes: discard_granularity,
                logical,
            });
        }
        if config.queues == 0 || config.queues > MAX_QUEUES {
            return Err(BlkError::Queues(config.queues));
        }
        Ok(Geometry {
            logical_block_bytes: logical,
            physical_block_bytes: physical,
            queues: config.queues,
            read_only: config.read_only,
            discard: config.discard && !config.read_only,
            discard_granularity_bytes: discard_granularity,
            durable: self.writes_through,
        })
    }

    /// The driver will flush, or will not.
    pub(super) fn set_driver_flushes(&mut self, flushes: bool) {
        self.durable = !flushes;
    }

    /// Whether a request is answered only after a sync that begins once it was carried out. `O_DSYNC` is
    /// no substitute: it does not cover `fallocate` and `BLKZEROOUT`.
    pub(super) fn must_sync(&self, request: Request) -> bool {
        match request {
            Request::Flush => true,
            Request::Write(_) | Request::WriteZeroes { .. } => self.durable,
            Request::Read(_) | Request::GetId | Request::Discard(_) => false,
        }
    }

    /// Whether the kernel takes these buffers as they are.
    pub(super) fn takes(&self, buffers: impl IntoIterator<Item = Buffer>) -> bool {
        let Some(alignment) = self.alignment else {
            return true;
        };
        // RAM is mapped page by page, so that alignment is the same on both sides.
        buffers.into_iter().all(|buffer| {
            buffer.address.is_multiple_of(u64::from(alignment.memory))
                && buffer.bytes.is_multiple_of(alignment.offset)
        })
    }

    /// The layer that all of a request is about; `None` when it is about several.
    pub(super) fn layer_of(&self, request: Request) -> Option<Layer> {
        match (&self.overlay, request) {
            (
                Some(overlay),
                Request::Read(extent)
                | Request::Write(extent)
                | Request::Discard(extent)
                | Request::WriteZeroes { extent, .. },
            ) => overlay.layer_of(extent),
            (None, _) | (_, Request::Flush | Request::GetId) => Some(Layer::Image),
        }
    }

    /// Carries out a request from byte `done` of its data on; returns when it is done. The sync that some
    /// requests wait for comes after it.
    pub(super) fn execute(
        &mut self,
        memory: &GuestRam,
        chain: &Chain,
        request: Request,
        done: u64,
    ) -> Result<(), Failure> {
        match request {
            Request::Read(extent) | Request::Write(extent) => {
                self.transfer(memory, chain, request, extent, done)
            }
            Request::Flush | Request::GetId => Ok(()),
            Request::Discard(extent) if self.overlay.is_some() => self.discard_overlaid(extent),
            Request::Discard(extent) => self.discard(extent),
            Request::WriteZeroes { extent, unmap } if self.overlay.is_some() => {
                self.write_zeroes_overlaid(extent, unmap)
            }
            Request::WriteZeroes { extent, unmap } => self.write_zeroes(extent, unmap),
        }
    }

    fn transfer(
        &mut self,
        memory: &GuestRam,
        chain: &Chain,
        request: Request,
        extent: Extent,
        done: u64,
    ) -> Result<(), Failure> {
        let is_read = request.is_read();
        let rest = extent.after(done);
        let mut left: Vec<Buffer> = data(request, chain).collect();
        if done > 0 {
            left = window(&left, done, rest.bytes).collect();
        }
        match (&self.overlay, is_read) {
            (None, _) => self.transfer_in(memory, &left, (Layer::Image, rest), is_read),
            (Some(_), true) => self.read_overlaid(memory, &left, rest),
            (Some(_), false) => self.write_overlaid(memory, &left, rest),
        }
    }

    /// Moves data between memory and one file.
    pub(super) fn transfer_in(
        &mut self,
        memory: &GuestRam,
        buffers: &[Buffer],
        (layer, extent): (Layer, Extent),
        is_read: bool,
    ) -> Result<(), Failure> {
        let file = match (&self.overlay, layer) {
            (Some(overlay), Layer::Base) => &overlay.base,
            _ => &self.image,
        };
        if layer == Layer::Image && !self.takes(buffers.iter().copied()) {
            let alignment = self.alignment.unwrap_or(ANY);
            let place = (file, extent);
            return self
                .bounce
                .transfer(memory, buffers, place, is_read, alignment);
        }
        let slices = slices_of(memory, buffers.iter().copied())
            .map_err(|_| Failure::Guest(Refusal::IoError))?;
        let moved = if is_read {
            guest_io::read_at(file, &slices, extent.offset)?
        } else {
            guest_io::write_at(file, &slices, extent.offset)?
        };
        if moved as u64 == extent.bytes {
            Ok(())
        } else {
            Err(Failure::SHORT)
        }
    }

    /// A discard is a hint: a host that cannot do it has done what it could.
    fn discard(&self, extent: Extent) -> Result<(), Failure> {
        let result = if self.is_block {
            image::discard_blocks(&self.image, extent.offset, extent.bytes)
        } else {
            image::allocate(&self.image, PUNCH_HOLE, extent.offset, extent.bytes)
        };
        match result {
            Err(error) if !is_unsupported(&error) => Err(error.into()),
            _ => Ok(()),
        }
    }

    pub(super) fn write_zeroes(&mut self, extent: Extent, unmap: bool) -> Result<(), Failure> {
        let Extent { offset, bytes } = extent;
        let result = image::allocate(&self.image, zeroes_mode(unmap), offset, bytes);
        match result {
            Ok(()) => return Ok(()),
            Err(error) if !is_unsupported(&error) => return Err(error.into()),
            Err(_) => {}
        }
        if self.is_block {
            return Ok(image::zero_blocks(&self.image, offset, bytes)?);
        }
        let alignment = self.alignment.unwrap_or(ANY);
        self.bounce.write_zeroes((&self.image, extent), alignment)
    }
}

/// Lays `image` over `base`.
fn lay_over(
    base: File,
    image: &File,
    is_block: bool,
    alignment: Option<Alignment>,
) -> Result<Overlay, BlkError> {
    let size = |mut file: &File| file.seek(SeekFrom::End(0)).map_err(BlkError::Image);
    let (base_bytes, image_bytes) = (size(&base)?, size(image)?);
    if is_block || alignment.is_some_and(|alignment| u64::from(alignment.offset) > BLOCK_BYTES) {
        return Err(BlkError::NoOverlay);
    }
    if base_bytes > MAX_BASE_BYTES || image_bytes < base_bytes.next_multiple_of(SECTOR_BYTES) {
        return Err(BlkError::BaseSize {
            base_bytes,
            image_bytes,
        });
    }
    Ok(Overlay::new(base, base_bytes))
}

/// Sectors of `image` now, less what makes no whole block.
pub(super) fn sectors(mut image: &File, logical_block_bytes: u32) -> io::Result<u64> {
    // The end of a block device is found like that of a file; its metadata has no size.
    let bytes = image.seek(SeekFrom::End(0))?;
    let block = u64::from(logical_block_bytes);
    Ok(bytes / block * (block / SECTOR_BYTES))
}

/// How a range is made zeros.
pub(super) fn zeroes_mode(unmap: bool) -> i32 {
    if unmap { PUNCH_HOLE } else { ZERO_RANGE }
}

/// Whether the host has no such thing, which is no failure of its disk.
pub(super) fn is_unsupported(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|errno| UNSUPPORTED.contains(&errno))
}

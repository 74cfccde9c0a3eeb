//! Why a disk cannot be made.

use std::io;

use vmm_sys::image::OpenMode;

use super::config::{CacheMode, MAX_BLOCK_BYTES, MAX_DISCARD_BYTES, MAX_QUEUES};
use super::overlay::MAX_BASE_BYTES;
use super::request::ID_BYTES;
use crate::state::StateError;

/// A disk cannot be made of what was given.
#[derive(Debug, thiserror::Error)]
pub enum BlkError {
    /// The image cannot be examined.
    #[error("the image cannot be examined")]
    Image(#[source] io::Error),
    /// The image is not open as its cache mode wants.
    #[error("cache mode {cache:?} does not fit an image that is open with {mode:?}")]
    Cache {
        /// Cache mode of the configuration.
        cache: CacheMode,
        /// How the descriptor is open (`O_DIRECT`, `O_DSYNC`).
        mode: OpenMode,
    },
    /// The serial is longer than the answer to `VIRTIO_BLK_T_GET_ID`.
    #[error("disk serial has {0} bytes, at most {ID_BYTES} are allowed")]
    Serial(usize),
    /// Block sizes that cannot be.
    #[error(
        "block sizes {logical} (logical) and {physical} (physical) are not powers of two from {least} to {MAX_BLOCK_BYTES} in this order"
    )]
    BlockSize {
        /// Logical block size in bytes.
        logical: u32,
        /// Physical block size in bytes.
        physical: u32,
        /// What the image wants at least.
        least: u32,
    },
    /// A unit of discards that cannot be.
    #[error(
        "space cannot be given back by {bytes} bytes: no multiple of the logical block size {logical} up to {MAX_DISCARD_BYTES}"
    )]
    DiscardGranularity {
        /// The unit in bytes.
        bytes: u32,
        /// Logical block size in bytes.
        logical: u32,
    },
    /// Image and base do not fit each other.
    #[error(
        "an image of {image_bytes} bytes cannot be laid over a base of {base_bytes}: it has to be as large in whole sectors, and the base at most {MAX_BASE_BYTES}"
    )]
    BaseSize {
        /// Size of the base.
        base_bytes: u64,
        /// Size of the image.
        image_bytes: u64,
    },
    /// What the image is cannot be laid over a base.
    #[error("only a regular file that takes writes of 4096 bytes can be laid over a base")]
    NoOverlay,
    /// No queue or too many.
    #[error("{0} queues are not possible, 1 to {MAX_QUEUES} are")]
    Queues(u16),
    /// The state that the disk is to be made of.
    #[error("the disk's state cannot be used")]
    State(#[from] StateError),
    /// The host has no descriptor left.
    #[error("the host has no descriptors left")]
    Descriptors(#[source] io::Error),
}

//! The files behind a disk.

use std::fs::File;
use std::os::fd::OwnedFd;

/// What a disk's data is in.
#[derive(Debug)]
pub struct BlkImage {
    /// A raw image; its size is the disk's.
    pub image: OwnedFd,
    /// A raw image that is only read, under `image`, which is sparse and thrown away: see the module
    /// `overlay`.
    pub base: Option<OwnedFd>,
}

impl From<OwnedFd> for BlkImage {
    fn from(image: OwnedFd) -> Self {
        Self { image, base: None }
    }
}

impl From<File> for BlkImage {
    fn from(image: File) -> Self {
        OwnedFd::from(image).into()
    }
}

//! Configuration of a balloon, and its configuration space (`struct virtio_balloon_config`).

use std::time::Duration;

/// Unit of `num_pages` and `actual`, and of page numbers, whatever the size of a guest's pages is
/// (VIRTIO 1.2, 5.5.6).
pub const BALLOON_PAGE_BYTES: u64 = 4096;

/// `VIRTIO_BALLOON_F_STATS_VQ`.
pub(super) const STATS_VQ: u64 = 1 << 1;
/// `VIRTIO_BALLOON_F_DEFLATE_ON_OOM`.
pub(super) const DEFLATE_ON_OOM: u64 = 1 << 2;
/// `VIRTIO_BALLOON_F_REPORTING`.
pub(super) const REPORTING: u64 = 1 << 5;

/// Where the driver writes how large the balloon is.
pub(super) const ACTUAL_OFFSET: u64 = 4;

/// Configuration of a balloon.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BalloonConfig {
    /// How much memory the guest is asked to do without, in bytes.
    pub target_bytes: u64,
    /// The guest may take pages back when it has no others.
    pub deflate_on_oom: bool,
    /// The guest tells which of its pages are free, and they go back to the host.
    pub free_page_reporting: bool,
    /// How often the guest is asked for statistics; zero: only on request.
    pub stats_interval: Duration,
}

impl BalloonConfig {
    /// Features offered.
    pub(super) fn features(&self) -> u64 {
        let when = |wanted: bool, feature| if wanted { feature } else { 0 };
        STATS_VQ
            | when(self.deflate_on_oom, DEFLATE_ON_OOM)
            | when(self.free_page_reporting, REPORTING)
    }
}

/// The structure as the driver reads it; fields of features that are not offered read as zero.
pub(super) fn image(target_pages: u32, actual_pages: u32) -> Vec<u8> {
    [target_pages.to_le_bytes(), actual_pages.to_le_bytes()].concat()
}

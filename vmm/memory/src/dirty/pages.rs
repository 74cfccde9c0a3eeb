//! Dirty pages as they are taken from the log.

/// Size of what one bit stands for, in bytes: KVM's dirty log has the same.
pub const DIRTY_PAGE_BYTES: u64 = 4096;

/// Dirty pages of one region, as KVM's log has them: bit `n` of word `w` is page `64 w + n`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyPages {
    /// Guest-physical address of the region.
    pub base: u64,
    /// One bit a page.
    pub words: Vec<u64>,
}

//! How a disk is served.

/// How a disk is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskOptions {
    /// The host's cache.
    pub cache: DiskCache,
    /// The disk's thread waits for the host instead of leaving the waiting to io_uring.
    pub waits: bool,
    /// What an error of the host does.
    pub errors: DiskErrors,
    /// Sizes of sectors: powers of two from 512 to 65536; `None`: the volume's.
    pub blocks: Option<DiskBlocks>,
    /// It has an I/O thread of its own.
    pub dedicated_thread: bool,
    /// Other guests may have it at the same time, and write.
    pub shareable: bool,
}

/// The host's cache of a disk.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskCache {
    /// `None` where the image can do without the cache, else `WriteThrough`.
    #[default]
    Default,
    /// Not used (`O_DIRECT`).
    None,
    /// Used, but a write is durable when it is answered.
    WriteThrough,
    /// Used; a guest that wants durability flushes.
    WriteBack,
}

/// What a host's I/O error does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DiskErrors {
    /// The guest sees it.
    Report,
    /// Nothing; the guest sees a success.
    Ignore,
    /// The guest is paused.
    #[default]
    Stop,
    /// The guest is paused when there is no space left; it sees other errors.
    StopOnNoSpace,
}

/// Sizes of sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskBlocks {
    /// In bytes.
    pub logical: u32,
    /// In bytes, at least the logical size.
    pub physical: u32,
    /// Unit in which the guest gives space back, in bytes, a multiple of the logical size; 0 for a disk
    /// that takes no discards, absent for the physical size.
    pub discard_granularity: Option<u32>,
}

impl DiskBlocks {
    /// What a disk has by default.
    pub const DEFAULT: Self = Self {
        logical: 512,
        physical: 512,
        discard_granularity: None,
    };
}

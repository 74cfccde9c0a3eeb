//! The sync of an image that is under way, and results of the ring.

use vmm_sys::io_uring::Completion;

use super::failure::Failure;

/// The sync that the ring has.
#[derive(Debug, Default)]
pub(super) struct ImageSync {
    /// The slot that it has in the ring.
    pub(super) slot: Option<usize>,
}

/// How a sync was begun.
pub(super) enum SyncBegun {
    /// It is in the ring, whose completion comes later.
    Queued,
    /// It was carried out by this thread.
    Done(Result<(), Failure>),
    /// Another user of the image syncs it; the disk tries again when that sync has ended.
    Busy,
}

/// What the ring has ended.
pub(super) enum RingOutcome {
    /// A read, write or discard.
    Request(Completion),
    /// The `fdatasync` of the image, with its result.
    Sync(Result<(), Failure>),
    /// The sync, without having asked the host.
    SyncCancelled,
}

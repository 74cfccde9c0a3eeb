//! Requests that the ring carried out in part.

/// Who carries out the rest of such a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartialTransfer {
    /// The calling thread, which serves the disk, does it.
    Execute,
    /// It waits until the disk is resumed.
    Wait,
}

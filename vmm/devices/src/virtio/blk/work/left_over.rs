//! Requests that the ring carried out in part.

/// What becomes of a request that the ring did not carry out as a whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartialTransfer {
    /// The calling thread, which serves the disk, does it.
    Execute,
    /// It waits until the disk is resumed.
    Wait,
}

//! Directions of a transfer, and the registered files that it uses.

use ::io_uring::types::Fixed;

/// The file of the ring.
pub(super) const FILE: Fixed = Fixed(0);

/// The file under it, which is only read.
pub(super) const BASE: Fixed = Fixed(1);

/// Direction of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transfer {
    /// From the file to guest memory.
    Read,
    /// From the file under it to guest memory.
    ReadBase,
    /// From guest memory to the file.
    Write,
}

//! Errors of vhost-net.

use std::io;

/// vhost-net cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum VhostError {
    /// It is no vhost-net, or a call failed.
    #[error("vhost-net: {call} failed")]
    Call {
        /// Name of the system call or ioctl.
        call: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The kernel's is too old.
    #[error("vhost-net has features {has:#x}, of {needed:#x} that are needed")]
    Features {
        /// Features of this kernel, as bits.
        has: u64,
        /// What it must have.
        needed: u64,
    },
    /// A ring or a region is not in guest memory, or there are too many regions.
    #[error("vhost-net: {0} cannot be handed to the kernel")]
    Memory(&'static str),
    /// The kernel found a ring that makes no sense, and does not go on with it.
    #[error("vhost-net: the kernel gave up a ring that its driver broke")]
    BrokenRing,
}

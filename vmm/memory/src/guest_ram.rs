//! The type of guest memory, and its errors.

use std::io;

use vm_memory::mmap::MmapRegionError;
use vm_memory::{GuestMemoryMmap, GuestRegionCollectionError, GuestRegionMmap};

use crate::dirty::log::DirtyLog;

/// Guest memory as everybody sees it.
pub type GuestRam = GuestMemoryMmap<DirtyLog>;

/// A stretch of guest memory.
pub(crate) type Region = GuestRegionMmap<DirtyLog>;

/// RAM could not be made, filled or emptied.
#[derive(Debug, thiserror::Error)]
pub enum RamError {
    /// A system call failed.
    #[error("{call} failed for {bytes} bytes of guest memory")]
    System {
        /// Name of the system call.
        call: &'static str,
        /// How much it was asked for.
        bytes: u64,
        /// Error of the operating system.
        #[source]
        source: io::Error,
    },
    /// The memfd could not be mapped.
    #[error("{bytes} bytes of guest memory could not be mapped")]
    Map {
        /// Length in bytes.
        bytes: u64,
        /// The underlying error.
        #[source]
        source: MmapRegionError,
    },
    /// Regions that overlap, which no layout has.
    #[error("guest memory could not be put together")]
    Regions(#[source] GuestRegionCollectionError),
    /// The host's address space is too small.
    #[error("guest memory of {0} bytes does not fit into the address space of this process")]
    AddressSpace(u64),
    /// The host has no huge pages of the size.
    #[error("this host has no huge pages of {0} bytes")]
    NoPool(u64),
    /// The host's pool of huge pages is too small, or this process may not take so many of them.
    #[error(
        "the host has not enough free huge pages of {page_bytes} bytes for {bytes} bytes of guest memory"
    )]
    PoolTooSmall {
        /// Size of a page.
        page_bytes: u64,
        /// How much memory was to be made of them.
        bytes: u64,
    },
    /// The guest's end was asked for meanwhile.
    #[error("nobody waits for guest memory any more")]
    Cancelled,
}

impl RamError {
    /// Wraps what a system call said about `bytes` bytes.
    pub(crate) fn system(call: &'static str, bytes: u64) -> impl FnOnce(io::Error) -> Self + use<> {
        move |source| Self::System {
            call,
            bytes,
            source,
        }
    }
}

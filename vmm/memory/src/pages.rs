//! What pages of the host guest memory is made of.

use nix::sys::memfd::MFdFlags;

/// Pages behind guest memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// The host's ordinary ones, made when they are first touched.
    #[default]
    Ordinary,
    /// The same, and the host is advised to make huge ones where it can (transparent huge pages for
    /// shared memory).
    Transparent,
    /// Huge pages of 2 MiB from the host's pool.
    Huge2Mib,
    /// Huge pages of 1 GiB from the host's pool.
    Huge1Gib,
}

impl Pages {
    /// The pool of huge pages of `bytes` bytes, if x86-64 has such.
    #[must_use]
    pub const fn from_pool_of(bytes: u64) -> Option<Self> {
        match bytes {
            0x20_0000 => Some(Self::Huge2Mib),
            0x4000_0000 => Some(Self::Huge1Gib),
            _ => None,
        }
    }

    /// Size of a page; guest memory comes in multiples of it.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Ordinary | Self::Transparent => 4096,
            Self::Huge2Mib => 2 << 20,
            Self::Huge1Gib => 1 << 30,
        }
    }

    /// Whether the pages are taken from the host's pool of huge pages. A pool can be empty: such
    /// pages are all taken before the guest runs (see [`crate::populate`]).
    #[must_use]
    pub const fn are_pooled(self) -> bool {
        matches!(self, Self::Huge2Mib | Self::Huge1Gib)
    }

    /// Flags of `memfd_create`.
    pub(crate) fn memfd_flags(self) -> MFdFlags {
        match self {
            Self::Ordinary | Self::Transparent => MFdFlags::empty(),
            Self::Huge2Mib => MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_2MB,
            Self::Huge1Gib => MFdFlags::MFD_HUGETLB | MFdFlags::MFD_HUGE_1GB,
        }
    }

    /// Flags of `mmap`. A mapping of pooled pages reserves all of them at once, so that a pool
    /// that is too small is known before the first page is zeroed; for others a reservation means
    /// nothing.
    pub(crate) const fn map_flags(self) -> libc::c_int {
        if self.are_pooled() {
            libc::MAP_SHARED
        } else {
            libc::MAP_SHARED | libc::MAP_NORESERVE
        }
    }
}

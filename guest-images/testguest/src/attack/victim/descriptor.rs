//! Descriptors as an attacker writes them, and where a ring has its parts.

use crate::memory::{DmaBuffer, WriteTarget};

/// Descriptor flags.
pub const NEXT: u16 = 1;
pub const WRITE: u16 = 2;
pub const INDIRECT: u16 = 4;

/// A descriptor as it lies in memory.
#[derive(Clone, Copy)]
pub struct Desc {
    pub address: u64,
    pub bytes: u32,
    pub flags: u16,
    pub next: u16,
}

/// A part of a descriptor.
#[derive(Clone, Copy)]
pub enum Field {
    Address,
    Bytes,
    Flags,
    Next,
}

impl Field {
    pub(super) fn of(self, memory: &DmaBuffer, at: usize) -> Option<WriteTarget> {
        let (offset, bytes) = match self {
            Self::Address => (0, 8),
            Self::Bytes => (8, 4),
            Self::Flags => (12, 2),
            Self::Next => (14, 2),
        };
        memory.place(at + offset, bytes)
    }
}

/// A buffer that the device reads.
pub fn read(address: u64, bytes: u32) -> Desc {
    Desc {
        address,
        bytes,
        flags: 0,
        next: 0,
    }
}

/// A buffer that the device writes.
pub fn write(address: u64, bytes: u32) -> Desc {
    Desc {
        flags: WRITE,
        ..read(address, bytes)
    }
}

/// Where the parts of a ring are, and how long it is.
#[derive(Clone, Copy)]
pub struct Ring {
    pub size: u16,
    pub descriptors: u64,
    pub avail: u64,
    pub used: u64,
}

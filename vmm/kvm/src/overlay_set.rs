//! Overlays of a VM: ranges of guest-physical addresses, and what backs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use vmm_memory::{RomMemory, Window};

/// What a guest finds in an overlay.
#[derive(Clone, Debug)]
pub enum Backing {
    /// The RAM that is at these addresses, to be written or not.
    Ram {
        /// Whether writes reach it; they are vCPU exits otherwise.
        is_writable: bool,
    },
    /// Read-only memory from this offset on. Writes are vCPU exits.
    Rom(Arc<RomMemory>, u64),
}

/// A range of guest-physical addresses, and what is there.
#[derive(Clone, Debug)]
pub struct Overlay {
    /// Guest-physical addresses, whole pages.
    pub range: Window,
    /// Memory behind it.
    pub backing: Backing,
}

/// All that are set, and whether writes to them are logged.
#[derive(Debug, Default)]
pub(crate) struct Overlays {
    pub set: BTreeMap<u16, Overlay>,
    pub flags: u32,
}

impl Overlay {
    /// Whether the guest's writes reach the RAM behind it.
    pub(crate) fn is_writable(&self) -> bool {
        matches!(self.backing, Backing::Ram { is_writable: true })
    }
}

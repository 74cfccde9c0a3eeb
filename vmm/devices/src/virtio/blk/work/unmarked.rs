//! Writes that the ring has to blocks which the image does not have yet.

use super::super::backend::Backend;
use super::super::overlay::BLOCK_BYTES;
use super::super::request::{Extent, Request};

/// Writes whose blocks are marked when they have ended, and requests that wait for that: one that covers such a block in
/// part would copy the block's rest from the base over what the ring has written.
#[derive(Debug, Default)]
pub(super) struct UnmarkedWrites {
    /// Place and extent of each.
    writes: Vec<(usize, Extent)>,
    /// Places of requests that wait.
    pub(super) waiting: Vec<usize>,
}

impl UnmarkedWrites {
    /// The ring has a write.
    pub(super) fn add(&mut self, place: usize, extent: Extent) {
        self.writes.push((place, extent));
    }

    /// The ring has ended the request in a place; the extent that it wrote, if that is one of these.
    pub(super) fn remove(&mut self, place: usize) -> Option<Extent> {
        let index = self.writes.iter().position(|(of, _)| *of == place)?;
        Some(self.writes.swap_remove(index).1)
    }

    /// Whether there is none.
    pub(super) fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Whether a request has to wait for one of them.
    pub(super) fn is_in_the_way(&self, backend: &Backend, request: Request) -> bool {
        !self.is_empty() && backend.torn_by(request).any(|block| self.has(block))
    }

    fn has(&self, block: u64) -> bool {
        let start = block.saturating_mul(BLOCK_BYTES);
        let end = start.saturating_add(BLOCK_BYTES);
        let mut writes = self.writes.iter();
        writes.any(|(_, extent)| extent.offset < end && extent.end() > start)
    }
}

//! The dirty log of one region, as `vm-memory` marks it.

use std::sync::{Arc, OnceLock};

use vm_memory::bitmap::{Bitmap, BitmapSlice, NewBitmap, WithBitmapSlice};

use super::bits::Bits;
use super::pages::DIRTY_PAGE_BYTES;
use crate::kernel_log::KernelLog;

const PAGE_SHIFT: u32 = DIRTY_PAGE_BYTES.trailing_zeros();

/// The log of one region.
#[derive(Debug, Default)]
pub struct DirtyLog {
    pub(super) bits: Bits,
    /// What the kernel writes by itself, of all regions; in the first of them, if anywhere.
    pub(super) kernel: OnceLock<Arc<KernelLog>>,
}

impl DirtyLog {
    fn mark(&self, offset: usize, bytes: usize) {
        let Some(last) = bytes.checked_sub(1) else {
            return;
        };
        let last = offset.saturating_add(last) >> PAGE_SHIFT;
        self.bits.mark(offset >> PAGE_SHIFT..=last);
    }

    fn is_dirty(&self, offset: usize) -> bool {
        self.bits.is_marked(offset >> PAGE_SHIFT)
    }
}

impl NewBitmap for DirtyLog {
    fn with_len(bytes: usize) -> Self {
        Self {
            bits: Bits::new(bytes.div_ceil(1 << PAGE_SHIFT)),
            kernel: OnceLock::new(),
        }
    }
}

impl<'a> WithBitmapSlice<'a> for DirtyLog {
    type S = DirtySlice<'a>;
}

impl Bitmap for DirtyLog {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.mark(offset, len);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.is_dirty(offset)
    }

    fn slice_at(&self, offset: usize) -> DirtySlice<'_> {
        DirtySlice { log: self, offset }
    }
}

/// The log of a region from an offset on.
#[derive(Clone, Copy, Debug)]
pub struct DirtySlice<'a> {
    pub(super) log: &'a DirtyLog,
    offset: usize,
}

impl WithBitmapSlice<'_> for DirtySlice<'_> {
    type S = Self;
}

impl BitmapSlice for DirtySlice<'_> {}

impl Bitmap for DirtySlice<'_> {
    fn mark_dirty(&self, offset: usize, len: usize) {
        self.log.mark(self.offset.saturating_add(offset), len);
    }

    fn dirty_at(&self, offset: usize) -> bool {
        self.log.is_dirty(self.offset.saturating_add(offset))
    }

    fn slice_at(&self, offset: usize) -> Self {
        Self {
            log: self.log,
            offset: self.offset.saturating_add(offset),
        }
    }
}

//! Read-only memory of a machine: firmware, and the content of flash memory.

use vm_memory::{Bytes, MmapRegion, VolatileMemory, mmap::MmapRegionError};

use crate::layout::Window;

/// Read-only memory could not be made.
#[derive(Debug, thiserror::Error)]
#[error("{bytes} bytes of read-only memory could not be mapped")]
pub struct RomError {
    /// Length in bytes.
    pub bytes: usize,
    /// The underlying error.
    #[source]
    source: MmapRegionError,
}

/// Memory of this process that guests can be shown, but not given to write.
#[derive(Debug)]
pub struct RomMemory {
    mapping: MmapRegion<()>,
}

impl RomMemory {
    /// A copy of `content`, filled up to whole pages with ones, as flash memory that was never
    /// written is.
    ///
    /// # Errors
    /// The process has no memory left.
    pub fn of(content: &[u8]) -> Result<Self, RomError> {
        let memory = Self::zeroed(content.len().div_ceil(PAGE_BYTES))?;
        memory.write(0, content);
        let rest = memory.bytes().saturating_sub(content.len());
        memory.write(content.len(), &vec![0xff; rest]);
        Ok(memory)
    }

    /// `pages` pages of zeros.
    ///
    /// # Errors
    /// The process has no memory left.
    pub fn zeroed(pages: usize) -> Result<Self, RomError> {
        let bytes = pages.max(1).saturating_mul(PAGE_BYTES);
        let mapping = MmapRegion::new(bytes).map_err(|source| RomError { bytes, source })?;
        Ok(Self { mapping })
    }

    /// Its length in bytes, a whole number of pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.mapping.size()
    }

    /// Reads at `offset`; ones beyond the end.
    pub fn read(&self, offset: usize, data: &mut [u8]) {
        data.fill(0xff);
        let Some(length) = self.within(offset, data.len()) else {
            return;
        };
        if let (Ok(slice), Some(part)) = (
            self.mapping.get_slice(offset, length),
            data.get_mut(..length),
        ) {
            slice.copy_to(part);
        }
    }

    /// Writes at `offset`; nothing beyond the end. A guest that looks sees it: of an aligned doubleword
    /// either all or nothing.
    pub fn write(&self, offset: usize, data: &[u8]) {
        let Some(length) = self.within(offset, data.len()) else {
            return;
        };
        if let (Ok(slice), Some(part)) =
            (self.mapping.get_slice(offset, length), data.get(..length))
        {
            // The slice is as long as what is written.
            let _ = slice.write(part, 0);
        }
    }

    fn within(&self, offset: usize, bytes: usize) -> Option<usize> {
        let left = self.mapping.size().checked_sub(offset)?;
        Some(left.min(bytes)).filter(|length| *length > 0)
    }

    /// Where `range`, counted from its start, is in this process; `None` when it is not all within.
    #[must_use]
    pub fn host_address(&self, range: Window) -> Option<u64> {
        let all = Window {
            base: 0,
            bytes: self.mapping.size() as u64,
        };
        let start = self.mapping.as_ptr() as u64;
        all.contains(range.base, range.bytes)
            .then(|| start + range.base)
    }
}

/// Bytes of a page.
const PAGE_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_never_written_is_ones_and_nothing_is_beyond_the_end() {
        let rom = RomMemory::of(&[1, 2, 3]).unwrap();
        assert_eq!(rom.bytes(), 4096);
        let mut data = [0; 4];
        rom.read(1, &mut data);
        assert_eq!(data, [2, 3, 0xff, 0xff]);
        rom.write(4094, &[7, 8, 9]);
        rom.read(4094, &mut data);
        assert_eq!(data, [7, 8, 0xff, 0xff]);
        rom.read(usize::MAX, &mut data);
        assert_eq!(data, [0xff; 4]);
        rom.write(4096, &[1]);
    }

    #[test]
    fn a_range_beyond_the_end_has_no_address() {
        let rom = RomMemory::of(&[0; 8192]).unwrap();
        let range = |base, bytes| Window { base, bytes };
        let start = rom.host_address(range(0, 8192)).unwrap();
        assert_eq!(rom.host_address(range(4096, 4096)), Some(start + 4096));
        assert_eq!(rom.host_address(range(4096, 4097)), None);
        assert_eq!(rom.host_address(range(u64::MAX, 2)), None);
    }
}

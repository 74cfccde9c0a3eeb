//! A kernel file as linux-loader reads it.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::FileExt;

use vm_memory::bitmap::BitmapSlice;
use vm_memory::{ReadVolatile, VolatileMemoryError, VolatileSlice};
use vmm_memory::{GuestRam, load_part};

/// Most reads of headers and notes. A kernel needs a few dozen; a hostile one could chain millions
/// of empty notes, each of which costs a system call.
const MAX_HEADER_READS: u32 = 4096;

/// Reads at a position of its own: that of the descriptor is shared with whoever passed it.
pub(super) struct KernelImage<'a> {
    file: &'a File,
    /// Guest memory that segments are copied to.
    ram: &'a GuestRam,
    position: u64,
    header_reads_left: u32,
}

impl<'a> KernelImage<'a> {
    pub(super) const fn new(file: &'a File, ram: &'a GuestRam) -> Self {
        Self {
            file,
            ram,
            position: 0,
            header_reads_left: MAX_HEADER_READS,
        }
    }
}

impl Read for KernelImage<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.header_reads_left = self
            .header_reads_left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("the kernel has too many headers"))?;
        let count = self.file.read_at(buffer, self.position)?;
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for KernelImage<'_> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(offset) => self.position.checked_add_signed(offset),
            SeekFrom::End(offset) => self.file.metadata()?.len().checked_add_signed(offset),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}

impl ReadVolatile for KernelImage<'_> {
    fn read_volatile<B: BitmapSlice>(
        &mut self,
        buffer: &mut VolatileSlice<'_, B>,
    ) -> Result<usize, VolatileMemoryError> {
        let count = load_part(self.ram, buffer, self.file, self.position)
            .map_err(VolatileMemoryError::IOError)?;
        self.position += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use vmm_memory::{Layout, create_ram};

    use super::*;

    fn ram() -> GuestRam {
        create_ram(&Layout::new(1 << 20, 40).unwrap()).unwrap()
    }

    #[test]
    fn the_position_of_the_descriptor_stays() {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(b"0123456789").unwrap();
        let ram = ram();
        let mut image = KernelImage::new(&file, &ram);
        let mut two = [0; 2];
        image.seek(SeekFrom::Start(3)).unwrap();
        image.read_exact(&mut two).unwrap();
        image.seek(SeekFrom::Current(-1)).unwrap();
        assert_eq!(two, *b"34");
        assert_eq!(image.seek(SeekFrom::End(-2)).unwrap(), 8);
        assert!(image.seek(SeekFrom::Current(-9)).is_err());
        assert_eq!(file.stream_position().unwrap(), 10);
    }

    #[test]
    fn headers_without_end_are_cut_off() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        let ram = ram();
        let mut image = KernelImage::new(&file, &ram);
        let mut word = [0; 4];
        let reads = (0..=MAX_HEADER_READS)
            .take_while(|_| image.read(&mut word).is_ok())
            .count();
        assert_eq!(reads as u64, u64::from(MAX_HEADER_READS));
    }
}

//! The file that a helper writes a disk to.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use agent_images::disk::{WriteAt, data_runs};
use agent_images::oci::Output;

use crate::free_space::ReserveGuard;

/// The block size of most file systems.
const BLOCK_BYTES: u64 = 4096;

/// A new file on a file system that is not to be filled. Blocks of zeros that are written in a row become holes.
#[derive(Debug)]
pub(super) struct SparseFile {
    file: File,
    guard: ReserveGuard,
    /// Where the next byte in a row goes.
    at: u64,
}

impl SparseFile {
    /// Leaves so much of its file system free.
    pub(super) fn new(file: File, reserve_bytes: u64) -> Self {
        let guard = ReserveGuard::new(reserve_bytes);
        Self { file, guard, at: 0 }
    }

    /// Gives the file the size of what was written in a row.
    pub(super) fn finish(self) -> io::Result<File> {
        self.file.set_len(self.at)?;
        Ok(self.file)
    }
}

impl WriteAt for SparseFile {
    fn set_size(&mut self, bytes: u64) -> io::Result<()> {
        self.file.set_len(bytes)
    }

    fn write_all_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.guard.before_write(&self.file, bytes.len() as u64)?;
        FileExt::write_all_at(&self.file, bytes, offset)
    }
}

impl Write for SparseFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lead = usize::try_from(self.at % BLOCK_BYTES).unwrap_or(0);
        for (offset, run) in data_runs(bytes, lead) {
            self.write_all_at(run, self.at + offset as u64)?;
        }
        self.at += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Output for SparseFile {
    fn restart(&mut self) -> io::Result<()> {
        self.at = 0;
        self.file.set_len(0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn blocks_of_zeros_take_no_space_and_what_was_taken_back_is_gone() {
        let file = tempfile::tempfile_in("/var/tmp").unwrap();
        let mut output = SparseFile::new(file.try_clone().unwrap(), 0);
        output.write_all(&[1; 9000]).unwrap();
        output.restart().unwrap();
        output.write_all(&[0; 1 << 20]).unwrap();
        output.write_all(&[7; 100]).unwrap();
        output.write_all(&[0; 1 << 20]).unwrap();
        let file = output.finish().unwrap();
        file.sync_all().unwrap();
        let found = file.metadata().unwrap();
        assert_eq!(found.len(), (2 << 20) + 100);
        assert!(found.blocks() * 512 <= 16 << 10, "{}", found.blocks());
        let mut buffer = [1; 102];
        FileExt::read_exact_at(&file, &mut buffer, (1 << 20) - 1).unwrap();
        assert_eq!(
            (buffer[0], buffer[1], buffer[100], buffer[101]),
            (0, 7, 7, 0)
        );
        FileExt::read_exact_at(&file, &mut buffer, 8900).unwrap();
        assert_eq!(buffer, [0; 102]);
    }
}

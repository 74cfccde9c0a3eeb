//! The file that a helper writes a disk to.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

use agent_images::disk::WriteAt;

use crate::room::RoomGuard;

/// A new file on a file system that is not to be filled.
#[derive(Debug)]
pub(super) struct SparseFile {
    file: File,
    guard: RoomGuard,
}

impl SparseFile {
    /// Leaves so much of its file system free.
    pub(super) fn new(file: File, reserve_bytes: u64) -> Self {
        let guard = RoomGuard::new(reserve_bytes);
        Self { file, guard }
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
        self.guard.before_write(&self.file, bytes.len() as u64)?;
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

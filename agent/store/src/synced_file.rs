//! The file below the database: once a sync of it has failed, the next one writes all of it again.
//!
//! Linux reports a failed writeback once and takes the pages for clean from then on. A sync that is tried again succeeds then
//! without the data, be it by this process or by the next one, and later transactions would rest upon pages that never
//! reached the disk. What the page cache still holds is right; writing it again makes it dirty again. A page that was dropped
//! meanwhile comes back from the disk as it was before, which the checksums of the database find.

use std::fs::{File, OpenOptions};
use std::io;
use std::ops::Bound;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

/// How much is written again in one go.
const CHUNK: usize = 1 << 20;

/// Where it is remembered that a sync has failed, beside the file: the page cache outlives a process.
fn mark_of(path: &Path) -> PathBuf {
    let mut mark = path.as_os_str().to_owned();
    mark.push(".unsynced");
    mark.into()
}

/// Storage whose syncs are not believed after one that failed.
#[derive(Debug)]
pub(crate) struct SyncedFile<B> {
    below: B,
    /// Where a failed sync is remembered.
    mark: PathBuf,
    /// A sync has failed, and none has succeeded that wrote everything again.
    is_unsynced: AtomicBool,
}

impl SyncedFile<FileBackend> {
    /// The file at `path`, or a new one that only its owner can read.
    pub(crate) fn open(path: &Path) -> Result<Self, DatabaseError> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file: File = options.open(path)?;
        Ok(Self::over(FileBackend::new(file)?, path))
    }
}

impl<B: StorageBackend> SyncedFile<B> {
    /// Storage of the file at `path`.
    fn over(below: B, path: &Path) -> Self {
        let mark = mark_of(path);
        // An error is taken for a mark: it costs no more than writing everything once.
        let is_unsynced = mark.try_exists().unwrap_or(true);
        Self {
            below,
            mark,
            is_unsynced: AtomicBool::new(is_unsynced),
        }
    }

    fn set_mark(&self) {
        self.is_unsynced.store(true, Ordering::Release);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false).mode(0o600);
        // Where the mark cannot be made, this process still knows; only the next one would not.
        let _made = options.open(&self.mark).is_ok();
    }

    fn clear_mark(&self) {
        // A mark that stays costs the next process no more than writing everything once.
        let _removed = std::fs::remove_file(&self.mark).is_ok();
        self.is_unsynced.store(false, Ordering::Release);
    }

    fn write_again(&self) -> io::Result<()> {
        let length = self.below.len()?;
        let mut chunk = vec![0; CHUNK];
        let mut offset = 0;
        while offset < length {
            let rest = usize::try_from(length - offset).unwrap_or(CHUNK);
            let part = &mut chunk[..rest.min(CHUNK)];
            self.below.read(offset, part)?;
            self.below.write(offset, part)?;
            offset += part.len() as u64;
        }
        Ok(())
    }
}

impl<B: StorageBackend> StorageBackend for SyncedFile<B> {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        self.below.read(offset, out)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.below.set_len(len)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.below.write(offset, data)
    }

    fn sync_data(&self) -> io::Result<()> {
        let is_unsynced = self.is_unsynced.load(Ordering::Acquire);
        if is_unsynced {
            self.write_again()?;
        }
        if let Err(error) = self.below.sync_data() {
            self.set_mark();
            return Err(error);
        }
        if is_unsynced {
            self.clear_mark();
        }
        Ok(())
    }

    fn close(&self) -> io::Result<()> {
        self.below.close()
    }

    fn try_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.below.try_lock_range(start, end)
    }

    fn try_lock_shared_range(
        &self,
        start: Bound<u64>,
        end: Bound<u64>,
    ) -> Result<bool, BackendError> {
        self.below.try_lock_shared_range(start, end)
    }

    fn lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.below.lock_range(start, end)
    }

    fn lock_shared_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.below.lock_shared_range(start, end)
    }

    fn unlock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<(), BackendError> {
        self.below.unlock_range(start, end)
    }

    fn query_lock_range(&self, start: Bound<u64>, end: Bound<u64>) -> Result<bool, BackendError> {
        self.below.query_lock_range(start, end)
    }
}

#[cfg(test)]
mod tests;

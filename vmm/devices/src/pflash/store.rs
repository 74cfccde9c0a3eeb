//! The content of flash memory, in memory and in a file.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use vmm_memory::{RomError, RomMemory};

use super::layout::{BLOCK_BYTES, MAX_BYTES};
use crate::sync_failure::SyncFailureLatch;

/// A block.
const ERASED: [u8; 4096] = [0xff; 4096];

/// The result of [`overwrite`].
#[derive(Debug)]
enum Overwritten {
    /// All bytes are the new ones.
    Whole,
    /// The host failed, and all bytes are the old ones.
    Restored,
    /// The host failed in between, and could not put back what was there before either.
    InPart(io::Error),
}

/// Replaces all of `before` by `data`, or nothing.
fn overwrite(file: &impl FileExt, offset: u64, data: &[u8], before: &[u8]) -> Overwritten {
    let mut done = 0;
    let failure = loop {
        let Some(rest) = data.get(done..).filter(|rest| !rest.is_empty()) else {
            return Overwritten::Whole;
        };
        match file.write_at(rest, offset + done as u64) {
            Ok(0) => break io::ErrorKind::WriteZero.into(),
            Ok(count) => done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => break error,
        }
    };
    let written = before.get(..done).unwrap_or(before);
    match file.write_all_at(written, offset) {
        Ok(()) => Overwritten::Restored,
        Err(_) => Overwritten::InPart(failure),
    }
}

/// A file cannot be flash memory.
#[derive(Debug, thiserror::Error)]
pub enum FlashError {
    /// Its length.
    #[error(
        "the variable store has {0} bytes; it must be a multiple of {BLOCK_BYTES} up to {MAX_BYTES}"
    )]
    Size(u64),
    /// It cannot be read.
    #[error("the variable store cannot be read")]
    Read(#[source] io::Error),
    /// There is no memory for it.
    #[error("the variable store does not fit into memory")]
    Memory(#[from] RomError),
}

#[derive(Debug)]
pub(super) struct Store {
    file: File,
    memory: Arc<RomMemory>,
    /// The file has what is not on stable storage yet.
    is_dirty: bool,
    sync_failure: Arc<SyncFailureLatch>,
}

impl Store {
    pub(super) fn new(file: File) -> Result<Self, FlashError> {
        let bytes = file.metadata().map_err(FlashError::Read)?.len();
        if bytes == 0 || !bytes.is_multiple_of(BLOCK_BYTES) || bytes > MAX_BYTES {
            return Err(FlashError::Size(bytes));
        }
        let mut content = vec![0; usize::try_from(bytes).map_err(|_| FlashError::Size(bytes))?];
        file.read_exact_at(&mut content, 0)
            .map_err(FlashError::Read)?;
        Ok(Self {
            file,
            memory: Arc::new(RomMemory::of(&content)?),
            is_dirty: false,
            sync_failure: Arc::default(),
        })
    }

    pub(super) fn memory(&self) -> Arc<RomMemory> {
        Arc::clone(&self.memory)
    }

    pub(super) fn bytes(&self) -> u64 {
        self.memory.bytes() as u64
    }

    pub(super) fn read(&self, offset: u64, data: &mut [u8]) {
        self.memory
            .read(usize::try_from(offset).unwrap_or(usize::MAX), data);
    }

    /// Stores a byte; false when it is beyond the end or the host failed.
    pub(super) fn program(&mut self, offset: u64, value: u8) -> bool {
        self.write(offset, &[value])
    }

    /// Erases the block that `offset` is in.
    pub(super) fn erase(&mut self, offset: u64) -> bool {
        self.write(offset - offset % BLOCK_BYTES, &ERASED)
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> bool {
        let end = offset.checked_add(data.len() as u64);
        let (Some(_), Ok(at)) = (
            end.filter(|end| *end <= self.bytes()),
            usize::try_from(offset),
        ) else {
            return false;
        };
        // What the file does not have, a guest is not to see either.
        let mut before = vec![0; data.len()];
        self.memory.read(at, &mut before);
        match overwrite(&self.file, offset, data, &before) {
            Overwritten::Whole => {}
            Overwritten::Restored => {
                self.is_dirty = true;
                return false;
            }
            Overwritten::InPart(error) => {
                // Nobody knows any more what the file has: whatever is programmed from now on is not called durable.
                self.sync_failure.note_error(&error);
                self.is_dirty = true;
                return false;
            }
        }
        self.is_dirty = true;
        self.memory.write(at, data);
        true
    }

    #[cfg(test)]
    pub(super) fn is_dirty(&self) -> bool {
        self.is_dirty
    }

    /// That a sync failed, once one has.
    pub(super) fn sync_failure(&self) -> &Arc<SyncFailureLatch> {
        &self.sync_failure
    }

    /// Brings everything to stable storage. Once that has failed, it fails for all that is written later:
    /// without asking the host, which would say that all is well.
    pub(super) fn flush(&mut self) -> io::Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        // Whether or not it failed: the kernel has given up on what it could not write.
        self.is_dirty = false;
        if let Some(errno) = self.sync_failure.errno() {
            return Err(io::Error::from_raw_os_error(errno));
        }
        self.file
            .sync_data()
            .inspect_err(|error| self.sync_failure.note_error(error))
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::io;
    use std::os::unix::fs::FileExt;

    use super::{Overwritten, overwrite};

    /// A file that takes so many bytes and then fails so many times.
    struct Failing {
        content: RefCell<Vec<u8>>,
        takes: Cell<usize>,
        failures: Cell<u32>,
    }

    impl FileExt for Failing {
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn write_at(&self, data: &[u8], offset: u64) -> io::Result<usize> {
            let count = data.len().min(self.takes.get());
            if count == 0 {
                let left = self.failures.get().checked_sub(1);
                self.failures.set(left.expect("no more writes"));
                if left == Some(0) {
                    self.takes.set(usize::MAX);
                }
                return Err(io::Error::from_raw_os_error(nix::libc::ENOSPC));
            }
            self.takes.set(self.takes.get() - count);
            let at = usize::try_from(offset).expect("small");
            self.content.borrow_mut()[at..at + count].copy_from_slice(&data[..count]);
            Ok(count)
        }
    }

    fn erased_after(takes: usize, failures: u32) -> (Overwritten, Vec<u8>) {
        let file = Failing {
            content: RefCell::new(b"..before..".to_vec()),
            takes: Cell::new(takes),
            failures: Cell::new(failures),
        };
        let outcome = overwrite(&file, 2, b"\xff\xff\xff\xff\xff\xff", b"before");
        (outcome, file.content.into_inner())
    }

    #[test]
    fn an_erasure_that_fails_midway_leaves_what_was_there_or_is_a_loss() {
        let (outcome, content) = erased_after(3, 1);
        assert!(matches!(outcome, Overwritten::Restored), "{outcome:?}");
        assert_eq!(content, b"..before..");
        let (outcome, content) = erased_after(3, 2);
        assert!(matches!(outcome, Overwritten::InPart(_)), "{outcome:?}");
        assert_eq!(content, b"..\xff\xff\xffore..");
        let (outcome, _) = erased_after(0, 1);
        assert!(matches!(outcome, Overwritten::Restored), "{outcome:?}");
        let (outcome, content) = erased_after(6, 0);
        assert!(matches!(outcome, Overwritten::Whole), "{outcome:?}");
        assert_eq!(content, b"..\xff\xff\xff\xff\xff\xff..");
    }
}

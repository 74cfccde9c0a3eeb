//! The write-ahead log: the rows that transactions changed, one frame for each sync, one behind the other.
//!
//! A commit of the database changes pages all over its file, and the same pages again with the next commit. What changes of the rows
//! is a tenth of that, in one piece, and takes one request and one flush of the disk. The file of the database is synced
//! when the log is full (a checkpoint), and an agent that starts carries out what the log has.
//!
//! A row of the database names the epoch of the log. A checkpoint chooses another one in its own transaction, which makes all frames
//! void; they are overwritten in turn. Whatever is read from the file is of this epoch as a whole, or does not count.

use std::fs::OpenOptions;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use redb::StorageBackend;
use redb::backends::FileBackend;

use crate::directory::sync_parent;
use crate::frames::{PREFIX_BYTES, finish, frame_at};
use crate::operations::Operations;

/// Bytes of the log at most, which the agent after one that was killed has to carry out.
const LOG_BYTES: u64 = 4 << 20;

/// The file grows by so much: most syncs need no new blocks.
const GROWTH_BYTES: u64 = 256 << 10;

/// The log of the ledger at `path`.
pub(crate) fn wal_of(path: &Path) -> PathBuf {
    path.with_added_extension("wal")
}

/// Makes the log's file.
fn create(path: &Path) -> io::Result<Box<dyn StorageBackend>> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(path)?;
    sync_parent(path)?;
    Ok(Box::new(backend(file)?))
}

fn backend(file: std::fs::File) -> io::Result<FileBackend> {
    FileBackend::new(file).map_err(io::Error::other)
}

/// The write-ahead log.
#[derive(Debug)]
pub(crate) struct Wal {
    path: PathBuf,
    /// Made when it is first needed: a ledger opens on a full disk, too.
    file: Option<Box<dyn StorageBackend>>,
    /// The one that the database names; `None` where it names none.
    epoch: Option<u64>,
    /// Frames of this epoch.
    frames: u64,
    /// Where the next frame goes.
    end: u64,
    /// No frame may follow: whether those that are there have reached the disk is not known.
    is_spoiled: bool,
}

impl Wal {
    /// The log of the ledger at `path`. Nothing is written.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let path = wal_of(path);
        let file: Option<Box<dyn StorageBackend>> =
            match OpenOptions::new().read(true).write(true).open(&path) {
                Ok(file) => Some(Box::new(backend(file)?)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
        Ok(Self::over(path, file))
    }

    const fn over(path: PathBuf, file: Option<Box<dyn StorageBackend>>) -> Self {
        Self {
            path,
            file,
            epoch: None,
            frames: 0,
            end: 0,
            is_spoiled: false,
        }
    }

    /// A log in a file of a test.
    #[cfg(test)]
    pub(crate) fn of_file(file: impl StorageBackend) -> Self {
        Self::over(PathBuf::new(), Some(Box::new(file)))
    }

    /// The frames of the epoch that the database names. None may follow them: the page cache may have what the disk has not, after a
    /// sync that failed.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub(crate) fn read(&mut self, epoch: u64) -> io::Result<Vec<Vec<u8>>> {
        self.begin(epoch);
        let mut frames = Vec::new();
        if let Some(file) = &self.file {
            while let Some(frame) = frame_at(&**file, self.end, (epoch, self.frames))? {
                self.frames += 1;
                self.end += frame.len() as u64;
                frames.push(frame);
            }
        }
        self.is_spoiled = !frames.is_empty();
        Ok(frames)
    }

    /// A checkpoint has chosen this epoch: no frame is left.
    pub(crate) const fn begin(&mut self, epoch: u64) {
        self.epoch = Some(epoch);
        self.frames = 0;
        self.end = 0;
        self.is_spoiled = false;
    }

    /// Whether there is nothing that the file of the database has not.
    pub(crate) const fn is_empty(&self) -> bool {
        self.frames == 0 && !self.is_spoiled
    }

    /// Puts operations behind the others, on disk. False when a checkpoint has to take their place: they do not fit, or cannot be
    /// written.
    pub(crate) fn append(&mut self, operations: Operations) -> bool {
        let (Some(epoch), Some(mut frame)) = (self.epoch, operations.into_frame()) else {
            return false;
        };
        let end = self.end.saturating_add(frame.len() as u64);
        if self.is_spoiled || end > LOG_BYTES {
            return false;
        }
        finish(&mut frame, epoch, self.frames);
        if self.write(&frame, end).is_ok() {
            self.frames += 1;
            self.end = end;
            return true;
        }
        // For want of space above all. Nobody can say what of it is on disk.
        self.is_spoiled = true;
        self.erase();
        false
    }

    /// Has the frame that could not be written not count where the file is read again, as far as that can be done.
    fn erase(&mut self) {
        let offset = self.end;
        if let Some(file) = &self.file {
            // What cannot be erased is void after the checkpoint that follows.
            drop(file.write(offset, &[0; PREFIX_BYTES]));
        }
    }

    fn write(&mut self, frame: &[u8], end: u64) -> io::Result<()> {
        let offset = self.end;
        let file = match &mut self.file {
            Some(file) => file,
            missing => missing.insert(create(&self.path)?),
        };
        let length = file.len()?;
        if length < end {
            let wanted = end.next_multiple_of(GROWTH_BYTES);
            file.set_len(wanted)?;
            let more = usize::try_from(wanted - length).unwrap_or_default();
            file.write(length, &vec![0; more])?;
        }
        file.write(offset, frame)?;
        file.sync_data()
    }
}

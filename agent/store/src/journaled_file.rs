//! The file below the database, with a journal: a sync puts what was written into the journal in one piece, and the file itself is
//! synced once for many of them.
//!
//! What was written since the file was synced is in the journal too, so that after a power cut, when any of it may be missing
//! from the file, it is written again. The head alone, by which the database finds all else, reaches the file after its frame
//! is on disk: so a file whose head is in no frame is not the one that the journal is of. It was put back from a copy, or an agent
//! that knows of no journal wrote to it.

use std::fs::OpenOptions;
use std::io;
use std::ops::{Bound, Range};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use redb::backends::FileBackend;
use redb::{BackendError, DatabaseError, StorageBackend};

use crate::directory::sync_parent;
use crate::journal::{CHANGE_BYTES, Change, FRAME_BYTES, Frame, HEAD_BYTES, Head, Journal};

/// The journal of the ledger at `path`.
pub(crate) fn journal_of(path: &Path) -> PathBuf {
    path.with_added_extension("journal")
}

/// Storage whose syncs go to a journal.
#[derive(Debug)]
pub(crate) struct JournaledFile<B, J> {
    below: B,
    state: Mutex<State<J>>,
}

#[derive(Debug)]
struct State<J> {
    journal: Journal<J>,
    /// What was written since the last sync; `None` when that was too much for a frame.
    frame: Option<Frame>,
    /// Something was written since the last sync.
    is_dirty: bool,
    /// The head that the file has.
    head: Head,
    /// The head that was written since the last sync.
    new_head: Option<Head>,
}

impl<B: StorageBackend> JournaledFile<B, FileBackend> {
    /// The file at `path`, which is `below`, as it was when it was synced last. A journal of another file is put aside.
    ///
    /// # Errors
    /// When the file or its journal cannot be read or written.
    pub(crate) fn open(below: B, path: &Path) -> Result<Self, DatabaseError> {
        let name = journal_of(path);
        let mut journal = open_journal(&name)?;
        if !is_of(&mut journal, &head_of(&below)?)? {
            journal.close()?;
            std::fs::rename(&name, name.with_added_extension("unused"))?;
            journal = open_journal(&name)?;
        }
        Ok(Self::over(below, journal)?)
    }
}

fn open_journal(name: &Path) -> Result<Journal<FileBackend>, DatabaseError> {
    let is_new = !name.exists();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.mode(0o600).open(name)?;
    if is_new {
        sync_parent(name)?;
    }
    Ok(Journal::open(FileBackend::new(file)?)?)
}

impl<B: StorageBackend, J: StorageBackend> JournaledFile<B, J> {
    /// Storage of a file, with what its journal has.
    fn over(below: B, mut journal: Journal<J>) -> io::Result<Self> {
        journal.replay(|frame| write_again(&below, frame))?;
        if !journal.is_empty() {
            below.sync_data()?;
            journal.reset()?;
        }
        let head = head_of(&below)?;
        let state = State {
            journal,
            frame: Some(Frame::after(&head)),
            is_dirty: false,
            head,
            new_head: None,
        };
        Ok(Self {
            below,
            state: Mutex::new(state),
        })
    }

    /// No holder of the lock can leave it half changed.
    fn locked(&self) -> MutexGuard<'_, State<J>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The first sector of a file; zeros where it is shorter.
fn head_of(file: &impl StorageBackend) -> io::Result<Head> {
    let mut head = [0; HEAD_BYTES];
    let there = usize::try_from(file.len()?).unwrap_or(HEAD_BYTES);
    if let Some(there) = head.get_mut(..there.min(HEAD_BYTES)) {
        file.read(0, there)?;
    }
    Ok(head)
}

/// Whether a file with this head is the one whose changes a journal has. It has none of them yet, or some, or all.
fn is_of<J: StorageBackend>(journal: &mut Journal<J>, head: &Head) -> io::Result<bool> {
    let mut is_known = false;
    journal.replay(|frame| {
        let mut after = *frame.before();
        is_known |= &after == head;
        for change in frame.changes() {
            change_head(&mut after, change);
        }
        is_known |= &after == head;
        Ok(())
    })?;
    Ok(is_known || journal.is_empty())
}

/// What a change does to the head. Answers whether it is one of the head.
fn change_head(head: &mut Head, change: Change<'_>) -> bool {
    let Change::Write(offset, data) = change else {
        return false;
    };
    let range = in_head(offset, data.len());
    let length = range.len();
    if let (Some(place), Some(data)) = (head.get_mut(range), data.get(..length)) {
        place.copy_from_slice(data);
    }
    length > 0
}

/// As much of a range of the file as lies in the head.
fn in_head(offset: u64, length: usize) -> Range<usize> {
    let start = usize::try_from(offset).map_or(HEAD_BYTES, |start| start.min(HEAD_BYTES));
    start..start.saturating_add(length).min(HEAD_BYTES)
}

fn write_again(below: &impl StorageBackend, frame: &Frame) -> io::Result<()> {
    frame.changes().try_for_each(|change| match change {
        Change::Write(offset, data) => {
            let end = offset.saturating_add(data.len() as u64);
            if below.len()? < end {
                below.set_len(end)?;
            }
            below.write(offset, data)
        }
        Change::SetLength(length) => below.set_len(length),
    })
}

impl<J: StorageBackend> State<J> {
    fn add(&mut self, change: Change<'_>) {
        self.is_dirty = true;
        let more = match change {
            Change::Write(_, data) => data.len(),
            Change::SetLength(_) => 0,
        };
        match &mut self.frame {
            Some(frame) if frame.len() + more + CHANGE_BYTES <= FRAME_BYTES => frame.add(change),
            frame => *frame = None,
        }
    }

    /// Everything that was written is on disk. The file is given its head.
    fn settle(&mut self, below: &impl StorageBackend) -> io::Result<()> {
        if let Some(head) = self.new_head.take() {
            below.write(0, &head)?;
            self.head = head;
        }
        self.is_dirty = false;
        let used = self.frame.take();
        self.frame = Some(Frame::in_place_of(used, &self.head));
        Ok(())
    }

    /// Syncs the file, in which all is that the journal has.
    fn sync_file(&mut self, below: &impl StorageBackend) -> io::Result<()> {
        below.sync_data()?;
        if self.journal.is_empty() {
            return Ok(());
        }
        self.journal.reset()
    }

    /// Puts what was written into the journal, if it can be.
    fn append(&mut self, below: &impl StorageBackend) -> io::Result<bool> {
        let Some(length) = self.frame.as_ref().map(Frame::len) else {
            return Ok(false);
        };
        if !self.journal.has_room(length) {
            self.sync_file(below)?;
        }
        // Where it cannot be written, for want of space above all, the file itself is synced.
        let appended = self.frame.as_mut().map(|frame| self.journal.append(frame));
        Ok(appended.is_some_and(|appended| appended.is_ok()))
    }

    fn sync(&mut self, below: &impl StorageBackend) -> io::Result<()> {
        if !self.is_dirty {
            return Ok(());
        }
        if self.append(below)? {
            return self.settle(below);
        }
        // All but the head first: without it none of this counts.
        self.sync_file(below)?;
        self.settle(below)?;
        below.sync_data()
    }
}

impl<B: StorageBackend, J: StorageBackend> StorageBackend for JournaledFile<B, J> {
    fn len(&self) -> io::Result<u64> {
        self.below.len()
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let range = in_head(offset, out.len());
        if range.is_empty() {
            return self.below.read(offset, out);
        }
        let state = self.locked();
        self.below.read(offset, out)?;
        let length = range.len();
        if let (Some(head), Some(place)) = (&state.new_head, out.get_mut(..length))
            && let Some(head) = head.get(range)
        {
            place.copy_from_slice(head);
        }
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.locked().add(Change::SetLength(len));
        self.below.set_len(len)
    }

    fn sync_data(&self) -> io::Result<()> {
        self.locked().sync(&self.below)
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let change = Change::Write(offset, data);
        let mut state = self.locked();
        state.add(change);
        let mut head = state.new_head.unwrap_or(state.head);
        if change_head(&mut head, change) {
            state.new_head = Some(head);
        }
        let held = in_head(offset, data.len()).len();
        match data.get(held..) {
            Some(rest) if !rest.is_empty() => self.below.write(offset + held as u64, rest),
            _ => Ok(()),
        }
    }

    fn close(&self) -> io::Result<()> {
        let mut state = self.locked();
        let synced = if state.journal.is_empty() {
            Ok(())
        } else {
            state.sync_file(&self.below)
        };
        let closed = self.below.close();
        synced.and(closed).and(state.journal.close())
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

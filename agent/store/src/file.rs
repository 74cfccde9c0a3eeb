//! The file of the ledger: opened, and opened anew after it failed.
//!
//! redb refuses all transactions after an I/O error until the file is reopened, even if the disk was full only for a
//! moment. The agent goes on after that: the next use closes the file and opens it again.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redb::{Database, DatabaseError, Durability, StorageError};

use crate::directory::sync_parent;
use crate::error::{OpenError, StoreError};
use crate::journaled_file::{JournaledFile, journal_of};
use crate::synced_file::SyncedFile;

/// Pages kept in memory. The agent's whole budget is 40 MiB; the working set is far below this.
const CACHE_BYTES: usize = 4 << 20;

/// A file that cannot be opened again is left alone for so long: opening it reads all of it.
const PAUSE: Duration = Duration::from_millis(500);

/// The file.
#[derive(Debug)]
pub(crate) struct LedgerFile {
    path: PathBuf,
    /// Nothing while it could not be opened again. Never locked while it is worked on: work may read within a write.
    database: Mutex<Option<Arc<Database>>>,
    has_failed: AtomicBool,
    tried_at: Mutex<Option<Instant>>,
}

impl LedgerFile {
    /// Opens it, or makes an empty one.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            make(path)?;
        }
        let database = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            database: Mutex::new(Some(Arc::new(database))),
            has_failed: AtomicBool::new(false),
            tried_at: Mutex::new(None),
        })
    }

    /// Runs `work` on it.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.has_failed.load(Ordering::Acquire) {
            self.open_again()?;
        }
        let present = locked(&self.database).clone();
        let done = work(&*present.ok_or(StoreError::Closed)?);
        if done.as_ref().is_err_and(is_of_the_file) {
            self.has_failed.store(true, Ordering::Release);
        }
        done
    }

    /// Closes it and opens it again. While somebody still works on it that is refused, and tried again later.
    fn open_again(&self) -> Result<(), StoreError> {
        let mut tried_at = locked(&self.tried_at);
        if !self.has_failed.load(Ordering::Acquire) {
            return Ok(());
        }
        if tried_at.is_some_and(|at| at.elapsed() < PAUSE) {
            return Err(StoreError::Closed);
        }
        *tried_at = Some(Instant::now());
        let mut present = locked(&self.database);
        // One file is open once: the old one goes first.
        drop(present.take());
        let again = open(&self.path).map_err(|error| StoreError::Lost(Box::new(error)))?;
        *present = Some(Arc::new(again));
        self.has_failed.store(false, Ordering::Release);
        Ok(())
    }
}

/// No holder of these locks can leave what they guard half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &Path) -> Result<Database, OpenError> {
    // A damaged file may trip assertions of the database; to the operator it is damage all the same.
    let opened = std::panic::catch_unwind(|| {
        let file = JournaledFile::open(SyncedFile::open(path)?, path)?;
        let mut builder = Database::builder();
        builder
            .set_cache_size(CACHE_BYTES)
            .create_with_backend(file)
    });
    match opened {
        Ok(Ok(database)) => Ok(database),
        Ok(Err(error)) => Err(explain(path, error)),
        Err(_) => Err(damaged(path, "its pages contradict each other")),
    }
}

/// Makes an empty file under another name first: half of one would be no database.
fn make(path: &Path) -> Result<(), OpenError> {
    let draft = path.with_added_extension("new");
    let failed = |source| OpenError::Io {
        path: path.to_owned(),
        source,
    };
    for left in [draft.clone(), journal_of(&draft)] {
        match std::fs::remove_file(left) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
            _ => {}
        }
    }
    let new = open(&draft)?;
    drop(new);
    let made = std::fs::remove_file(journal_of(&draft));
    made.and_then(|()| std::fs::rename(&draft, path))
        .and_then(|()| sync_parent(path))
        .map_err(failed)
}

/// Opens the file if it is there.
pub(crate) fn open_present(path: &Path) -> Result<Database, OpenError> {
    if !path.exists() {
        return Err(absent(path));
    }
    open(path)
}

/// Whether the file failed, now or before; the database is of no use then.
fn is_of_the_file(error: &StoreError) -> bool {
    let StoreError::Database(error) = error else {
        return false;
    };
    matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo)
}

/// Why a ledger that could be opened could not be used.
pub(crate) fn not_open(path: &Path, error: StoreError) -> OpenError {
    match error {
        StoreError::Database(redb::Error::Io(source))
            if source.kind() != ErrorKind::InvalidData =>
        {
            OpenError::Io {
                path: path.to_owned(),
                source,
            }
        }
        other => damaged(path, &other.to_string()),
    }
}

fn damaged(path: &Path, what: &str) -> OpenError {
    OpenError::Damaged {
        path: path.to_owned(),
        what: what.to_owned(),
    }
}

fn explain(path: &Path, error: DatabaseError) -> OpenError {
    match error {
        DatabaseError::DatabaseAlreadyOpen => OpenError::InUse {
            path: path.to_owned(),
        },
        DatabaseError::UpgradeRequired(found) => {
            damaged(path, &format!("database format {found} is not known"))
        }
        // A file that is no database at all is reported as invalid data.
        DatabaseError::Storage(StorageError::Io(source))
            if source.kind() != ErrorKind::InvalidData =>
        {
            OpenError::Io {
                path: path.to_owned(),
                source,
            }
        }
        other => damaged(path, &other.to_string()),
    }
}

/// A transaction that is on disk once it is committed.
pub(crate) fn begin(database: &Database) -> Result<redb::WriteTransaction, StoreError> {
    let mut write = database.begin_write()?;
    write.set_durability(Durability::Immediate)?;
    Ok(write)
}

/// Why a ledger that is not there cannot be looked at.
pub(crate) fn absent(path: &Path) -> OpenError {
    OpenError::Io {
        path: path.to_owned(),
        source: ErrorKind::NotFound.into(),
    }
}

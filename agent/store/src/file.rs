//! The files of the ledger, that of the database and its write-ahead log: opened, and opened anew after one failed.
//!
//! redb refuses all transactions after an I/O error until the file is reopened, even if the disk was full only for a
//! moment. The agent goes on after that: the next use closes the file and opens it again.

use std::io::ErrorKind;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use redb::{
    Database, DatabaseError, Durability, ReadableDatabase, StorageBackend, StorageError,
    TableError, WriteTransaction,
};

use crate::directory::sync_parent;
use crate::error::{OpenError, StoreError};
use crate::migrate::recover_pages;
use crate::synced_file::SyncedFile;
use crate::tables::{FORMAT, META, META_FORMAT, META_WAL};
use crate::wal::Wal;
use crate::written::{Write, carry_out};

/// Pages kept in memory, of which half may be changed ones: further ones go to the file before a checkpoint. An agent with few
/// objects needs few of them.
const CACHE_BYTES: usize = 8 << 20;

/// A file that cannot be opened again is left alone for so long: opening it reads all of it.
const PAUSE: Duration = Duration::from_millis(500);

/// The files.
#[derive(Debug)]
pub(crate) struct LedgerFile {
    path: PathBuf,
    /// Nothing while they could not be opened again. Never locked while they are worked on: work may read within a write.
    opened: Mutex<Option<Arc<Opened>>>,
    has_failed: AtomicBool,
    tried_at: Mutex<Option<Instant>>,
}

/// The files while they are open.
#[derive(Debug)]
pub(crate) struct Opened {
    pub(crate) database: Database,
    wal: Mutex<Wal>,
}

impl LedgerFile {
    /// Opens it, or makes an empty one.
    pub(crate) fn open(path: &Path) -> Result<Self, OpenError> {
        if !path.exists() {
            make(path)?;
        }
        let opened = open(path)?;
        Ok(Self {
            path: path.to_owned(),
            opened: Mutex::new(Some(Arc::new(opened))),
            has_failed: AtomicBool::new(false),
            tried_at: Mutex::new(None),
        })
    }

    /// Runs `work` on it.
    pub(crate) fn with<T>(
        &self,
        work: impl FnOnce(&Opened) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if self.has_failed.load(Ordering::Acquire) {
            self.open_again()?;
        }
        let present = locked(&self.opened).clone();
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
        let mut present = locked(&self.opened);
        // One file is open once: the old one goes first.
        drop(present.take());
        let again = open(&self.path).map_err(|error| StoreError::Lost(Box::new(error)))?;
        *present = Some(Arc::new(again));
        self.has_failed.store(false, Ordering::Release);
        Ok(())
    }
}

impl Drop for LedgerFile {
    /// Leaves no log behind. Where that fails, the next agent carries it out.
    fn drop(&mut self) {
        if !self.has_failed.load(Ordering::Acquire) {
            let closed = self.with(Opened::close);
            drop(closed);
        }
    }
}

impl Opened {
    /// A database, with what its log has.
    fn of(database: Database, mut wal: Wal) -> Result<Self, StoreError> {
        if let Some(epoch) = epoch_of(&database)? {
            let frames = wal.read(epoch).map_err(io_error)?;
            if !frames.is_empty() {
                let mut write = database.begin_write()?;
                // It stays in memory: the agent starts on a full disk, too.
                write.set_durability(Durability::None)?;
                carry_out(&write, &frames)?;
                write.commit()?;
            }
        }
        Ok(Self {
            database,
            wal: Mutex::new(wal),
        })
    }

    /// Begins a transaction.
    pub(crate) fn begin(&self) -> Result<Write, StoreError> {
        Ok(Write::new(self.database.begin_write()?))
    }

    /// Commits a transaction, which is on disk then.
    pub(crate) fn commit(&self, write: Write) -> Result<(), StoreError> {
        let Write {
            mut transaction,
            operations,
        } = write;
        let operations = operations.into_inner();
        if operations.is_empty() {
            return Ok(transaction.abort()?);
        }
        let mut wal = locked(&self.wal);
        if !wal.append(operations) {
            return checkpoint(transaction, &mut wal);
        }
        transaction.set_durability(Durability::None)?;
        Ok(transaction.commit()?)
    }

    /// Commits a transaction whose operations nobody noted.
    pub(crate) fn commit_pages(&self, write: Write) -> Result<(), StoreError> {
        checkpoint(write.transaction, &mut locked(&self.wal))
    }

    fn close(&self) -> Result<(), StoreError> {
        let mut wal = locked(&self.wal);
        if wal.is_empty() {
            return Ok(());
        }
        checkpoint(self.database.begin_write()?, &mut wal)
    }
}

/// Commits a transaction and all before it to the file of the database, which needs no log then.
fn checkpoint(mut transaction: WriteTransaction, wal: &mut Wal) -> Result<(), StoreError> {
    let epoch = uuid::Uuid::new_v4().as_u64_pair().0;
    transaction.open_table(META)?.insert(META_WAL, epoch)?;
    transaction.set_durability(Durability::Immediate)?;
    transaction.commit()?;
    wal.begin(epoch);
    Ok(())
}

/// The epoch of the log that belongs to a database; none where it is of another format, which the log is not to be read for.
fn epoch_of(database: &Database) -> Result<Option<u64>, StoreError> {
    let meta = match database.begin_read()?.open_table(META) {
        Ok(meta) => meta,
        Err(TableError::TableDoesNotExist(_)) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    let format = meta.get(META_FORMAT)?.map(|value| value.value());
    if format != Some(FORMAT) {
        return Ok(None);
    }
    Ok(meta.get(META_WAL)?.map(|value| value.value()))
}

fn io_error(error: std::io::Error) -> StoreError {
    StoreError::Database(redb::Error::Io(error))
}

/// No holder of these locks can leave what they guard half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn open(path: &Path) -> Result<Opened, OpenError> {
    recover_pages(path).map_err(|source| match source.kind() {
        ErrorKind::WouldBlock => in_use(path),
        _ => OpenError::Io {
            path: path.to_owned(),
            source,
        },
    })?;
    // A damaged file may trip assertions of the database; to the operator it is damage all the same.
    let opened = std::panic::catch_unwind(|| {
        let database = open_database(SyncedFile::open(path)?)?;
        Ok((database, Wal::open(path)?))
    });
    let (database, wal) = match opened {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => return Err(explain(path, error)),
        Err(_) => return Err(damaged(path, "its pages contradict each other")),
    };
    let opened = std::panic::catch_unwind(AssertUnwindSafe(|| Opened::of(database, wal)));
    match opened {
        Ok(opened) => opened.map_err(|error| not_open(path, error)),
        Err(_) => Err(damaged(path, "its write-ahead log is not of its tables")),
    }
}

fn open_database(file: impl StorageBackend) -> Result<Database, DatabaseError> {
    let mut builder = Database::builder();
    builder
        .set_cache_size(CACHE_BYTES)
        .create_with_backend(file)
}

/// Makes an empty file under another name first: half of one would be no database.
fn make(path: &Path) -> Result<(), OpenError> {
    let draft = path.with_added_extension("new");
    let failed = |source| OpenError::Io {
        path: path.to_owned(),
        source,
    };
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let new = open(&draft)?;
    drop(new);
    std::fs::rename(&draft, path)
        .and_then(|()| sync_parent(path))
        .map_err(failed)
}

/// Opens the file if it is there.
pub(crate) fn open_present(path: &Path) -> Result<Opened, OpenError> {
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

fn in_use(path: &Path) -> OpenError {
    OpenError::InUse {
        path: path.to_owned(),
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
        DatabaseError::DatabaseAlreadyOpen => in_use(path),
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

/// Why a ledger that is not there cannot be looked at.
pub(crate) fn absent(path: &Path) -> OpenError {
    OpenError::Io {
        path: path.to_owned(),
        source: ErrorKind::NotFound.into(),
    }
}

#[cfg(test)]
mod tests;

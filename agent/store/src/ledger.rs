//! Opening the ledger, reading it, and the change log.

use std::io::ErrorKind;
use std::path::Path;

use agent_plan::Record;
use prost::Message;
use redb::{Database, DatabaseError, Durability, ReadableDatabase, StorageError};

use crate::rows::ChangeRow;
use crate::tables::{
    ASSIGNMENTS, CHANGES, CONTROL_PLANES, FORMAT, IDEMPOTENCY, MAINTENANCE, META, META_COMPACTED,
    META_FORMAT, META_VERSION, OBJECTS, RECORDS, UIDS,
};
use crate::{ObjectKey, OpenError, StoreError, StoredObject, Transaction};

/// Pages kept in memory. The agent's whole budget is 40 MiB; the working set is far below this.
const CACHE_BYTES: usize = 4 << 20;

/// How much is kept of what is not an object itself.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Entries of the change log.
    pub changes: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self { changes: 4096 }
    }
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// It was changed.
    Modified,
    /// It is gone.
    Deleted,
}

/// One entry of the change log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The version that the change made.
    pub version: u64,
    /// What happened.
    pub kind: ChangeKind,
    /// To which object.
    pub key: ObjectKey,
    /// The object after the change, or its last state.
    pub object: StoredObject,
}

/// The ledger. Shared by all actors; writers take turns.
#[derive(Debug)]
pub struct Ledger {
    pub(crate) database: Database,
    limits: Limits,
}

impl Ledger {
    /// Opens the ledger at `path`, or makes an empty one. The directory must exist.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing is changed then.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, OpenError> {
        let existed = path.exists();
        // A damaged file may trip assertions of the database; to the operator it is damage all the same.
        let opened = std::panic::catch_unwind(|| {
            Database::builder().set_cache_size(CACHE_BYTES).create(path)
        });
        let database = match opened {
            Ok(Ok(database)) => database,
            Ok(Err(error)) => return Err(explain(path, error)),
            Err(_) => return Err(damaged(path, "its pages contradict each other")),
        };
        if !existed {
            sync_parent(path).map_err(|source| OpenError::Io {
                path: path.to_owned(),
                source,
            })?;
        }
        let ledger = Self { database, limits };
        ledger.prepare(path)?;
        Ok(ledger)
    }

    /// Makes the tables, and checks their format.
    fn prepare(&self, path: &Path) -> Result<(), OpenError> {
        let found = self
            .format()
            .map_err(|error| damaged(path, &error.to_string()))?;
        if found > FORMAT {
            return Err(OpenError::Newer {
                path: path.to_owned(),
                found,
                known: FORMAT,
            });
        }
        self.create_tables()
            .map_err(|error| damaged(path, &error.to_string()))
    }

    /// The format of the tables; that of this release when there are none yet.
    fn format(&self) -> Result<u64, StoreError> {
        let read = self.database.begin_read()?;
        match read.open_table(META) {
            Ok(meta) => Ok(meta.get(META_FORMAT)?.map_or(FORMAT, |value| value.value())),
            Err(redb::TableError::TableDoesNotExist(_)) => Ok(FORMAT),
            Err(error) => Err(error.into()),
        }
    }

    fn create_tables(&self) -> Result<(), StoreError> {
        let write = self.begin()?;
        {
            write.open_table(META)?.insert(META_FORMAT, FORMAT)?;
            write.open_table(OBJECTS)?;
            write.open_table(UIDS)?;
            write.open_table(RECORDS)?;
            write.open_table(CHANGES)?;
            write.open_table(IDEMPOTENCY)?;
            write.open_table(ASSIGNMENTS)?;
            write.open_table(CONTROL_PLANES)?;
            write.open_table(MAINTENANCE)?;
        }
        write.commit()?;
        Ok(())
    }

    fn begin(&self) -> Result<redb::WriteTransaction, StoreError> {
        let mut write = self.database.begin_write()?;
        write.set_durability(Durability::Immediate)?;
        Ok(write)
    }

    /// Runs `work` in one transaction. When it returns `Ok`, all of it is on disk; otherwise nothing
    /// has changed. Blocks for the time of a sync.
    ///
    /// # Errors
    /// Those of `work`, and [`StoreError::Database`].
    pub fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        E: From<StoreError>,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    {
        let write = self.begin()?;
        let value = {
            let mut transaction = Transaction::open(&write, self.limits)?;
            let value = work(&mut transaction)?;
            transaction.close()?;
            value
        };
        write.commit().map_err(StoreError::from)?;
        Ok(value)
    }

    /// One object.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn object(&self, key: &ObjectKey) -> Result<Option<StoredObject>, StoreError> {
        let table = self.database.begin_read()?.open_table(OBJECTS)?;
        table
            .get(key.row().as_str())?
            .map(|row| decode(row.value(), "an object"))
            .transpose()
    }

    /// All objects of a kind, by namespace and name, and the version they were read at.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn objects(&self, kind: &str) -> Result<(Vec<(ObjectKey, StoredObject)>, u64), StoreError> {
        let read = self.database.begin_read()?;
        let version = read
            .open_table(META)?
            .get(META_VERSION)?
            .map_or(0, |value| value.value());
        let (first, end) = (ObjectKey::before_kind(kind), ObjectKey::after_kind(kind));
        let mut objects = Vec::new();
        for row in read
            .open_table(OBJECTS)?
            .range(first.as_str()..end.as_str())?
        {
            let (key, value) = row?;
            objects.push((parse_key(key.value())?, decode(value.value(), "an object")?));
        }
        Ok((objects, version))
    }

    /// The key of the object with this uid.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn key_of(&self, uid: &str) -> Result<Option<ObjectKey>, StoreError> {
        let table = self.database.begin_read()?.open_table(UIDS)?;
        table
            .get(uid)?
            .map(|row| parse_key(row.value()))
            .transpose()
    }

    /// The record of one VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn record(&self, uid: &str) -> Result<Option<Record>, StoreError> {
        let table = self.database.begin_read()?.open_table(RECORDS)?;
        table
            .get(uid)?
            .map(|row| decode_record(row.value()))
            .transpose()
    }

    /// The uid that an idempotency key stands for.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn uid_of_idempotency_key(&self, key: &str) -> Result<Option<String>, StoreError> {
        let table = self.database.begin_read()?.open_table(IDEMPOTENCY)?;
        Ok(table.get(key)?.map(|row| row.value().to_owned()))
    }

    /// The version of the last change.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn version(&self) -> Result<u64, StoreError> {
        let table = self.database.begin_read()?.open_table(META)?;
        Ok(table.get(META_VERSION)?.map_or(0, |value| value.value()))
    }

    /// At most `limit` changes after version `after`, the oldest first.
    ///
    /// # Errors
    /// [`StoreError::Expired`] when the log does not reach back that far, or `after` lies in the
    /// future (it is from another ledger).
    pub fn changes_after(&self, after: u64, limit: usize) -> Result<Vec<Change>, StoreError> {
        let read = self.database.begin_read()?;
        let meta = read.open_table(META)?;
        let compacted = meta.get(META_COMPACTED)?.map_or(0, |value| value.value());
        let newest = meta.get(META_VERSION)?.map_or(0, |value| value.value());
        if after < compacted || after > newest {
            return Err(StoreError::Expired {
                wanted: after,
                oldest: compacted,
            });
        }
        let mut changes = Vec::new();
        for row in read
            .open_table(CHANGES)?
            .range(after.saturating_add(1)..)?
            .take(limit)
        {
            let (version, value) = row?;
            changes.push(change(version.value(), value.value())?);
        }
        Ok(changes)
    }
}

fn change(version: u64, row: &[u8]) -> Result<Change, StoreError> {
    let row: ChangeRow = decode(row, "a change")?;
    let kind = match row.kind {
        1 => ChangeKind::Added,
        2 => ChangeKind::Modified,
        3 => ChangeKind::Deleted,
        other => {
            return Err(StoreError::Undecodable {
                what: format!("a change of kind {other}"),
            });
        }
    };
    let object = row.object.ok_or_else(|| StoreError::Undecodable {
        what: String::from("a change of nothing"),
    })?;
    Ok(Change {
        version,
        kind,
        key: parse_key(&row.key)?,
        object,
    })
}

pub(crate) fn decode<M: Message + Default>(bytes: &[u8], what: &str) -> Result<M, StoreError> {
    M::decode(bytes).map_err(|error| StoreError::Undecodable {
        what: format!("{what} ({error})"),
    })
}

pub(crate) fn decode_record(bytes: &[u8]) -> Result<Record, StoreError> {
    serde_json::from_slice(bytes).map_err(|error| StoreError::Undecodable {
        what: format!("a record ({error})"),
    })
}

pub(crate) fn parse_key(row: &str) -> Result<ObjectKey, StoreError> {
    ObjectKey::parse(row).ok_or_else(|| StoreError::Undecodable {
        what: format!("the key {row:?}"),
    })
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

/// A new file is only there for good once its directory is on disk.
fn sync_parent(path: &Path) -> std::io::Result<()> {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => std::fs::File::open(parent)?.sync_all(),
        _ => Ok(()),
    }
}

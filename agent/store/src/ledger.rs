//! Opening the ledger, reading it, and the change log.

use std::ops::Bound;
use std::path::Path;
use std::sync::Arc;

use redb::{
    Database, Key, ReadTransaction, ReadableDatabase, ReadableTable, TableDefinition, Value,
    WriteTransaction,
};

use crate::error::{OpenError, StoreError};
use crate::file::{LedgerFile, not_open};
use crate::group::{Group, Ran};
use crate::job::Asked;
use crate::limits::Limits;
use crate::migrate;
use crate::queue::Queue;
use crate::rows::{ObjectKey, StoredObject, decode, parse_key};
use crate::shown::ShownObject;
use crate::tables::{
    EachTable, FORMAT, IDEMPOTENCY, META, META_FORMAT, META_PATHS, META_VERSION, OBJECTS,
    SEAL_KEYS, UIDS, each_table,
};
use crate::transaction::Transaction;

/// Whether one of the tables is not there.
struct Lack<'a> {
    read: &'a ReadTransaction,
    lacks: bool,
}

impl EachTable for Lack<'_> {
    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, V>,
    ) -> Result<(), StoreError> {
        match self.read.open_table(definition) {
            Ok(_) => Ok(()),
            Err(redb::TableError::TableDoesNotExist(_)) => {
                self.lacks = true;
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }
}

/// Makes each table that is not there.
struct Create<'a>(&'a WriteTransaction);

impl EachTable for Create<'_> {
    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, V>,
    ) -> Result<(), StoreError> {
        self.0.open_table(definition)?;
        Ok(())
    }
}

/// How much is read in one go: until there is enough of either.
#[derive(Clone, Copy, Debug)]
pub struct Page {
    /// Objects.
    pub objects: usize,
    /// Bytes of their rows.
    pub bytes: usize,
}

impl Page {
    const WITHOUT_END: Self = Self {
        objects: usize::MAX,
        bytes: usize::MAX,
    };
}

/// The ledger. Shared by all actors; writers take turns.
#[derive(Debug)]
pub struct Ledger {
    // Ends before the file is closed.
    queue: Queue,
    file: Arc<LedgerFile>,
    group: Arc<Group>,
    limits: Limits,
}

impl Ledger {
    /// Opens the ledger at `path`, or makes an empty one. The directory must exist.
    ///
    /// # Errors
    /// See [`OpenError`]. Nothing is changed then.
    pub fn open(path: &Path, limits: Limits) -> Result<Self, OpenError> {
        let file = Arc::new(LedgerFile::open(path)?);
        let group = Arc::<Group>::default();
        let queue = Queue::begin(&file, &group, limits).map_err(|source| OpenError::Io {
            path: path.to_owned(),
            source,
        })?;
        let ledger = Self {
            queue,
            file,
            group,
            limits,
        };
        ledger.prepare(path)?;
        Ok(ledger)
    }

    /// Runs `work` on the database, which is opened anew if it failed before.
    ///
    /// # Errors
    /// Those of `work`, and why it cannot be opened.
    pub(crate) fn read<T>(
        &self,
        work: impl FnOnce(&Database) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.file.with(|opened| work(&opened.database))
    }

    /// Makes the tables, and checks their format. Where they are there, nothing is written: an agent starts on a
    /// full disk, too.
    fn prepare(&self, path: &Path) -> Result<(), OpenError> {
        let found = self.format().map_err(|error| not_open(path, error))?;
        if found.is_some_and(|found| found > FORMAT) {
            return Err(OpenError::Newer {
                path: path.to_owned(),
                found: found.unwrap_or_default(),
                known: FORMAT,
            });
        }
        let has_all = self.has_tables().map_err(|error| not_open(path, error))?;
        if found == Some(FORMAT) && has_all {
            return Ok(());
        }
        self.create_tables(found)
            .map_err(|error| not_open(path, error))
    }

    /// The format of the tables; nothing when there are none yet.
    fn format(&self) -> Result<Option<u64>, StoreError> {
        self.read(|database| {
            let read = database.begin_read()?;
            match read.open_table(META) {
                Ok(meta) => Ok(meta.get(META_FORMAT)?.map(|value| value.value())),
                Err(redb::TableError::TableDoesNotExist(_)) => Ok(None),
                Err(error) => Err(error.into()),
            }
        })
    }

    fn has_tables(&self) -> Result<bool, StoreError> {
        self.read(|database| {
            let mut lack = Lack {
                read: &database.begin_read()?,
                lacks: false,
            };
            each_table(&mut lack)?;
            Ok(!lack.lacks)
        })
    }

    /// Makes the tables that are missing, out of those of the format that was found.
    fn create_tables(&self, found: Option<u64>) -> Result<(), StoreError> {
        self.file.with(|opened| {
            let write = opened.begin()?;
            each_table(&mut Create(&write.transaction))?;
            {
                let mut meta = write.transaction.open_table(META)?;
                meta.insert(META_FORMAT, FORMAT)?;
                if found.is_none() {
                    // No VMI was accepted before paths were remembered.
                    meta.insert(META_PATHS, 1)?;
                }
            }
            if let Some(found) = found {
                migrate::from(found, &write)?;
            }
            opened.commit_pages(write)
        })
    }

    /// Runs `work` in one transaction. When it returns `Ok`, all of it is on disk; otherwise nothing
    /// has changed. Blocks for the time of a sync, which transactions that come meanwhile share.
    ///
    /// # Errors
    /// Those of `work`, [`StoreError::Database`], and [`StoreError::NotShared`].
    pub fn write<T, E, F>(&self, work: F) -> Result<T, E>
    where
        E: From<StoreError>,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, E>,
    {
        self.group.run(&self.file, |write| {
            let mut transaction = match Transaction::open(write, self.limits) {
                Ok(transaction) => transaction,
                Err(error) => return Ran::Spoiled(error.into()),
            };
            match work(&mut transaction) {
                Ok(value) => match transaction.close() {
                    Ok(()) => Ran::Done(value),
                    Err(error) => Ran::Spoiled(error.into()),
                },
                Err(error) if transaction.is_changed() => Ran::Spoiled(error),
                Err(error) => Ran::Refused(error),
            }
        })
    }

    /// Has `work` run in one transaction, as [`Self::write`] does, and blocks nobody: it runs on the ledger's own thread
    /// together with what else is asked for meanwhile, and `done` is called there with its result once that is on disk.
    /// Where `work` panics, `done` is dropped.
    pub fn submit<T, E, F, D>(&self, work: F, done: D)
    where
        T: Send + 'static,
        E: From<StoreError> + Send + 'static,
        F: FnOnce(&mut Transaction<'_>) -> Result<T, E> + Send + 'static,
        D: FnOnce(Result<T, E>) + Send + 'static,
    {
        self.queue.add(Box::new(Asked::new(work, done)));
    }

    /// One object.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn object(&self, key: &ObjectKey) -> Result<Option<StoredObject>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(OBJECTS)?;
            let row = table.get(key.row().as_str())?;
            row.map(|row| decode(row.value(), "an object")).transpose()
        })
    }

    /// One object or, where there is none, another one in its stead, which comes second.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn object_or(
        &self,
        key: &ObjectKey,
        other: &ObjectKey,
    ) -> Result<(Option<StoredObject>, Option<StoredObject>), StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(OBJECTS)?;
            let find = |key: &ObjectKey| {
                let row = table.get(key.row().as_str())?;
                row.map(|row| decode(row.value(), "an object")).transpose()
            };
            match find(key)? {
                Some(object) => Ok((Some(object), None)),
                None => Ok((None, find(other)?)),
            }
        })
    }

    /// All objects of a kind, by namespace and name, and the version they were read at.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn objects(&self, kind: &str) -> Result<(Vec<(ObjectKey, StoredObject)>, u64), StoreError> {
        self.between(&ObjectKey::before_kind(kind), &ObjectKey::after_kind(kind))
    }

    /// Shows each object of a kind, in one namespace or in all, by namespace and name, and returns the version that they
    /// were read at. Nothing of them is copied.
    ///
    /// # Errors
    /// Those of `show`, [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn show_each<E: From<StoreError>>(
        &self,
        (kind, namespace): (&str, Option<&str>),
        mut show: impl FnMut(ShownObject<'_>) -> Result<(), E>,
    ) -> Result<u64, E> {
        let within = match namespace {
            None => kind.to_owned(),
            Some(namespace) => format!("{}{namespace}", ObjectKey::before_kind(kind)),
        };
        let (first, end) = (
            ObjectKey::before_kind(&within),
            ObjectKey::after_kind(&within),
        );
        // What stops it is no failure of the file.
        let mut stopped = Ok(());
        let version = self.read(|database| {
            let read = database.begin_read()?;
            let meta = read.open_table(META)?;
            let version = meta.get(META_VERSION)?.map_or(0, |value| value.value());
            let table = read.open_table(OBJECTS)?;
            for row in table.range(first.as_str()..end.as_str())? {
                stopped = show(ShownObject::of(row?.1.value())?);
                if stopped.is_err() {
                    break;
                }
            }
            Ok(version)
        })?;
        stopped.map(|()| version)
    }

    /// The keys of all objects of a kind, and the version they were read at. No object is decoded.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn keys(&self, kind: &str) -> Result<(Vec<ObjectKey>, u64), StoreError> {
        self.read(|database| {
            let read = database.begin_read()?;
            let meta = read.open_table(META)?;
            let version = meta.get(META_VERSION)?.map_or(0, |value| value.value());
            let (first, end) = (ObjectKey::before_kind(kind), ObjectKey::after_kind(kind));
            let table = read.open_table(OBJECTS)?;
            let rows = table.range(first.as_str()..end.as_str())?;
            let keys = rows.map(|row| parse_key(row?.0.value()));
            Ok((keys.collect::<Result<_, StoreError>>()?, version))
        })
    }

    /// All objects of a kind in one namespace, by name, and the version they were read at.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn objects_in(
        &self,
        kind: &str,
        namespace: &str,
    ) -> Result<(Vec<(ObjectKey, StoredObject)>, u64), StoreError> {
        let within = format!("{}{namespace}", ObjectKey::before_kind(kind));
        self.between(
            &ObjectKey::before_kind(&within),
            &ObjectKey::after_kind(&within),
        )
    }

    /// Some objects of a kind, by namespace and name, and the version they were read at: those after `after`, which need
    /// not be there any more, or the first. There are none only at the end: one is read however large it is.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn objects_after(
        &self,
        kind: &str,
        after: Option<(&str, &str)>,
        page: Page,
    ) -> Result<(Vec<(ObjectKey, StoredObject)>, u64), StoreError> {
        let first = after.map_or_else(
            || ObjectKey::before_kind(kind),
            |(namespace, name)| {
                let key = ObjectKey {
                    kind: kind.to_owned(),
                    namespace: namespace.to_owned(),
                    name: name.to_owned(),
                };
                key.row()
            },
        );
        let end = ObjectKey::after_kind(kind);
        self.some_between((Bound::Excluded(&first), Bound::Excluded(&end)), page)
    }

    fn between(
        &self,
        first: &str,
        end: &str,
    ) -> Result<(Vec<(ObjectKey, StoredObject)>, u64), StoreError> {
        self.some_between(
            (Bound::Included(first), Bound::Excluded(end)),
            Page::WITHOUT_END,
        )
    }

    fn some_between(
        &self,
        rows: (Bound<&str>, Bound<&str>),
        page: Page,
    ) -> Result<(Vec<(ObjectKey, StoredObject)>, u64), StoreError> {
        self.read(|database| {
            let read = database.begin_read()?;
            let meta = read.open_table(META)?;
            let version = meta.get(META_VERSION)?.map_or(0, |value| value.value());
            let table = read.open_table(OBJECTS)?;
            let (mut objects, mut bytes) = (Vec::new(), 0usize);
            for row in table.range::<&str>(rows)? {
                let (key, value) = row?;
                bytes = bytes.saturating_add(value.value().len());
                objects.push((parse_key(key.value())?, decode(value.value(), "an object")?));
                if objects.len() >= page.objects || bytes >= page.bytes {
                    break;
                }
            }
            Ok((objects, version))
        })
    }

    /// The key of the object with this uid.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn key_of(&self, uid: &str) -> Result<Option<ObjectKey>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(UIDS)?;
            let row = table.get(uid)?;
            row.map(|row| parse_key(row.value())).transpose()
        })
    }

    /// The uid that an idempotency key stands for.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn uid_of_idempotency_key(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(IDEMPOTENCY)?;
            Ok(table.get(key)?.map(|row| row.value().to_owned()))
        })
    }

    /// Ids of all keys under which rows were ever encrypted.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn seal_keys(&self) -> Result<Vec<String>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(SEAL_KEYS)?;
            let ids = table.iter()?;
            ids.map(|row| Ok(row?.0.value().to_owned())).collect()
        })
    }

    /// The version of the last change.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn version(&self) -> Result<u64, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(META)?;
            Ok(table.get(META_VERSION)?.map_or(0, |value| value.value()))
        })
    }
}

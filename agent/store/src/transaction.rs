//! What can be changed in one transaction.

use agent_plan::Record;
use prost::Message;
use redb::{ReadableTable, Table, WriteTransaction};

use crate::ledger::{decode, decode_record, parse_key};
use crate::rows::ChangeRow;
use crate::tables::{
    ASSIGNMENTS, CHANGES, CONTROL_PLANES, GONE, IDEMPOTENCY, MAINTENANCE, META, META_COMPACTED,
    META_VERSION, OBJECTS, RECORDS, SEAL_KEYS, UIDS,
};
use crate::{ChangeKind, Limits, ObjectKey, StoreError, StoredObject};

/// One transaction. Reads see what it wrote.
pub struct Transaction<'txn> {
    meta: Table<'txn, &'static str, u64>,
    objects: Table<'txn, &'static str, &'static [u8]>,
    uids: Table<'txn, &'static str, &'static str>,
    records: Table<'txn, &'static str, &'static [u8]>,
    changes: Table<'txn, u64, &'static [u8]>,
    idempotency: Table<'txn, &'static str, &'static str>,
    pub(crate) gone: Table<'txn, &'static str, u64>,
    seal_keys: Table<'txn, &'static str, u64>,
    pub(crate) assignments: Table<'txn, &'static str, &'static [u8]>,
    pub(crate) control_planes: Table<'txn, &'static str, &'static [u8]>,
    pub(crate) maintenance: Table<'txn, &'static str, &'static [u8]>,
    version: u64,
    limits: Limits,
}

impl<'txn> Transaction<'txn> {
    pub(crate) fn open(write: &'txn WriteTransaction, limits: Limits) -> Result<Self, StoreError> {
        let meta = write.open_table(META)?;
        let version = meta.get(META_VERSION)?.map_or(0, |value| value.value());
        Ok(Self {
            meta,
            objects: write.open_table(OBJECTS)?,
            uids: write.open_table(UIDS)?,
            records: write.open_table(RECORDS)?,
            changes: write.open_table(CHANGES)?,
            idempotency: write.open_table(IDEMPOTENCY)?,
            gone: write.open_table(GONE)?,
            seal_keys: write.open_table(SEAL_KEYS)?,
            assignments: write.open_table(ASSIGNMENTS)?,
            control_planes: write.open_table(CONTROL_PLANES)?,
            maintenance: write.open_table(MAINTENANCE)?,
            version,
            limits,
        })
    }

    /// Writes the version down and shortens the change log.
    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        self.meta.insert(META_VERSION, self.version)?;
        let keep_after = self.version.saturating_sub(self.limits.changes);
        let compacted = self
            .meta
            .get(META_COMPACTED)?
            .map_or(0, |value| value.value());
        if keep_after > compacted {
            self.changes.retain_in(..=keep_after, |_, _| false)?;
            self.meta.insert(META_COMPACTED, keep_after)?;
        }
        Ok(())
    }

    /// The `metadata.resourceVersion` for the next [`Self::put`] or [`Self::remove`]; each takes one.
    #[must_use]
    pub const fn next_version(&self) -> u64 {
        self.version + 1
    }

    /// One object.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn object(&self, key: &ObjectKey) -> Result<Option<StoredObject>, StoreError> {
        self.objects
            .get(key.row().as_str())?
            .map(|row| decode(row.value(), "an object"))
            .transpose()
    }

    /// The key of the object with this uid.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn key_of(&self, uid: &str) -> Result<Option<ObjectKey>, StoreError> {
        self.uids
            .get(uid)?
            .map(|row| parse_key(row.value()))
            .transpose()
    }

    /// The record of one VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn record(&self, uid: &str) -> Result<Option<Record>, StoreError> {
        self.records
            .get(uid)?
            .map(|row| decode_record(row.value()))
            .transpose()
    }

    /// All records, in the order of their uids.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn records(&self) -> Result<Vec<Record>, StoreError> {
        self.records
            .iter()?
            .map(|row| decode_record(row?.1.value()))
            .collect()
    }

    /// The uid that an idempotency key stands for.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn uid_of_idempotency_key(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self.idempotency.get(key)?.map(|row| row.value().to_owned()))
    }

    /// Puts an object there. Its `resource_version` must be [`Self::next_version`].
    ///
    /// # Errors
    /// [`StoreError::Stale`] and [`StoreError::Altered`] when the stored object of the same uid has a
    /// later generation, or the same with another spec.
    pub fn put(&mut self, key: &ObjectKey, object: StoredObject) -> Result<(), StoreError> {
        let before = self.object(key)?;
        if let Some(before) = before.as_ref().filter(|before| before.uid == object.uid) {
            refuse_the_past(before, &object)?;
        }
        let kind = if before
            .as_ref()
            .is_some_and(|before| before.uid == object.uid)
        {
            ChangeKind::Modified
        } else {
            ChangeKind::Added
        };
        if let Some(sealed) = &object.sealed {
            let key_id = sealed.key_id.as_str();
            if self.seal_keys.get(key_id)?.is_none() {
                self.seal_keys.insert(key_id, self.version)?;
            }
        }
        let row = key.row();
        self.uids.insert(object.uid.as_str(), row.as_str())?;
        self.objects
            .insert(row.as_str(), object.encode_to_vec().as_slice())?;
        self.log(kind, row, object)
    }

    /// Takes an object away, its record and idempotency keys with it. `last` is its final state, told
    /// to watchers. What is not there is success.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn remove(&mut self, key: &ObjectKey, last: StoredObject) -> Result<(), StoreError> {
        let row = key.row();
        if self.objects.remove(row.as_str())?.is_none() {
            return Ok(());
        }
        self.uids.remove(last.uid.as_str())?;
        self.records.remove(last.uid.as_str())?;
        let uid = last.uid.clone();
        self.idempotency.retain(|_, value| value != uid)?;
        self.log(ChangeKind::Deleted, row, last)
    }

    /// Stores a record.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_record(&mut self, record: &Record) -> Result<(), StoreError> {
        let bytes = serde_json::to_vec(record).map_err(|error| StoreError::Undecodable {
            what: format!("a record ({error})"),
        })?;
        self.records
            .insert(record.id.uid.as_str(), bytes.as_slice())?;
        Ok(())
    }

    /// Remembers an idempotency key for as long as the object of `uid` exists.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_idempotency_key(&mut self, key: &str, uid: &str) -> Result<(), StoreError> {
        self.idempotency.insert(key, uid)?;
        Ok(())
    }

    fn log(
        &mut self,
        kind: ChangeKind,
        key: String,
        object: StoredObject,
    ) -> Result<(), StoreError> {
        self.version += 1;
        let kind = match kind {
            ChangeKind::Added => 1,
            ChangeKind::Modified => 2,
            ChangeKind::Deleted => 3,
        };
        let row = ChangeRow {
            kind,
            key,
            object: Some(object),
        };
        self.changes
            .insert(self.version, row.encode_to_vec().as_slice())?;
        Ok(())
    }
}

fn refuse_the_past(before: &StoredObject, offered: &StoredObject) -> Result<(), StoreError> {
    if offered.generation < before.generation {
        return Err(StoreError::Stale {
            offered: offered.generation,
            stored: before.generation,
        });
    }
    if offered.generation == before.generation && offered.spec_digest != before.spec_digest {
        return Err(StoreError::Altered {
            generation: offered.generation,
        });
    }
    Ok(())
}

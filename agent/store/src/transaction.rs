//! What can be changed in one transaction.

use std::collections::BTreeMap;

use agent_domain::ChangeKind;
use prost::Message;
use redb::ReadableTable;

use crate::error::StoreError;
use crate::limits::Limits;
use crate::record_rows::WrittenRecords;
use crate::rows::{ObjectKey, StoredObject, decode, parse_key};
use crate::tables::{
    ASSIGNMENTS, CHANGES, COMPACTED, CONTROL_PLANES, GONE, IDEMPOTENCY, KEYS_OF, LABELLED,
    MAINTENANCE, META, META_VERSION, OBJECTS, OWNED, PATHS, POD_LEASES, SEAL_KEYS, UIDS,
};
use crate::written::{Write, Written};

/// One transaction. Reads see what it wrote.
pub struct Transaction<'txn> {
    pub(crate) meta: Written<'txn, &'static str, u64>,
    objects: Written<'txn, &'static str, &'static [u8]>,
    uids: Written<'txn, &'static str, &'static str>,
    pub(crate) records: WrittenRecords<'txn>,
    pub(crate) changes: Written<'txn, (&'static str, u64), &'static [u8]>,
    pub(crate) compacted: Written<'txn, &'static str, (u64, u64)>,
    keys_of: Written<'txn, (&'static str, &'static str), ()>,
    pub(crate) owned: Written<'txn, (&'static str, &'static str), ()>,
    pub(crate) labelled: Written<'txn, (&'static str, &'static str), ()>,
    idempotency: Written<'txn, &'static str, &'static str>,
    pub(crate) gone: Written<'txn, &'static str, u64>,
    pub(crate) seal_keys: Written<'txn, &'static str, u64>,
    pub(crate) assignments: Written<'txn, &'static str, &'static [u8]>,
    pub(crate) control_planes: Written<'txn, &'static str, &'static [u8]>,
    pub(crate) maintenance: Written<'txn, &'static str, &'static [u8]>,
    pub(crate) paths: Written<'txn, &'static str, &'static [u8]>,
    pub(crate) pod_leases: Written<'txn, &'static str, &'static [u8]>,
    pub(crate) version: u64,
    pub(crate) limits: Limits,
    /// Changes that have come to the logs, by kind.
    pub(crate) grown: BTreeMap<String, u64>,
    /// Something was changed.
    pub(crate) changed: bool,
}

impl<'txn> Transaction<'txn> {
    pub(crate) fn open(write: &'txn Write, limits: Limits) -> Result<Self, StoreError> {
        let meta = write.table(META);
        let version = meta.rows()?.get(META_VERSION)?;
        let version = version.map_or(0, |value| value.value());
        Ok(Self {
            meta,
            objects: write.table(OBJECTS),
            uids: write.table(UIDS),
            records: WrittenRecords::write(write),
            changes: write.table(CHANGES),
            compacted: write.table(COMPACTED),
            keys_of: write.table(KEYS_OF),
            owned: write.table(OWNED),
            labelled: write.table(LABELLED),
            idempotency: write.table(IDEMPOTENCY),
            gone: write.table(GONE),
            seal_keys: write.table(SEAL_KEYS),
            assignments: write.table(ASSIGNMENTS),
            control_planes: write.table(CONTROL_PLANES),
            maintenance: write.table(MAINTENANCE),
            paths: write.table(PATHS),
            pod_leases: write.table(POD_LEASES),
            version,
            limits,
            grown: BTreeMap::new(),
            changed: false,
        })
    }

    /// Writes the version down and shortens the change logs.
    pub(crate) fn close(mut self) -> Result<(), StoreError> {
        let before = self
            .meta
            .rows()?
            .get(META_VERSION)?
            .map(|value| value.value());
        if before != Some(self.version) {
            self.meta.insert(META_VERSION, self.version)?;
        }
        self.compact()
    }

    /// Another write begins within the same transaction.
    pub(crate) const fn begin_member(&mut self) {
        self.changed = false;
    }

    /// Whether anything was changed.
    pub(crate) const fn is_changed(&self) -> bool {
        self.changed
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
            .rows()?
            .get(key.row().as_str())?
            .map(|row| decode(row.value(), "an object"))
            .transpose()
    }

    /// The version of the last change, this transaction's own among them.
    #[must_use]
    pub const fn version(&self) -> u64 {
        self.version
    }

    /// Whether there is an object of this key; it is not decoded.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn has_object(&self, key: &ObjectKey) -> Result<bool, StoreError> {
        Ok(self.objects.rows()?.get(key.row().as_str())?.is_some())
    }

    /// The key of the object with this uid.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn key_of(&self, uid: &str) -> Result<Option<ObjectKey>, StoreError> {
        self.uids
            .rows()?
            .get(uid)?
            .map(|row| parse_key(row.value()))
            .transpose()
    }

    /// The uid that an idempotency key stands for.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn uid_of_idempotency_key(&self, key: &str) -> Result<Option<String>, StoreError> {
        Ok(self
            .idempotency
            .rows()?
            .get(key)?
            .map(|row| row.value().to_owned()))
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
            if self.seal_keys.rows()?.get(key_id)?.is_none() {
                self.changed = true;
                self.seal_keys.insert(key_id, self.version)?;
            }
        }
        self.changed = true;
        self.index(key, before.as_ref(), Some(&object))?;
        let row = key.row();
        self.uids.insert(object.uid.as_str(), row.as_str())?;
        self.objects
            .insert(row.as_str(), object.encode_to_vec().as_slice())?;
        self.log(kind, key, object)
    }

    /// Takes an object away, its record and idempotency keys with it. `last` is its final state, sent
    /// to watchers. What is not there is success.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn remove(&mut self, key: &ObjectKey, last: StoredObject) -> Result<(), StoreError> {
        let Some(before) = self.object(key)? else {
            return Ok(());
        };
        self.changed = true;
        self.index(key, Some(&before), None)?;
        self.objects.remove(key.row().as_str())?;
        self.uids.remove(last.uid.as_str())?;
        self.records.remove(&last.uid)?;
        self.remove_idempotency_keys(&last.uid)?;
        self.log(ChangeKind::Deleted, key, last)
    }

    /// Remembers an idempotency key for as long as the object of `uid` exists.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_idempotency_key(&mut self, key: &str, uid: &str) -> Result<(), StoreError> {
        self.changed = true;
        self.idempotency.insert(key, uid)?;
        self.keys_of.insert((uid, key), ())?;
        Ok(())
    }

    /// Removes the idempotency keys of a uid; those of others are not read.
    fn remove_idempotency_keys(&mut self, uid: &str) -> Result<(), StoreError> {
        let mut keys = Vec::new();
        for row in self.keys_of.rows()?.range((uid, "")..)? {
            let (entry, _) = row?;
            let (of, key) = entry.value();
            if of != uid {
                break;
            }
            keys.push(key.to_owned());
        }
        for key in keys {
            self.keys_of.remove((uid, key.as_str()))?;
            self.idempotency.remove(key.as_str())?;
        }
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

//! What it takes to collect objects whose owners are gone: all objects at one moment, and which uids were removed.
//! The proof that an owner is gone outlives the agent: objects that name it may be written long after it went. The oldest
//! are forgotten when there are many.

use std::collections::BTreeSet;

use redb::{ReadableDatabase, ReadableTable, ReadableTableMetadata};

use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::rows::{ObjectKey, StoredObject, decode, parse_key};
use crate::tables::{GONE, OBJECTS};
use crate::transaction::Transaction;

/// All objects at one moment.
#[derive(Debug)]
pub struct Everything<T> {
    /// One entry of each object of the kinds that were asked for.
    pub objects: Vec<T>,
    /// Uids that were removed, with [`Transaction::remove_owner`].
    pub gone: BTreeSet<String>,
}

impl Ledger {
    /// What `read` makes of each object of the kinds that are `wanted`, and what is gone, read at one moment. There is one
    /// row in memory at a time.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn everything<T>(
        &self,
        wanted: impl Fn(&str) -> bool,
        read: impl Fn(ObjectKey, StoredObject) -> T,
    ) -> Result<Everything<T>, StoreError> {
        self.read(|database| {
            let transaction = database.begin_read()?;
            let mut everything = Everything {
                objects: Vec::new(),
                gone: BTreeSet::new(),
            };
            for row in transaction.open_table(GONE)?.iter()? {
                everything.gone.insert(row?.0.value().to_owned());
            }
            for row in transaction.open_table(OBJECTS)?.iter()? {
                let (key, value) = row?;
                let key = parse_key(key.value())?;
                if wanted(&key.kind) {
                    let object = decode(value.value(), "an object")?;
                    everything.objects.push(read(key, object));
                }
            }
            Ok(everything)
        })
    }

    /// Whether an object of this uid was removed, as far as that is remembered.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn is_gone(&self, uid: &str) -> Result<bool, StoreError> {
        self.read(|database| {
            let gone = database.begin_read()?.open_table(GONE)?;
            Ok(gone.get(uid)?.is_some())
        })
    }
}

impl Transaction<'_> {
    /// Takes an object away that may have owned others, as [`Self::remove`] does, and remembers that its uid is gone.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn remove_owner(&mut self, key: &ObjectKey, last: StoredObject) -> Result<(), StoreError> {
        let version = self.next_version();
        self.changed = true;
        self.gone.insert(last.uid.as_str(), version)?;
        self.remove(key, last)
    }

    /// Removes uids of deleted objects, the oldest first, until `kept` are left. Those that something refers to stay.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn prune_deleted_uids(&mut self, kept: u64) -> Result<(), StoreError> {
        let surplus = self.gone.rows()?.len()?.saturating_sub(kept);
        let surplus = usize::try_from(surplus).unwrap_or(usize::MAX);
        if surplus == 0 {
            return Ok(());
        }
        let mut by_age = Vec::new();
        for row in self.gone.rows()?.iter()? {
            let (uid, version) = row?;
            by_age.push((version.value(), uid.value().to_owned()));
        }
        by_age.sort_unstable();
        for (_, uid) in by_age.iter().take(surplus) {
            let is_owner = match self.owned.rows()?.range((uid.as_str(), "")..)?.next() {
                Some(row) => row?.0.value().0 == uid,
                None => false,
            };
            if !is_owner {
                self.changed = true;
                self.gone.remove(uid.as_str())?;
            }
        }
        Ok(())
    }
}

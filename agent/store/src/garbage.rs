//! What it takes to collect objects whose owners are gone: all objects at one moment, and which uids were removed.
//! The proof that an owner is gone outlives the agent, and is forgotten once nothing depends on it any more.

use std::collections::BTreeSet;

use redb::{ReadableDatabase, ReadableTable};

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

    /// Forgets that these uids are gone, as far as nothing refers to them.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn forget_gone(&mut self, uids: &BTreeSet<String>) -> Result<(), StoreError> {
        for uid in uids {
            let is_owner = match self.owned.range((uid.as_str(), "")..)?.next() {
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

//! The keys under which rows are encrypted: which are needed still.

use std::collections::BTreeSet;

use redb::{ReadableDatabase, ReadableTable};

use crate::change::change;
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::rows::StoredObject;
use crate::tables::CHANGES;
use crate::transaction::Transaction;

/// What may need a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ciphertext {
    /// Objects, and earlier states of them for those who follow changes.
    All,
    /// Objects alone. Changes that are encrypted are forgotten: who followed them lists again.
    OfObjects,
}

impl Ledger {
    /// Forgets the keys that no ciphertext of some kinds needs any more, and returns the ids of the others.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn prune_seal_keys(
        &self,
        kinds: &[&str],
        needed_by: Ciphertext,
    ) -> Result<Vec<String>, StoreError> {
        let known = self.seal_keys()?;
        if known.is_empty() {
            return Ok(known);
        }
        let (mut needed, mut logs) = (BTreeSet::new(), BTreeSet::new());
        let key_of = |object: StoredObject| object.sealed.map(|sealed| sealed.key_id);
        for kind in kinds {
            let objects = self.objects(kind)?.0.into_iter();
            needed.extend(objects.filter_map(|(_, object)| key_of(object)));
            let logged: BTreeSet<String> = self.log_keys(kind)?;
            if needed_by == Ciphertext::All {
                needed.extend(logged);
            } else if !logged.is_empty() {
                logs.insert(*kind);
            }
        }
        let (kept, unneeded): (Vec<_>, Vec<_>) =
            known.into_iter().partition(|id| needed.contains(id));
        if unneeded.is_empty() {
            return Ok(kept);
        }
        self.write(|transaction| {
            for kind in logs {
                transaction.remove_log(kind)?;
            }
            for id in &unneeded {
                transaction.remove_seal_key(id)?;
            }
            Ok::<_, StoreError>(())
        })?;
        Ok(kept)
    }

    /// Ids of the keys that the log of a kind needs.
    fn log_keys(&self, kind: &str) -> Result<BTreeSet<String>, StoreError> {
        self.read(|database| {
            let table = database.begin_read()?.open_table(CHANGES)?;
            let mut ids = BTreeSet::new();
            for row in table.range((kind, 0)..=(kind, u64::MAX))? {
                let (entry, value) = row?;
                let object = change(entry.value().1, value.value())?.object;
                ids.extend(object.sealed.map(|sealed| sealed.key_id));
            }
            Ok(ids)
        })
    }
}

impl Transaction<'_> {
    /// Has whoever follows a kind list it again.
    fn remove_log(&mut self, kind: &str) -> Result<(), StoreError> {
        self.changed = true;
        let mut versions = Vec::new();
        for row in self.changes.rows()?.range((kind, 0)..=(kind, u64::MAX))? {
            versions.push(row?.0.value().1);
        }
        for version in versions {
            self.changes.remove((kind, version))?;
        }
        self.compacted.insert(kind, (self.version, 0))?;
        Ok(())
    }

    fn remove_seal_key(&mut self, id: &str) -> Result<(), StoreError> {
        self.changed = true;
        self.seal_keys.remove(id)?;
        Ok(())
    }
}

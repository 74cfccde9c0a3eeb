//! Indexes of objects: by owner, and of those that nobody controls by label. They are kept in the transactions that
//! change the objects.

use std::collections::BTreeSet;

use redb::ReadableDatabase;

use crate::entries::{Entries, place};
use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::rows::{ObjectKey, StoredObject, decode, parse_key};
use crate::tables::{LABELLED, META, META_VERSION, OBJECTS, OWNED};
use crate::transaction::Transaction;

impl Transaction<'_> {
    /// Has an object be found by what it is now.
    pub(crate) fn index(
        &mut self,
        key: &ObjectKey,
        before: Option<&StoredObject>,
        after: Option<&StoredObject>,
    ) -> Result<(), StoreError> {
        let before = before.map(Entries::of).unwrap_or_default();
        let after = after.map(Entries::of).unwrap_or_default();
        let row = key.row();
        for owner in before.owners.difference(&after.owners) {
            self.owned.remove((owner.as_str(), row.as_str()))?;
        }
        for owner in after.owners.difference(&before.owners) {
            self.owned.insert((owner.as_str(), row.as_str()), ())?;
        }
        for label in before.labels.difference(&after.labels) {
            let place = place(key, label);
            self.labelled.remove((place.as_str(), key.name.as_str()))?;
        }
        for label in after.labels.difference(&before.labels) {
            let place = place(key, label);
            self.labelled
                .insert((place.as_str(), key.name.as_str()), ())?;
        }
        Ok(())
    }
}

impl Ledger {
    /// Objects of a kind in a namespace that are owned by a uid, or that nobody controls and that bear a label
    /// (`key=value`); and the version they were read at. Others are not read.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn owned_or_labelled(
        &self,
        (kind, namespace): (&str, &str),
        owner: &str,
        label: &str,
    ) -> Result<(Vec<StoredObject>, u64), StoreError> {
        self.read(|database| {
            let read = database.begin_read()?;
            let meta = read.open_table(META)?;
            let version = meta.get(META_VERSION)?.map_or(0, |value| value.value());
            let mut rows = BTreeSet::new();
            let owned = read.open_table(OWNED)?;
            for row in owned.range((owner, "")..)? {
                let (entry, _) = row?;
                let (of, row) = entry.value();
                if of != owner {
                    break;
                }
                let key = parse_key(row)?;
                if key.kind == kind && key.namespace == namespace {
                    rows.insert(row.to_owned());
                }
            }
            let mut key = ObjectKey {
                kind: kind.to_owned(),
                namespace: namespace.to_owned(),
                name: String::new(),
            };
            let wanted = place(&key, label);
            let labelled = read.open_table(LABELLED)?;
            for row in labelled.range((wanted.as_str(), "")..)? {
                let (entry, _) = row?;
                let (place, name) = entry.value();
                if place != wanted {
                    break;
                }
                name.clone_into(&mut key.name);
                rows.insert(key.row());
            }
            let objects = read.open_table(OBJECTS)?;
            let mut found = Vec::new();
            for row in rows {
                if let Some(object) = objects.get(row.as_str())? {
                    found.push(decode(object.value(), "an object")?);
                }
            }
            Ok((found, version))
        })
    }

    /// The keys of all objects that are owned by a uid.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn dependents(&self, owner: &str) -> Result<Vec<ObjectKey>, StoreError> {
        self.read(|database| {
            let owned = database.begin_read()?.open_table(OWNED)?;
            let mut keys = Vec::new();
            for row in owned.range((owner, "")..)? {
                let (entry, _) = row?;
                let (of, row) = entry.value();
                if of != owner {
                    break;
                }
                keys.push(parse_key(row)?);
            }
            Ok(keys)
        })
    }
}

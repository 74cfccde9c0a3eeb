//! Indexes of objects: by owner, and of those that nobody controls by label. They are kept in the transactions that
//! change the objects.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;
use redb::ReadableDatabase;

use crate::ledger::{decode, parse_key};
use crate::tables::{LABELLED, META, META_VERSION, OBJECTS, OWNED};
use crate::{Ledger, ObjectKey, StoreError, StoredObject, Transaction};

/// The part of an object that all kinds have alike, as far as it is indexed: metadata is the third field of a message.
#[derive(Clone, PartialEq, Message)]
struct Head {
    #[prost(message, optional, tag = "3")]
    metadata: Option<HeadMetadata>,
}

#[derive(Clone, PartialEq, Message)]
struct HeadMetadata {
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<HeadOwner>,
}

#[derive(Clone, PartialEq, Message)]
struct HeadOwner {
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(bool, optional, tag = "5")]
    controller: Option<bool>,
}

/// What an object is found by.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    owners: BTreeSet<String>,
    /// Those of an object that nobody controls.
    labels: BTreeSet<String>,
}

impl Entries {
    pub(crate) fn of(object: &StoredObject) -> Self {
        // What is no message of an object has nothing to be found by.
        let head = Head::decode(object.object.as_slice()).unwrap_or_default();
        let metadata = head.metadata.unwrap_or_default();
        let owners = metadata.owner_references.iter();
        let is_controlled = owners.clone().any(|owner| owner.controller == Some(true));
        let labels = metadata.labels.iter().filter(|_| !is_controlled);
        Self {
            owners: owners.map(|owner| owner.uid.clone()).collect(),
            labels: labels
                .map(|(key, value)| format!("{key}={value}"))
                .collect(),
        }
    }

    /// Entries of the index by owner, for an object at `row`.
    pub(crate) fn owned<'a>(&'a self, row: &'a str) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.owners.iter().map(move |owner| (owner.as_str(), row))
    }

    /// Entries of the index by label: what comes before the name, and the name.
    pub(crate) fn labelled<'a>(
        &'a self,
        key: &'a ObjectKey,
    ) -> impl Iterator<Item = (String, &'a str)> {
        let labels = self.labels.iter();
        labels.map(move |label| (place(key, label), key.name.as_str()))
    }
}

/// What comes before a name in the index by labels.
fn place(key: &ObjectKey, label: &str) -> String {
    format!("{}\u{0}{}\u{0}{label}", key.kind, key.namespace)
}

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

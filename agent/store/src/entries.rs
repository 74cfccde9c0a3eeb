//! What the index has of an object.

use std::collections::{BTreeMap, BTreeSet};

use prost::Message;

use crate::rows::{ObjectKey, StoredObject};

/// The part of an object that all kinds have alike, as far as it is indexed: metadata is the third field of a message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Head {
    #[prost(message, optional, tag = "3")]
    metadata: Option<HeadMetadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeadMetadata {
    #[prost(btree_map = "string, string", tag = "11")]
    labels: BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owner_references: Vec<HeadOwner>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HeadOwner {
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(bool, optional, tag = "5")]
    controller: Option<bool>,
}

/// What an object is found by.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Entries {
    pub(crate) owners: BTreeSet<String>,
    /// Those of an object that nobody controls.
    pub(crate) labels: BTreeSet<String>,
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
pub(super) fn place(key: &ObjectKey, label: &str) -> String {
    format!("{}\u{0}{}\u{0}{label}", key.kind, key.namespace)
}

//! What a controller needs of a store.

use std::sync::Arc;

use agent_objects::{Object, ObjectId, Part, Preconditions};
use proto_node::meta::ObjectMeta;
use serde_json::Value;

/// Why a store did not do what was asked, or may not have.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// There is no such object.
    #[error("{0}")]
    NotFound(String),
    /// There is an object of that name.
    #[error("{0}")]
    AlreadyExists(String),
    /// A precondition does not hold.
    #[error("{0}")]
    Conflict(String),
    /// The object is not admitted.
    #[error("{0}")]
    Refused(String),
    /// The changes that were asked for are no longer kept.
    #[error("{0}")]
    Expired(String),
    /// The store did not answer. A write may have been carried out.
    #[error("{0}")]
    Unknown(String),
}

/// Objects at one version.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listed {
    /// The version of the store.
    pub version: u64,
    /// The objects.
    pub items: Vec<Object>,
}

/// What happened to an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
    /// It is new, or was changed.
    Put,
    /// It is gone.
    Deleted,
}

/// One change, as far as it takes to know who has to look.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The version that it made.
    pub version: u64,
    /// Whether the object was added, modified or deleted.
    pub happened: ChangeKind,
    /// Kind of the object.
    pub kind: String,
    /// Metadata of the object, or of its last state.
    pub metadata: ObjectMeta,
}

/// Objects of any kind, in Kubernetes' semantics.
///
/// The calls block. Controllers run where that is allowed; a store behind a network answers reads from a cache.
pub trait ObjectStore {
    /// One object as it is at present, never from a cache.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn get(&self, id: &ObjectId) -> Result<Option<Object>, StoreError>;

    /// One object as [`Self::list`] shows it, and the version at which it was read: what happened up to that is in it.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn view(&self, id: &ObjectId) -> Result<(u64, Option<Object>), StoreError>;

    /// Objects of a kind, in one namespace or in all. A cache may answer, which never goes back in time.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Listed, StoreError>;

    /// The same of a namespace, with no more of each object than its metadata: what is encrypted and cannot be read for now
    /// is among them.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn list_heads(&self, kind: &str, namespace: &str) -> Result<Listed, StoreError> {
        self.list(kind, Some(namespace))
    }

    /// Objects of a kind in a namespace that an owner owns, and those that nobody controls and that bear a label
    /// (`key=value`). A store that has no index of these answers with all objects of the kind.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn list_owned_or_labelled(
        &self,
        (kind, namespace): (&str, &str),
        owner_uid: &str,
        label: &str,
    ) -> Result<Listed, StoreError> {
        let _without_index = (owner_uid, label);
        self.list(kind, Some(namespace))
    }

    /// Names of all objects of a kind, as [`Self::list`] shows them, and the version of the store. A store that keeps
    /// objects encoded need not decode them for this.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn names(&self, kind: &str) -> Result<(u64, Vec<ObjectId>), StoreError> {
        let listed = self.list(kind, None)?;
        let names = listed.items.iter().map(Object::id);
        Ok((listed.version, names.collect()))
    }

    /// Names of objects of a kind in a namespace; all that an owner owns are among them.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    fn names_owned(
        &self,
        (kind, namespace): (&str, &str),
        owner_uid: &str,
    ) -> Result<Vec<ObjectId>, StoreError> {
        let listed = self.list_owned_or_labelled((kind, namespace), owner_uid, "")?;
        Ok(listed.items.iter().map(Object::id).collect())
    }

    /// The changes after a version, as far as [`Self::list`] shows them already, the oldest first. Those of objects that
    /// callers do not write, such as events, are left out.
    ///
    /// # Errors
    /// [`StoreError::Expired`], [`StoreError::Unknown`].
    fn changes_after(&self, version: u64) -> Result<Vec<Arc<Change>>, StoreError>;

    /// Makes an object; the answer is as it is stored.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`], [`StoreError::Refused`], [`StoreError::Unknown`].
    fn create(&self, object: &Object) -> Result<Object, StoreError>;

    /// Makes an object after another one, of which it is enough that there is one of its name. The answer is the second
    /// as it is stored. A store that can makes both or none, in one transaction; of any other the first alone may be left.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`] of the second, [`StoreError::Refused`], [`StoreError::Unknown`].
    fn create_after(&self, first: &Object, second: &Object) -> Result<Object, StoreError> {
        match self.create(first) {
            Ok(_) | Err(StoreError::AlreadyExists(_)) => self.create(second),
            Err(error) => Err(error),
        }
    }

    /// Changes a part of an object by a merge patch.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], [`StoreError::Refused`], [`StoreError::Unknown`].
    fn patch(
        &self,
        id: &ObjectId,
        part: Part,
        patch: &Value,
        preconditions: &Preconditions,
    ) -> Result<Object, StoreError>;

    /// Deletes an object, and what it owns after it.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`], [`StoreError::Unknown`].
    fn delete(&self, id: &ObjectId, preconditions: &Preconditions) -> Result<(), StoreError>;
}

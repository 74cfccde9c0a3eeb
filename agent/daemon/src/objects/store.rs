//! The ledger as controllers see it. What it shows is the present.

use std::sync::Arc;

use agent_controllers::{Change, ChangeKind, Listed, ObjectStore, StoreError};
use agent_domain::ObjectSource;
use agent_objects::{Kinds, Object, ObjectId, Part, Preconditions, Propagation, Writer};
use agent_sources::{ApiError, ObjectDelete, ObjectPatch, ObjectRegistry, WriteBy};
use serde_json::Value;

use super::wait::wait;
use super::{CHANGES, Objects, id, key, kind_of, not_found};
use crate::error::store;
use crate::object;

/// Controllers write as whoever calls the service of the node.
pub(super) const CONTROLLER: WriteBy = WriteBy {
    source: ObjectSource::GrpcCaller,
    dry_run: false,
    idempotency_key: String::new(),
    manager: String::new(),
};

impl ObjectStore for Objects {
    fn get(&self, id: &ObjectId) -> Result<Option<Object>, StoreError> {
        match self.get_object(id) {
            Ok(object) => Ok(Some(object)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn view(&self, id: &ObjectId) -> Result<(u64, Option<Object>), StoreError> {
        // The version first: what is read afterwards is no older.
        let version = self.store.ledger().version();
        let version = version.map_err(|error| refused(store(error)))?;
        Ok((version, ObjectStore::get(self, id)?))
    }

    fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Listed, StoreError> {
        let entry = kind_of(kind).map_err(refused)?;
        let found = match namespace {
            Some(namespace) => self.store.ledger().objects_in(kind, namespace),
            None => self.store.ledger().objects(kind),
        };
        let (rows, version) = found.map_err(|error| refused(store(error)))?;
        let items = rows.iter().map(|(_, row)| self.read(entry, row));
        let items = items.collect::<Result<_, _>>().map_err(refused)?;
        Ok(Listed { version, items })
    }

    fn list_heads(&self, kind: &str, namespace: &str) -> Result<Listed, StoreError> {
        let entry = kind_of(kind).map_err(refused)?;
        let found = self.store.ledger().objects_in(kind, namespace);
        let (rows, version) = found.map_err(|error| refused(store(error)))?;
        let head = |row| {
            Ok(Object {
                api_version: entry.api_version(),
                kind: entry.kind.to_owned(),
                metadata: object::metadata_of(row)?,
                ..Object::default()
            })
        };
        let items = rows.iter().map(|(_, row)| head(row));
        let items = items.collect::<Result<_, _>>().map_err(refused)?;
        Ok(Listed { version, items })
    }

    fn list_owned_or_labelled(
        &self,
        (kind, namespace): (&str, &str),
        owner_uid: &str,
        label: &str,
    ) -> Result<Listed, StoreError> {
        let entry = kind_of(kind).map_err(refused)?;
        let found = self
            .store
            .ledger()
            .owned_or_labelled((kind, namespace), owner_uid, label);
        let (rows, version) = found.map_err(|error| refused(store(error)))?;
        let items = rows.iter().map(|row| self.read(entry, row));
        let items = items.collect::<Result<_, _>>().map_err(refused)?;
        Ok(Listed { version, items })
    }

    fn names(&self, kind: &str) -> Result<(u64, Vec<ObjectId>), StoreError> {
        let keys = self.store.ledger().keys(kind);
        let (keys, version) = keys.map_err(|error| refused(store(error)))?;
        Ok((version, keys.into_iter().map(id).collect()))
    }

    fn names_owned(
        &self,
        (kind, namespace): (&str, &str),
        owner_uid: &str,
    ) -> Result<Vec<ObjectId>, StoreError> {
        let keys = self.store.ledger().dependents(owner_uid);
        let mut keys = keys.map_err(|error| refused(store(error)))?;
        keys.retain(|key| key.kind == kind && key.namespace == namespace);
        Ok(keys.into_iter().map(id).collect())
    }

    fn changes_after(&self, version: u64) -> Result<Vec<Arc<Change>>, StoreError> {
        let kinds = Kinds::this_release();
        let is_followed = |kind: &str| {
            let entry = kinds.find(kind);
            entry.is_some_and(|kind| !matches!(kind.writer, Writer::Agent))
        };
        let newest = self.store.version();
        let mut recent = self.recent.locked();
        recent.reach(version);
        while recent.until() < newest {
            let some = self
                .store
                .ledger()
                .changes_among(is_followed, recent.until(), CHANGES);
            let some = some.map_err(|error| refused(store(error)))?;
            let is_all = some.changes.is_empty();
            let next = some.changes.into_iter().map(change);
            let next = next.collect::<Result<Vec<_>, _>>().map_err(refused)?;
            recent.add(next, some.until);
            if is_all {
                break;
            }
        }
        Ok(recent.after(version))
    }

    fn create(&self, object: &Object) -> Result<Object, StoreError> {
        let written = wait(self.create_any(object.clone(), &CONTROLLER));
        written.map(|written| written.object).map_err(refused)
    }

    fn create_after(&self, first: &Object, second: &Object) -> Result<Object, StoreError> {
        let written = self.create_together(first.clone(), second.clone(), &CONTROLLER);
        written.map(|written| written.object).map_err(refused)
    }

    fn patch(
        &self,
        id: &ObjectId,
        part: Part,
        patch: &Value,
        preconditions: &Preconditions,
    ) -> Result<Object, StoreError> {
        let entry = kind_of(&id.kind).map_err(refused)?;
        let row = self.store.ledger().object(&key(id));
        let row = row.map_err(|error| refused(store(error)))?;
        let row = row.ok_or_else(|| refused(not_found(entry, id)))?;
        let present = object::metadata_of(&row).map_err(refused)?;
        let owner = ObjectSource::of(&present.annotations);
        let is_guest = matches!(entry.writer, Writer::Guests);
        if is_guest && !owner.allows_change_by(&CONTROLLER.source) {
            let text = format!("{} {:?} belongs to {owner}", id.kind, id.name);
            return Err(StoreError::Refused(text));
        }
        // What becomes of an object is for its controller to say, whoever asks for the object.
        let by = WriteBy {
            source: owner,
            ..CONTROLLER
        };
        let patch = ObjectPatch {
            id: id.clone(),
            part,
            patch: patch.clone(),
            preconditions: preconditions.clone(),
        };
        let written = wait(self.patch_any(&patch, &by));
        written.map(|written| written.object).map_err(refused)
    }

    fn delete(&self, id: &ObjectId, preconditions: &Preconditions) -> Result<(), StoreError> {
        let delete = ObjectDelete {
            id: id.clone(),
            preconditions: preconditions.clone(),
            propagation: Propagation::Background,
            grace_period_seconds: None,
        };
        let deleted = wait(self.delete_any(&delete, &CONTROLLER));
        deleted.map(drop).map_err(refused)
    }
}

/// A change of the ledger, as controllers see it.
fn change(change: agent_store::Change) -> Result<Change, ApiError> {
    Ok(Change {
        version: change.version,
        happened: match change.kind {
            agent_domain::ChangeKind::Added | agent_domain::ChangeKind::Modified => ChangeKind::Put,
            agent_domain::ChangeKind::Deleted => ChangeKind::Deleted,
        },
        metadata: object::metadata_of(&change.object)?,
        kind: change.key.kind,
    })
}

fn refused(error: ApiError) -> StoreError {
    let text = error.to_string();
    match error {
        ApiError::NotFound { .. } => StoreError::NotFound(text),
        ApiError::AlreadyExists(_) => StoreError::AlreadyExists(text),
        ApiError::Conflict(_) => StoreError::Conflict(text),
        ApiError::Expired(_) => StoreError::Expired(text),
        ApiError::Unavailable(_) | ApiError::Internal(_) => StoreError::Unknown(text),
        ApiError::Invalid { .. }
        | ApiError::BadRequest(_)
        | ApiError::Absent(_)
        | ApiError::Forbidden(_)
        | ApiError::Denied(_) => StoreError::Refused(text),
    }
}

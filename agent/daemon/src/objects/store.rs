//! The ledger as controllers see it. What it shows is the present.

use agent_controllers::{Change, ChangeKind, Listed, ObjectStore, StoreError};
use agent_domain::Owner;
use agent_host::Host;
use agent_objects::{Object, ObjectId, Part, Preconditions, Propagation};
use agent_sources::{ApiError, ObjectDelete, ObjectPatch, ObjectRegistry, WriteBy};
use serde_json::Value;

use super::CHANGES;
use crate::agent::Agent;
use crate::error::store;
use crate::object;

/// Controllers write as whoever calls the service of the node.
const CONTROLLER: WriteBy = WriteBy {
    owner: Owner::GrpcCaller,
    dry_run: false,
};

impl<H: Host> ObjectStore for Agent<H> {
    fn get(&self, id: &ObjectId) -> Result<Option<Object>, StoreError> {
        match self.get_object(id) {
            Ok(object) => Ok(Some(object)),
            Err(ApiError::NotFound { .. }) => Ok(None),
            Err(error) => Err(refused(error)),
        }
    }

    fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Listed, StoreError> {
        let mut listed = self.list_objects(kind).map_err(refused)?;
        listed.items.retain(|object| {
            namespace.is_none_or(|namespace| object.metadata.namespace == namespace)
        });
        Ok(Listed {
            version: listed.version,
            items: listed.items,
        })
    }

    fn changes_after(&self, version: u64) -> Result<Vec<Change>, StoreError> {
        let (mut all, mut after) = (Vec::new(), version);
        loop {
            let changes = self.ledger.changes_after(after, CHANGES);
            let changes = changes.map_err(|error| refused(store(error)))?;
            let Some(last) = changes.last() else {
                return Ok(all);
            };
            after = last.version;
            for change in changes {
                all.push(Change {
                    version: change.version,
                    happened: match change.kind {
                        agent_store::ChangeKind::Added | agent_store::ChangeKind::Modified => {
                            ChangeKind::Put
                        }
                        agent_store::ChangeKind::Deleted => ChangeKind::Deleted,
                    },
                    metadata: object::metadata_of(&change.object).map_err(refused)?,
                    kind: change.key.kind,
                });
            }
        }
    }

    fn create(&self, object: &Object) -> Result<Object, StoreError> {
        let written = self.create_object(object.clone(), &CONTROLLER);
        written.map(|written| written.object).map_err(refused)
    }

    fn patch(
        &self,
        id: &ObjectId,
        part: Part,
        patch: &Value,
        preconditions: &Preconditions,
    ) -> Result<Object, StoreError> {
        let present = self.get_object(id).map_err(refused)?;
        let owner = Owner::of(&present.metadata.annotations);
        if !owner.allows_change_by(&CONTROLLER.owner) {
            let text = format!("{} {:?} belongs to {owner}", id.kind, id.name);
            return Err(StoreError::Refused(text));
        }
        let patch = ObjectPatch {
            id: id.clone(),
            part,
            patch: patch.clone(),
            preconditions: preconditions.clone(),
        };
        let written = self.patch_object(&patch, &CONTROLLER);
        written.map(|written| written.object).map_err(refused)
    }

    fn delete(&self, id: &ObjectId, preconditions: &Preconditions) -> Result<(), StoreError> {
        let delete = ObjectDelete {
            id: id.clone(),
            preconditions: preconditions.clone(),
            propagation: Propagation::Background,
            grace_period_seconds: None,
        };
        let deleted = ObjectRegistry::delete_object(self, &delete, &CONTROLLER);
        deleted.map(drop).map_err(refused)
    }
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

//! Deleting objects: a VMI is marked, its actor does the rest.

use agent_objects::propagate;
use agent_plan::Timestamp;
use agent_sources::{ApiError, Delete, Deleted};
use agent_store::StoredObject;
use proto_node::meta::ObjectMeta;
use proto_node::node::Object;
use proto_node::node::object::Kind as Stored;

use super::Objects;
use crate::error::store;
use crate::object::is_vmi;
use crate::{clock, object, object_source};

/// What a delete comes to.
struct Decision {
    deleted: Deleted,
    uid: String,
    /// Whether there is anything to store.
    is_change: bool,
}

impl Objects {
    /// Carries out a delete. The mark is on disk when it answers.
    pub(crate) fn delete_object(&self, delete: &Delete) -> Result<Deleted, ApiError> {
        let key = object::key(&delete.target);
        let now = clock::now();
        if delete.dry_run {
            let row = self.store.ledger().object(&key).map_err(store)?;
            return Ok(self.decide_delete(delete, row.as_ref(), now)?.deleted);
        }
        let (deleted, uid) = self.store.write(|transaction| {
            let row = transaction.object(&key)?;
            let mut decision = self.decide_delete(delete, row.as_ref(), now)?;
            let Some(row) = row.filter(|_| decision.is_change) else {
                return Ok((decision.deleted, decision.uid));
            };
            match &mut decision.deleted.object.kind {
                Some(Stored::VirtualMachineInstance(vmi)) => {
                    let row = object::row(vmi.clone(), transaction.next_version());
                    vmi.metadata.get_or_insert_default().resource_version =
                        row.resource_version.to_string();
                    if decision.deleted.gone {
                        transaction.remove_owner(&key, row)?;
                    } else {
                        transaction.put(&key, row)?;
                    }
                }
                _ => transaction.remove(&key, row)?,
            }
            Ok((decision.deleted, decision.uid))
        })?;
        self.actors.wake(&uid);
        Ok(deleted)
    }

    fn decide_delete(
        &self,
        delete: &Delete,
        row: Option<&StoredObject>,
        now: Timestamp,
    ) -> Result<Decision, ApiError> {
        let row = row.ok_or_else(|| object::not_found(&delete.target))?;
        check_preconditions(delete, row)?;
        let uid = row.uid.clone();
        if !is_vmi(&delete.target) {
            let object = object::object(delete.target.kind, row)?;
            return Ok(Decision {
                deleted: Deleted { object, gone: true },
                uid,
                is_change: true,
            });
        }
        let mut vmi = object::vmi(row)?;
        let kind = delete.target.kind.as_str();
        let control_plane = self.control_planes.dialled();
        object_source::check_delete((kind, &object::metadata(&vmi)), &delete.by, control_plane)?;
        let own = object::own_grace_seconds(&vmi);
        let grace = delete.grace_period_seconds.unwrap_or(own);
        let metadata = vmi.metadata.get_or_insert_default();
        let is_explicit = delete.grace_period_seconds.is_some();
        let is_marked = mark(metadata, grace, &clock::rfc3339(now), is_explicit);
        let propagation = delete.propagation;
        let is_noted = propagation.is_some_and(|how| propagate(metadata, how));
        let gone = metadata.finalizers.is_empty();
        Ok(Decision {
            deleted: Deleted {
                object: Object::from(vmi),
                gone,
            },
            uid,
            is_change: is_marked || is_noted || gone,
        })
    }
}

fn check_preconditions(delete: &Delete, row: &StoredObject) -> Result<(), ApiError> {
    if !delete.uid.is_empty() && delete.uid != row.uid {
        let text = format!(
            "{:?} has uid {}, not {}",
            delete.target.name, row.uid, delete.uid
        );
        return Err(ApiError::Conflict(text));
    }
    let version = row.resource_version.to_string();
    if !delete.resource_version.is_empty() && delete.resource_version != version {
        let text = format!(
            "{:?} is at version {version}, not {}",
            delete.target.name, delete.resource_version
        );
        return Err(ApiError::Conflict(text));
    }
    Ok(())
}

/// Marks for deletion. A second delete can only shorten the grace period; true when it changed
/// anything.
fn mark(metadata: &mut ObjectMeta, grace: i64, now: &str, explicit: bool) -> bool {
    if metadata.deletion_timestamp.is_empty() {
        now.clone_into(&mut metadata.deletion_timestamp);
        metadata.deletion_grace_period_seconds = Some(grace);
        return true;
    }
    let shorter = explicit
        && metadata
            .deletion_grace_period_seconds
            .is_none_or(|present| grace < present);
    if shorter {
        metadata.deletion_grace_period_seconds = Some(grace);
    }
    shorter
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_delete_only_shortens() {
        let mut metadata = ObjectMeta::default();
        assert!(mark(&mut metadata, 30, "t1", false));
        assert!(!mark(&mut metadata, 60, "t2", true));
        assert!(!mark(&mut metadata, 5, "t2", false));
        assert!(mark(&mut metadata, 0, "t3", true));
        assert_eq!(metadata.deletion_grace_period_seconds, Some(0));
        assert_eq!(metadata.deletion_timestamp, "t1");
    }
}

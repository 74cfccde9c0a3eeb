//! Deleting objects: a VMI is marked, its actor does the rest.

use agent_host::Host;
use agent_sources::{ApiError, Delete, Deleted};
use agent_store::StoredObject;
use proto_node::meta::ObjectMeta;
use proto_node::node::Object;
use proto_node::vmi::VirtualMachineInstance;

use crate::agent::Agent;
use crate::object::is_vmi;
use crate::{clock, object};

/// KubeVirt's default of `terminationGracePeriodSeconds`.
const DEFAULT_GRACE_SECONDS: i64 = 30;

impl<H: Host> Agent<H> {
    /// Carries out a delete. The mark is on disk when it answers.
    pub(crate) fn delete_object(&self, delete: &Delete) -> Result<Deleted, ApiError> {
        let key = object::key(&delete.target);
        let now = clock::now();
        let (deleted, uid) = self.write(|transaction| {
            let row = transaction
                .object(&key)?
                .ok_or_else(|| object::not_found(&delete.target))?;
            check_preconditions(delete, &row)?;
            let uid = row.uid.clone();
            if !is_vmi(&delete.target) {
                let object = object::object(delete.target.kind, &row)?;
                transaction.remove(&key, row)?;
                return Ok((Deleted { object, gone: true }, uid));
            }
            let mut vmi = object::vmi(&row)?;
            let kind = delete.target.kind.as_str();
            self.check_delete(kind, &object::metadata(&vmi), &delete.by)?;
            let grace = delete
                .grace_period_seconds
                .unwrap_or(own_grace_seconds(&vmi));
            let metadata = vmi.metadata.get_or_insert_default();
            let changed = mark(
                metadata,
                grace,
                &clock::rfc3339(now),
                delete.grace_period_seconds.is_some(),
            );
            let gone = metadata.finalizers.is_empty();
            if changed || gone {
                let row = object::row(vmi.clone(), transaction.next_version());
                vmi.metadata.get_or_insert_default().resource_version =
                    row.resource_version.to_string();
                if gone {
                    transaction.remove_owner(&key, row)?;
                } else {
                    transaction.put(&key, row)?;
                }
            }
            Ok((
                Deleted {
                    object: Object::from(vmi),
                    gone,
                },
                uid,
            ))
        })?;
        self.wake(&uid);
        Ok(deleted)
    }
}

/// The grace period of a VMI unless a request gives another.
pub(crate) fn own_grace_seconds(vmi: &VirtualMachineInstance) -> i64 {
    vmi.spec
        .as_ref()
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(DEFAULT_GRACE_SECONDS)
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

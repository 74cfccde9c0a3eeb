//! The common instance types and preferences: those that are not there are made when the node starts. What an operator
//! changes stays so.

use std::collections::BTreeSet;

use agent_domain::{CommonRelease, Owner, RELEASE_LABEL};
use agent_host::Host;
use agent_objects::{Object, Preconditions, Propagation};
use agent_sources::{ApiError, ObjectDelete, ObjectRegistry, WriteBy};

use crate::agent::Agent;
use crate::objects::wait::wait;

const KINDS: [&str; 2] = [
    "VirtualMachineClusterInstancetype",
    "VirtualMachineClusterPreference",
];

impl<H: Host> Agent<H> {
    /// Has the node have those of a release; others that it was given before go.
    ///
    /// # Errors
    /// When the ledger cannot be read or written.
    pub(crate) fn install_common(&self, release: Option<CommonRelease>) -> Result<(), ApiError> {
        let by = WriteBy {
            owner: Owner::GrpcCaller,
            dry_run: false,
            idempotency_key: String::new(),
            manager: String::new(),
        };
        let mut there = BTreeSet::new();
        for kind in KINDS {
            for object in self.list_objects(kind)?.items {
                if given_by(&object).is_some_and(|given| release != Some(given)) {
                    self.remove_common(&object, &by)?;
                } else {
                    there.insert((object.kind, object.metadata.name));
                }
            }
        }
        let wanted = release.map(CommonRelease::objects).unwrap_or_default();
        for value in wanted {
            let object = Object::from_json(value);
            let object = object.map_err(|errors| ApiError::Internal(format!("{errors:?}")))?;
            if !there.contains(&(object.kind.clone(), object.metadata.name.clone())) {
                match wait(self.create_object(object, &by)) {
                    // One that is being deleted is there until its finalizers are gone.
                    Ok(_) | Err(ApiError::AlreadyExists(_)) => {}
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    fn remove_common(&self, object: &Object, by: &WriteBy) -> Result<(), ApiError> {
        let delete = ObjectDelete {
            id: object.id(),
            preconditions: Preconditions::same(&object.metadata),
            propagation: Propagation::Background,
            grace_period_seconds: None,
        };
        wait(ObjectRegistry::delete_object(self, &delete, by)).map(drop)
    }
}

/// The release of which this node made an object, if it did and nobody has changed it: others install the same objects by
/// hand, with the same label.
fn given_by(object: &Object) -> Option<CommonRelease> {
    let labels = &object.metadata.labels;
    let by = labels.get("app.kubernetes.io/managed-by")?;
    let label = labels.get(RELEASE_LABEL)?;
    let is_ours = by == "kvmlet" && object.metadata.generation == 1;
    let mut releases = CommonRelease::ALL.into_iter();
    releases.find(|release| is_ours && release.as_str() == label)
}

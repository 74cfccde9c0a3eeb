//! The owner of what a machine makes.

use agent_objects::Object;
use proto_node::meta::OwnerReference;

/// The reference by which a machine controls what it makes.
pub(super) fn owner_reference(machine: &Object) -> OwnerReference {
    OwnerReference {
        api_version: machine.api_version.clone(),
        kind: machine.kind.clone(),
        name: machine.metadata.name.clone(),
        uid: machine.metadata.uid.clone(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}

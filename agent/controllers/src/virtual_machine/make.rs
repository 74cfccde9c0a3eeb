//! The VMI of a machine.

use agent_objects::{Object, ObjectId};
use proto_node::meta::{ObjectMeta, OwnerReference};
use proto_node::to_json;
use proto_node::vmi::VirtualMachineSpec;
use serde_json::Map;

use super::{FINALIZER, GENERATION_ANNOTATION, VMI};

/// The reference by which a machine controls its VMI.
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

/// Names the VMI of a machine.
pub(super) fn vmi_id(machine: &Object) -> ObjectId {
    ObjectId {
        kind: String::from(VMI),
        namespace: machine.metadata.namespace.clone(),
        name: machine.metadata.name.clone(),
    }
}

/// The VMI before the store has it; nothing when the machine has no template.
pub(super) fn vmi(machine: &Object, spec: &VirtualMachineSpec, paused: bool) -> Option<Object> {
    let template = spec.template.clone()?;
    let metadata = template.metadata.unwrap_or_default();
    let mut spec = template.spec?;
    if paused {
        "Paused".clone_into(&mut spec.start_strategy);
    }
    let mut annotations = metadata.annotations;
    annotations.insert(
        String::from(GENERATION_ANNOTATION),
        machine.metadata.generation.to_string(),
    );
    let id = vmi_id(machine);
    let mut content = Map::new();
    content.insert(String::from("spec"), to_json(&spec));
    Some(Object {
        api_version: machine.api_version.clone(),
        kind: id.kind,
        metadata: ObjectMeta {
            name: id.name,
            namespace: id.namespace,
            labels: metadata.labels,
            annotations,
            owner_references: vec![owner_reference(machine)],
            finalizers: vec![FINALIZER.to_owned()],
            ..ObjectMeta::default()
        },
        content,
    })
}

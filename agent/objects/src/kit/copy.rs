//! ControllerRevisions that keep the instance type and the preference of a machine as they were when it was made, whatever
//! becomes of the originals.

use agent_domain::{KIT_VERSION, Sort, named};
use proto_node::meta::ObjectMeta;
use proto_node::vmi::{ControllerRevisionRef, InstancetypeStatusRef, VirtualMachineSpec};
use serde_json::{Map, json};

use super::{
    REVISION, REVISION_GENERATION_LABEL, REVISION_KIND_LABEL, REVISION_NAME_LABEL,
    REVISION_UID_LABEL, REVISION_VERSION_LABEL,
};
use crate::object::{Object, owner_reference};

/// The copy of an instance type or preference for a machine, which must have its uid.
#[must_use]
pub fn kit_copy(machine: &Object, original: &Object) -> Object {
    let metadata = &original.metadata;
    let data = json!({
        "apiVersion": original.api_version,
        "kind": original.kind,
        "metadata": {
            "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
            "generation": metadata.generation,
        },
        "spec": original.content.get("spec").cloned().unwrap_or_default(),
    });
    let mut content = Map::new();
    content.insert(String::from("data"), data);
    Object {
        api_version: String::from("apps/v1"),
        kind: String::from(REVISION),
        metadata: ObjectMeta {
            name: format!(
                "{}-{}-{KIT_VERSION}-{}-{}",
                machine.metadata.name, metadata.name, metadata.uid, metadata.generation
            ),
            namespace: machine.metadata.namespace.clone(),
            labels: [
                (REVISION_GENERATION_LABEL, metadata.generation.to_string()),
                (REVISION_KIND_LABEL, original.kind.clone()),
                (REVISION_UID_LABEL, metadata.uid.clone()),
                (REVISION_VERSION_LABEL, KIT_VERSION.to_owned()),
                (REVISION_NAME_LABEL, metadata.name.clone()),
            ]
            .map(|(label, value)| (label.to_owned(), value))
            .into(),
            owner_references: vec![owner_reference(machine)],
            ..ObjectMeta::default()
        },
        content,
        ..Object::default()
    }
}

/// How the status of a machine names the copy that it has of what its spec names.
#[must_use]
pub fn kit_reference(
    spec: &VirtualMachineSpec,
    sort: Sort,
    revision: String,
) -> InstancetypeStatusRef {
    let named = named(spec, sort).ok().flatten();
    InstancetypeStatusRef {
        name: named.as_ref().map(|it| it.name.clone()).unwrap_or_default(),
        kind: named.map(|it| it.kind.to_lowercase()).unwrap_or_default(),
        controller_revision_ref: Some(ControllerRevisionRef { name: revision }),
        ..InstancetypeStatusRef::default()
    }
}

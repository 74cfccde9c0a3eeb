//! What a machine was when its guest was started: a ControllerRevision, by which is known what only a restart would change.

use agent_objects::{Object, ObjectId, Preconditions, Write, owner_reference};
use proto_node::meta::ObjectMeta;
use serde_json::{Map, json};

use super::view::{GENERATION_ANNOTATION, REVISION};

/// The generation of its machine that a VMI was made of.
pub(super) fn made_of(vmi: &Object) -> Option<i64> {
    let generation = vmi.metadata.annotations.get(GENERATION_ANNOTATION)?;
    generation.parse().ok()
}

/// Names the revision of a generation, as KubeVirt does.
pub(super) fn id(machine: &Object, generation: i64) -> ObjectId {
    let metadata = &machine.metadata;
    ObjectId {
        kind: REVISION.to_owned(),
        namespace: metadata.namespace.clone(),
        name: format!("{}{generation}", prefix(machine)),
    }
}

/// What the names of all these revisions of a machine begin with; its generation follows.
fn prefix(machine: &Object) -> String {
    format!("revision-start-vm-{}-", machine.metadata.uid)
}

/// Those of `names` that keep a machine as it was before the generation that its guest is made of. A later one may be of
/// a guest that is not seen yet.
pub(super) fn outdated(machine: &Object, made_of: i64, mut names: Vec<ObjectId>) -> Vec<ObjectId> {
    let prefix = prefix(machine);
    names.retain(|id| {
        let generation = id.name.strip_prefix(&prefix);
        let generation = generation.and_then(|text| text.parse::<i64>().ok());
        id.kind == REVISION && generation.is_some_and(|generation| generation < made_of)
    });
    names
}

/// The write that keeps a machine as it was no more.
pub(super) fn delete(id: &ObjectId) -> Write {
    Write::Delete {
        id: id.clone(),
        preconditions: Preconditions::default(),
    }
}

/// Keeps a machine as it is.
pub(super) fn of(machine: &Object) -> Object {
    let generation = machine.metadata.generation;
    let id = id(machine, generation);
    let mut content = Map::new();
    let spec = machine.content.get("spec").cloned().unwrap_or_default();
    content.insert(String::from("data"), json!({ "spec": spec }));
    content.insert(String::from("revision"), generation.into());
    Object {
        api_version: String::from("apps/v1"),
        kind: id.kind,
        metadata: ObjectMeta {
            name: id.name,
            namespace: id.namespace,
            owner_references: vec![owner_reference(machine)],
            ..ObjectMeta::default()
        },
        content,
        ..Object::default()
    }
}

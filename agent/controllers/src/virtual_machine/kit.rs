//! Copies of a machine's instance type and preference. One is made when the machine is first looked at, so that it stays as
//! it is whatever becomes of the original.

use std::collections::BTreeMap;

use agent_domain::{Kit, Sort, named};
use agent_objects::{KitPart, Object, Part, Preconditions, REVISION_NAME_LABEL, Write};
use proto_node::meta::ObjectMeta;
use proto_node::to_json;
use proto_node::vmi::{
    ControllerRevisionRef, InstancetypeStatusRef as Reference, VirtualMachineSpec,
    VirtualMachineStatus,
};
use serde_json::{Map, json};

use super::memory::Failure;
use super::owner::owner_reference;
use super::view::{REVISION, View};
use crate::patch::replacing;

/// The version of the copies.
const VERSION: &str = "v1beta1";

/// What is to be done about the copies of a machine.
pub(super) enum Stash<'a> {
    /// They are there.
    Ready(Kit<'a>),
    /// These writes make them.
    Writes(Vec<Write>),
    /// What the machine names is not there.
    Missing(Failure),
}

/// Looks after the copies.
pub(super) fn stash<'a>(
    view: &'a View,
    spec: &VirtualMachineSpec,
    before: &VirtualMachineStatus,
) -> Stash<'a> {
    let (mut writes, mut wanted) = (Vec::new(), before.clone());
    for (sort, part) in [
        (Sort::Instancetype, &view.instancetype),
        (Sort::Preference, &view.preference),
    ] {
        let revision = match part {
            KitPart::Missing(text) => {
                return Stash::Missing(Failure {
                    reason: sort.not_found(),
                    message: text.clone(),
                });
            }
            KitPart::Unnamed => None,
            KitPart::Copy { revision, .. } => Some(revision.clone()),
            KitPart::Live(object) => {
                let copy = copy_of(&view.machine, object);
                let name = copy.metadata.name.clone();
                writes.push(Write::Create(Box::new(copy)));
                Some(name)
            }
        };
        let place = match sort {
            Sort::Instancetype => &mut wanted.instancetype_ref,
            Sort::Preference => &mut wanted.preference_ref,
        };
        *place = revision.map(|revision| reference(spec, sort, revision));
    }
    let refs = |status: &VirtualMachineStatus| {
        let part = VirtualMachineStatus {
            instancetype_ref: status.instancetype_ref.clone(),
            preference_ref: status.preference_ref.clone(),
            ..VirtualMachineStatus::default()
        };
        to_json(&part)
    };
    if refs(before) != refs(&wanted) {
        let machine = &view.machine;
        writes.push(Write::Patch {
            id: machine.id(),
            part: Part::Status,
            patch: json!({"status": replacing(&refs(before), refs(&wanted))}),
            preconditions: Preconditions::exactly(&machine.metadata),
        });
    }
    if !writes.is_empty() {
        return Stash::Writes(writes);
    }
    Stash::Ready(Kit {
        instancetype: view.instancetype.spec(),
        preference: view.preference.spec(),
    })
}

fn reference(spec: &VirtualMachineSpec, sort: Sort, revision: String) -> Reference {
    let named = named(spec, sort).ok().flatten();
    Reference {
        name: named.as_ref().map(|it| it.name.clone()).unwrap_or_default(),
        kind: named.map(|it| it.kind.to_lowercase()).unwrap_or_default(),
        controller_revision_ref: Some(ControllerRevisionRef { name: revision }),
        ..Reference::default()
    }
}

/// The ControllerRevision that keeps an object as it is.
fn copy_of(machine: &Object, object: &Object) -> Object {
    let metadata = &object.metadata;
    let data = json!({
        "apiVersion": object.api_version,
        "kind": object.kind,
        "metadata": {
            "name": metadata.name, "namespace": metadata.namespace, "uid": metadata.uid,
            "generation": metadata.generation,
        },
        "spec": object.content.get("spec").cloned().unwrap_or_default(),
    });
    let label =
        |name: &str, value: String| (format!("instancetype.kubevirt.io/object-{name}"), value);
    let mut content = Map::new();
    content.insert(String::from("data"), data);
    Object {
        api_version: String::from("apps/v1"),
        kind: String::from(REVISION),
        metadata: ObjectMeta {
            name: format!(
                "{}-{}-{VERSION}-{}-{}",
                machine.metadata.name, metadata.name, metadata.uid, metadata.generation
            ),
            namespace: machine.metadata.namespace.clone(),
            labels: [
                label("generation", metadata.generation.to_string()),
                label("kind", object.kind.clone()),
                label("uid", metadata.uid.clone()),
                label("version", VERSION.to_owned()),
                (REVISION_NAME_LABEL.to_owned(), metadata.name.clone()),
            ]
            .into(),
            owner_references: vec![owner_reference(machine)],
            ..ObjectMeta::default()
        },
        content,
        ..Object::default()
    }
}

/// Annotations of a VMI that name what it was made of.
pub(super) fn annotate(spec: &VirtualMachineSpec, annotations: &mut BTreeMap<String, String>) {
    for sort in [Sort::Instancetype, Sort::Preference] {
        if let Ok(Some(named)) = named(spec, sort) {
            let scope = if named.is_namespaced { "" } else { "cluster-" };
            let key = format!("kubevirt.io/{scope}{}-name", sort.word());
            annotations.insert(key, named.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vmis_name_their_instance_type_as_kubevirt_has_it() {
        let spec: VirtualMachineSpec = proto_node::from_json(json!({
            "instancetype": {"name": "u1.nano"},
            "preference": {"name": "debian", "kind": "VirtualMachinePreference"},
        }))
        .expect("a spec");
        let mut annotations = BTreeMap::new();
        annotate(&spec, &mut annotations);
        let wanted: BTreeMap<String, String> = [
            ("kubevirt.io/cluster-instancetype-name", "u1.nano"),
            ("kubevirt.io/preference-name", "debian"),
        ]
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into();
        assert_eq!(annotations, wanted);
    }
}

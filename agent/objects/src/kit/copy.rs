//! ControllerRevisions that keep the instance type and the preference of a machine as they were when it was made, whatever
//! becomes of the originals.

use agent_domain::{KIT_VERSION, Sort, named};
use proto_node::meta::ObjectMeta;
use proto_node::vmi::{
    ControllerRevisionRef, InstancetypeStatusRef, VirtualMachine, VirtualMachineSpec,
};
use proto_node::{from_json, to_json};
use serde_json::{Map, Value, json};

use super::{
    KitPart, REVISION, REVISION_GENERATION_LABEL, REVISION_KIND_LABEL, REVISION_NAME_LABEL,
    REVISION_UID_LABEL, REVISION_VERSION_LABEL, find_kit,
};
use crate::object::{Object, ObjectId, owner_reference};

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

/// The copies of what a new machine names and what is there, named by the status that the machine is given. What is not
/// there yet is copied by the controller of machines once it is.
pub(crate) fn copies_for(
    machine: &mut Object,
    find: &dyn Fn(&ObjectId) -> Option<Object>,
) -> Vec<Object> {
    // It was admitted, so it can be read.
    let Ok(read) = from_json::<VirtualMachine>(machine.to_json()) else {
        return Vec::new();
    };
    let spec = read.spec.clone().unwrap_or_default();
    let (mut copies, mut status) = (Vec::new(), Map::new());
    for (sort, field) in [
        (Sort::Instancetype, "instancetypeRef"),
        (Sort::Preference, "preferenceRef"),
    ] {
        let found: Result<_, std::convert::Infallible> = find_kit(&read, sort, |id| Ok(find(id)));
        let revision = match found {
            Ok(KitPart::Live(original)) => {
                let copy = kit_copy(machine, &original);
                let name = copy.metadata.name.clone();
                copies.push(copy);
                name
            }
            Ok(KitPart::Copy { revision, .. }) => revision,
            Ok(KitPart::Unnamed | KitPart::Missing(_)) => continue,
        };
        let reference = kit_reference(&spec, sort, revision);
        status.insert(field.to_owned(), to_json(&reference));
    }
    if !status.is_empty() {
        let status = Value::Object(status);
        machine.content.insert(String::from("status"), status);
    }
    copies
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::Kinds;

    fn read(value: Value) -> Object {
        Kinds::this_release().read(value).unwrap().1
    }

    #[test]
    fn a_new_machine_has_copies_of_all_that_is_there_and_notes_them() {
        let mut machine = read(json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "web", "namespace": "team", "uid": "m"},
            "spec": {
                "runStrategy": "Halted",
                "instancetype": {"name": "small", "kind": "virtualmachineinstancetype"},
                "preference": {"name": "late"},
                "template": {"spec": {"domain": {"devices": {}}}},
            },
        }));
        let mut original = read(json!({
            "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": "VirtualMachineInstancetype",
            "metadata": {"name": "small", "namespace": "team", "uid": "t", "labels": {"a": "b"}},
            "spec": {"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}},
        }));
        original.metadata.generation = 4;
        let objects: BTreeMap<ObjectId, Object> = [(original.id(), original)].into();
        let copies = copies_for(&mut machine, &|id| objects.get(id).cloned());
        let [copy] = copies.as_slice() else {
            panic!("one is there: {copies:?}");
        };
        assert_eq!(copy.metadata.name, "web-small-v1beta1-t-4");
        assert_eq!(copy.metadata.namespace, "team");
        assert_eq!(copy.metadata.owner_references[0].uid, "m");
        let kept = copy.content["data"].clone();
        assert_eq!(kept["spec"]["memory"]["guest"], "1Gi");
        assert_eq!(kept["metadata"]["generation"], 4);
        assert!(kept["metadata"].get("labels").is_none());
        let noted = json!({"instancetypeRef": {
            "name": "small", "kind": "virtualmachineinstancetype",
            "controllerRevisionRef": {"name": "web-small-v1beta1-t-4"},
        }});
        assert_eq!(machine.content.get("status"), Some(&noted));

        // One that asks for a copy by name has that.
        machine.content.shift_remove("status");
        let spec = machine.content.get_mut("spec").unwrap();
        spec["instancetype"]["revisionName"] = json!("web-small-v1beta1-t-4");
        let found = copies.clone();
        let copies = copies_for(&mut machine, &|id| {
            let mut all = found.iter();
            all.find(|it| it.id() == *id).cloned()
        });
        assert_eq!(copies, []);
        assert_eq!(machine.content.get("status"), Some(&noted));
    }
}

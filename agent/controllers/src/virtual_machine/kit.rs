//! Copies of a machine's instance type and preference. They are stored with a new machine, so that it stays as it is
//! whatever becomes of the originals. Those of what was not there then, and of what it names later, are made here; those of
//! older versions of the API are replaced, as KubeVirt does it.

use std::collections::BTreeMap;

use agent_domain::{Kit, Sort, named};
use agent_objects::{
    KitPart, Object, ObjectId, Outdated, Part, Preconditions, Write, controller_of, kit_copy,
    kit_reference,
};
use proto_node::to_json;
use proto_node::vmi::{VirtualMachineSpec, VirtualMachineStatus};
use serde_json::json;

use super::memory::Failure;
use super::view::{REVISION, View};
use crate::patch::replacing;

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
    let (mut writes, mut left_over, mut wanted) = (Vec::new(), Vec::new(), before.clone());
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
            KitPart::Copy {
                revision, outdated, ..
            } => {
                let upgraded = outdated
                    .as_deref()
                    .and_then(|old| upgraded(&view.machine, old));
                let name = upgraded
                    .as_ref()
                    .map(|(copy, _)| copy.metadata.name.clone());
                if let Some((copy, removal)) = upgraded {
                    writes.push(Write::Create(Box::new(copy)));
                    left_over.extend(removal);
                }
                Some(name.unwrap_or_else(|| revision.clone()))
            }
            KitPart::Live(object) => {
                let copy = kit_copy(&view.machine, object);
                let name = copy.metadata.name.clone();
                writes.push(Write::Create(Box::new(copy)));
                Some(name)
            }
        };
        let place = match sort {
            Sort::Instancetype => &mut wanted.instancetype_ref,
            Sort::Preference => &mut wanted.preference_ref,
        };
        *place = revision.map(|revision| kit_reference(spec, sort, revision));
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
    writes.extend(left_over);
    if !writes.is_empty() {
        return Stash::Writes(writes);
    }
    Stash::Ready(Kit {
        instancetype: view.instancetype.spec(),
        preference: view.preference.spec(),
    })
}

/// The copy that takes the place of an outdated one, and what takes that one away if it is the machine's.
fn upgraded(machine: &Object, old: &Outdated) -> Option<(Object, Option<Write>)> {
    let (copy, revision) = (kit_copy(machine, &old.original), &old.revision);
    if copy.metadata.name == revision.name {
        return None;
    }
    let is_own = controller_of(revision).is_some_and(|it| it.uid == machine.metadata.uid);
    let removal = is_own.then(|| Write::Delete {
        id: ObjectId {
            kind: REVISION.to_owned(),
            namespace: revision.namespace.clone(),
            name: revision.name.clone(),
        },
        preconditions: Preconditions::same(revision),
    });
    Some((copy, removal))
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

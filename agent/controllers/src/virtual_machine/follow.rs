//! What reaches a guest that runs of a change to its machine. KubeVirt has more follow, such as memory and CPUs that are
//! plugged in; here that takes a restart ([`super::drift`]).

use agent_objects::{
    Object, PLACEMENT_FIELDS, Part, PlacementField, Preconditions, Write, links_of_template,
};
use serde_json::{Map, Value, json};

use super::view::is_final;
use crate::patch::replacing;

/// Annotations that a VMI has as the template has them at present. Programs that evict or back up guests read them.
const OF_TEMPLATE: [&str; 2] = [
    "descheduler.alpha.kubernetes.io/evict",
    "descheduler.alpha.kubernetes.io/prefer-no-eviction",
];

/// An annotation that a VMI has as the machine itself has it at present.
const OF_MACHINE: &str = "kubevirt.io/skip-backup-hooks";

/// The write that has a VMI follow its machine. `places` is a spec whose places it is to have, if they changed.
pub(super) fn follow(machine: &Object, vmi: &Object, places: Option<&Value>) -> Option<Write> {
    if vmi.is_deleted() || is_final(vmi) {
        return None;
    }
    // One write at a time: the next round writes after it read the result of this one.
    let (part, patch) = match annotations(machine, vmi) {
        Some(annotations) => (
            Part::Main,
            json!({"metadata": {"annotations": annotations}}),
        ),
        None => (Part::Live, json!({"spec": spec(machine, vmi, places)?})),
    };
    Some(Write::Patch {
        id: vmi.id(),
        part,
        patch,
        preconditions: Preconditions::exactly(&vmi.metadata),
    })
}

fn annotations(machine: &Object, vmi: &Object) -> Option<Map<String, Value>> {
    let own = machine.metadata.annotations.get(OF_MACHINE);
    let wanted = OF_TEMPLATE.into_iter().map(|name| {
        let path = ["spec", "template", "metadata", "annotations", name];
        (name, machine.at(&path).and_then(Value::as_str))
    });
    let wanted = wanted.chain([(OF_MACHINE, own.map(String::as_str))]);
    let present = &vmi.metadata.annotations;
    let changed: Map<String, Value> = wanted
        .filter(|(name, wanted)| present.get(*name).map(String::as_str) != *wanted)
        .map(|(name, wanted)| (name.to_owned(), wanted.into()))
        .collect();
    (!changed.is_empty()).then_some(changed)
}

fn spec(machine: &Object, vmi: &Object, places: Option<&Value>) -> Option<Value> {
    let present = vmi.content.get("spec")?;
    let mut changed = Map::new();
    let template = machine.at(&["spec", "template", "spec"]);
    if let Some(interfaces) = template.and_then(|spec| links_of_template(present, spec)) {
        let devices = json!({"devices": {"interfaces": interfaces}});
        changed.insert(String::from("domain"), devices);
    }
    if let Some(wanted) = places {
        for PlacementField { name, .. } in PLACEMENT_FIELDS {
            let (before, wanted) = (present.get(name), wanted.get(name));
            if before != wanted {
                let wanted = wanted.cloned().unwrap_or_default();
                let patch = before.map(|before| replacing(before, wanted.clone()));
                changed.insert(name.to_owned(), patch.unwrap_or(wanted));
            }
        }
    }
    (!changed.is_empty()).then_some(Value::Object(changed))
}

//! Every pair of an instance type and a preference of every release, on two machines.

use std::collections::BTreeMap;

use agent_domain::{Bound, CommonRelease, Kit, Named, Sort, admit_virtual_machine, expand_machine};
use proto_node::vmi::VirtualMachine;
use serde::Deserialize;
use serde_json::{Value, json};

/// A pair and KubeVirt's answers.
#[derive(Deserialize)]
struct Recorded {
    release: String,
    instancetype: String,
    preference: String,
    base: String,
    /// The machine, expanded.
    expanded: Value,
    /// Why it would be refused.
    causes: Vec<Cause>,
}

impl Recorded {
    fn name(&self) -> String {
        let Self {
            release,
            instancetype,
            preference,
            base,
            ..
        } = self;
        format!("{release}: {instancetype}, {preference}, {base}")
    }
}

#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(super) struct Cause {
    #[serde(default)]
    field: String,
    pub(super) message: String,
}

impl Cause {
    pub(super) fn new(field: String, message: String) -> Self {
        Self { field, message }
    }

    /// Whether this says the same of a request for memory as KubeVirt, which has 0 in its place where a machine names none.
    pub(super) fn is_about(&self, other: &Self) -> bool {
        let quoted = |message: &str| message.split('\'').nth(1).map(|text| format!("'{text}'"));
        let zero = quoted(&self.message).map(|text| self.message.replacen(&text, "'0'", 1));
        self.field == other.field && zero.as_deref() == Some(&other.message)
    }
}

/// Instance types and preferences of all releases.
struct Specs(BTreeMap<(String, bool, String), Value>);

impl Specs {
    fn all() -> Self {
        let mut specs = BTreeMap::new();
        for release in CommonRelease::ALL {
            for mut object in release.objects() {
                let is_type = object["kind"].as_str().unwrap().ends_with("Instancetype");
                let name = object["metadata"]["name"].as_str().unwrap().to_owned();
                let key = (release.as_str().to_owned(), is_type, name);
                let mut spec = object["spec"].take();
                // The API of v1.7 does not have these two.
                spec.as_object_mut()
                    .unwrap()
                    .remove("preferredLaunchSecurity");
                if let Some(devices) = spec["devices"].as_object_mut() {
                    devices.remove("preferredVideoType");
                }
                specs.insert(key, spec);
            }
        }
        Self(specs)
    }

    fn of(&self, recorded: &Recorded, is_type: bool) -> Option<&Value> {
        let name = if is_type {
            &recorded.instancetype
        } else {
            &recorded.preference
        };
        if name == "-" {
            return None;
        }
        let key = (recorded.release.clone(), is_type, name.clone());
        Some(&self.0[&key])
    }
}

fn machine(recorded: &Recorded, bases: &Value) -> Value {
    let mut spec = bases[&recorded.base].clone();
    if recorded.instancetype == "-" {
        spec["template"]["spec"]["domain"]["memory"] = json!({"guest": "3Gi"});
    } else {
        spec["instancetype"] = json!({"name": recorded.instancetype});
    }
    if recorded.preference != "-" {
        spec["preference"] = json!({"name": recorded.preference});
    }
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": "dev", "namespace": "default"},
        "spec": spec,
    })
}

/// A tree without what Go writes for fields that are not set.
pub(super) fn bare(value: &Value) -> Value {
    match value {
        Value::Object(members) => members
            .iter()
            .map(|(name, value)| (name.clone(), bare(value)))
            .filter(|(name, value)| {
                let structures = ["acpi", "metadata", "resources", "status"];
                let is_structure = structures.contains(&name.as_str());
                !(value.is_null() || *value == 0 || is_structure && *value == json!({}))
            })
            .collect::<serde_json::Map<_, _>>()
            .into(),
        Value::Array(items) => items.iter().map(bare).collect(),
        value => value.clone(),
    }
}

fn recorded() -> Vec<Recorded> {
    super::lines(include_bytes!("pairs.jsonl.zst"))
}

fn bases() -> Value {
    serde_json::from_str(include_str!("machines.json")).unwrap()
}

#[test]
fn every_pair_is_expanded_as_kubevirt_expands_it() {
    let (specs, bases, mut count) = (Specs::all(), bases(), 0);
    for recorded in recorded() {
        let kit = Kit {
            instancetype: specs.of(&recorded, true),
            preference: specs.of(&recorded, false),
        };
        let mut made = machine(&recorded, &bases);
        expand_machine(kit, &mut made).unwrap();
        assert_eq!(bare(&made), bare(&recorded.expanded), "{}", recorded.name());
        count += 1;
    }
    assert_eq!(count, 10_292);
}

#[test]
fn every_pair_is_refused_where_kubevirt_refuses_it() {
    let (specs, bases, mut refused) = (Specs::all(), bases(), 0);
    for recorded in recorded() {
        let mut object = machine(&recorded, &bases);
        object["metadata"]["uid"] = json!("5a7e6b0c-8a4e-4c0b-9d0a-1f2e3d4c5b6a");
        let object: VirtualMachine = proto_node::from_json(object).unwrap();
        let find = |_: &VirtualMachine, _: &Named, sort: Sort| {
            specs.of(&recorded, sort == Sort::Instancetype).cloned()
        };
        let errors = admit_virtual_machine(object, None, &find).err();
        // What this release cannot do is another matter.
        let causes: Vec<Cause> = errors
            .into_iter()
            .flatten()
            .filter(|error| error.bound == Bound::Api)
            .map(|error| Cause::new(error.path, error.message))
            .collect();
        assert_eq!(causes, recorded.causes, "{}", recorded.name());
        refused += usize::from(!causes.is_empty());
    }
    assert_eq!(refused, 1166);
}

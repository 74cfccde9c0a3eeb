//! Machines beside instance types and preferences of their own, against both admission webhooks of machines and those of
//! instance types and preferences.

use agent_domain::{
    Bound, FieldError, Named, Sort, admit_virtual_machine, check_matcher_changes,
    judge_instancetype, judge_preference,
};
use proto_node::instancetype as api;
use proto_node::vmi::VirtualMachine;
use serde::Deserialize;
use serde_json::{Value, json};

use super::pairs::{Cause, bare};

/// A machine, the one that it takes the place of, what is there, and KubeVirt's answers.
#[derive(Deserialize)]
struct Recorded {
    machine: Value,
    before: Option<Value>,
    objects: Vec<Value>,
    causes: Vec<Cause>,
    /// A refusal that names no field.
    #[serde(default)]
    error: String,
    /// The spec that is stored of a machine that is taken, without the identity of its firmware.
    stored: Option<Value>,
    /// What is wrong with each of the objects.
    #[serde(rename = "ofObjects")]
    of_objects: Vec<Vec<Cause>>,
}

fn recorded() -> Vec<Recorded> {
    super::lines(include_bytes!("kits.jsonl.zst"))
}

/// The causes of our refusal; what this release cannot do is another matter.
fn causes(errors: Vec<FieldError>) -> Vec<Cause> {
    let of_api = errors.into_iter().filter(|error| error.bound == Bound::Api);
    of_api
        .map(|error| Cause::new(error.path, error.message))
        .collect()
}

fn answer(recorded: &Recorded) -> (Vec<Cause>, Option<Value>) {
    let mut object = recorded.machine.clone();
    object["metadata"]["uid"] = json!("5a7e6b0c-8a4e-4c0b-9d0a-1f2e3d4c5b6a");
    let decoded: VirtualMachine = proto_node::from_json(object).unwrap();
    if let Some(before) = &recorded.before {
        let before: VirtualMachine = proto_node::from_json(before.clone()).unwrap();
        let changes = check_matcher_changes(&before.spec.unwrap(), decoded.spec.as_ref().unwrap());
        if let Some(first) = changes.into_iter().next() {
            return (causes(vec![first]), None);
        }
    }
    let find = |_: &VirtualMachine, named: &Named, _: Sort| {
        let is_named = |object: &&Value| {
            object["kind"] == named.kind
                && object["metadata"]["name"] == named.name
                && named.revision.is_empty()
        };
        let found = recorded.objects.iter().find(is_named)?;
        Some(found["spec"].clone())
    };
    match admit_virtual_machine(decoded, None, &find) {
        Ok(admitted) => {
            let spec = proto_node::to_json(&admitted.object.spec.unwrap());
            (Vec::new(), Some(spec))
        }
        Err(errors) => (causes(errors), None),
    }
}

/// The firmware's uuid and serial are drawn at random by KubeVirt, and only when a machine is made.
fn without_identity(spec: &Value) -> Value {
    let mut spec = spec.clone();
    if let Some(Value::Object(domain)) = spec.pointer_mut("/template/spec/domain")
        && let Some(Value::Object(firmware)) = domain.get_mut("firmware")
    {
        firmware.remove("uuid");
        firmware.remove("serial");
        if firmware.is_empty() {
            domain.remove("firmware");
        }
    }
    spec
}

#[test]
fn machines_are_refused_and_stored_as_kubevirt_does_it() {
    let (mut wrong, mut refused, mut stored) = (Vec::new(), 0, 0);
    for recorded in recorded() {
        if recorded.of_objects.iter().any(|causes| !causes.is_empty()) {
            // No store holds such an object.
            continue;
        }
        let (causes, spec) = answer(&recorded);
        let by_kubevirt = &recorded.causes;
        let is_said = |cause: &Cause| {
            causes.contains(cause) || causes.iter().any(|ours| ours.is_about(cause))
        };
        let is_same = if recorded.error.is_empty() {
            // Its webhooks stop earlier than ours.
            by_kubevirt.is_empty() == causes.is_empty() && by_kubevirt.iter().all(is_said)
        } else {
            causes.iter().any(|cause| cause.message == recorded.error)
        };
        refused += usize::from(!causes.is_empty());
        let is_stored = match (&spec, &recorded.stored) {
            (Some(ours), Some(theirs)) => {
                stored += 1;
                bare(&without_identity(ours)) == bare(&without_identity(theirs))
            }
            _ => true,
        };
        if !is_same || !is_stored {
            let Recorded {
                machine,
                before,
                objects,
                error,
                ..
            } = &recorded;
            wrong.push(format!(
                "{machine}\nbefore: {before:?}\nbeside: {objects:?}\nKubeVirt: {by_kubevirt:?} {error}\n{:?}\nhere: {causes:?}\n{spec:?}\n",
                recorded.stored
            ));
        }
    }
    let count = wrong.len();
    wrong.truncate(12);
    assert!(wrong.is_empty(), "{count}\n{}", wrong.join("\n"));
    assert!(refused > 1000 && stored > 500, "{refused}, {stored}");
}

#[test]
fn instance_types_and_preferences_are_refused_as_kubevirt_does_it() {
    let mut refused = 0;
    for recorded in recorded() {
        for (object, by_kubevirt) in recorded.objects.iter().zip(&recorded.of_objects) {
            let spec = object["spec"].clone();
            let errors = if object["kind"].as_str().unwrap().ends_with("Preference") {
                let spec: api::VirtualMachinePreferenceSpec = proto_node::from_json(spec).unwrap();
                judge_preference(Some(&spec)).0
            } else {
                let spec: api::VirtualMachineInstancetypeSpec =
                    proto_node::from_json(spec).unwrap();
                judge_instancetype(Some(&spec)).0
            };
            assert_eq!(&causes(errors), by_kubevirt, "{object}");
            refused += usize::from(!by_kubevirt.is_empty());
        }
    }
    assert!(refused > 90, "{refused}");
}

//! VirtualMachines that are made before the instance type that they name.

use agent_domain::{AdmittedVirtualMachine, Named, Sort, admit_virtual_machine};
use proto_node::vmi::VirtualMachine;
use proto_node::{from_json, to_json};
use serde_json::{Value, json};

fn machine() -> VirtualMachine {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "web", "namespace": "default", "uid": "7c1f8a52-0000-4000-8000-000000000001"},
        "spec": {
            "runStrategy": "Halted",
            "instancetype": {"name": "late"},
            "preference": {"name": "there"},
            "template": {"spec": {"domain": {"devices": {}}}},
        },
    });
    from_json(object).unwrap()
}

/// Admits a machine where there is this instance type and preference.
fn admitted(
    machine: VirtualMachine,
    kind: Option<&Value>,
    preference: Option<&Value>,
) -> AdmittedVirtualMachine {
    let find = |_: &VirtualMachine, _: &Named, sort: Sort| {
        let found = match sort {
            Sort::Instancetype => kind,
            Sort::Preference => preference,
        };
        found.cloned()
    };
    admit_virtual_machine(machine, None, &find).unwrap()
}

#[test]
fn a_machine_has_its_identity_before_its_instance_type_is_there_and_keeps_it() {
    let kind = json!({"cpu": {"guest": 1}, "memory": {"guest": "1Gi"}});
    let preference = json!({"machine": {"preferredMachineType": "pc-q35-9.2"}});
    let early = admitted(machine(), None, Some(&preference)).object;
    let template = to_json(&early)["spec"]["template"]["spec"].clone();
    let firmware = &template["domain"]["firmware"];
    for member in ["uuid", "serial"] {
        let value = firmware[member].as_str().unwrap_or_default();
        assert_eq!(value.len(), 36, "{member}: {template}");
    }
    assert_eq!(template["architecture"], "amd64");
    assert_eq!(template["domain"]["machine"]["type"], "pc-q35-9.2");

    // Whoever writes it again, with the instance type there, changes nothing.
    let again = admitted(early.clone(), Some(&kind), Some(&preference)).object;
    assert_eq!(again, early);
    // It is what a machine is given that finds everything there.
    let late = admitted(machine(), Some(&kind), Some(&preference)).object;
    assert_eq!(late, early);
}

#[test]
fn what_a_missing_preference_would_prefer_is_not_waited_for() {
    let early = admitted(machine(), None, None).object;
    let template = to_json(&early)["spec"]["template"]["spec"].clone();
    assert_eq!(template["domain"]["machine"]["type"], "q35");
}

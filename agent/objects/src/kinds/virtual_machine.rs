//! KubeVirt's VirtualMachine.

use std::convert::Infallible;

use agent_domain::{
    Absence, FieldError, Named, Rule, Sort, check_matcher_changes, default_virtual_machine,
    judge_virtual_machine,
};
use proto_node::vmi::{VirtualMachine, VirtualMachineSpec};
use proto_node::{from_json, to_json};
use serde_json::Value;

use super::columns::{AGE, text};
use crate::kind::{Admission, AdmitContext, ObjectKind, Writer};
use crate::kit::copy::copies_for;
use crate::kit::find_kit;
use crate::object::{Object, ObjectId};

pub(super) const KIND: ObjectKind = ObjectKind {
    group: "kubevirt.io",
    versions: &["v1", "v1alpha3"],
    kind: "VirtualMachine",
    plural: "virtualmachines",
    singular: "virtualmachine",
    short_names: &["vm", "vms"],
    categories: &["all"],
    message: "kubevirt.v1.VirtualMachine",
    columns: &[
        AGE,
        text("STATUS", ".status.printableStatus"),
        text("READY", ".status.conditions[?(@.type=='Ready')].status"),
    ],
    has_status: true,
    writer: Writer::Objects(judge),
    defaults: Some(fill_in),
    // KubeVirt's: a machine goes once its VMI is gone.
    finalizer: Some("kubevirt.io/virtualMachineControllerFinalize"),
    // A type that is deleted right after the machine was made does not matter to it.
    companions: Some(copies_for),
    ..ObjectKind::PLAIN
};

/// Fills in what KubeVirt stores in a machine.
fn fill_in(object: &mut Object, context: &AdmitContext<'_>) {
    if object.is_deleted() {
        return;
    }
    let Ok(mut machine) = from_json::<VirtualMachine>(object.to_json()) else {
        return;
    };
    let find = |machine: &VirtualMachine, _: &Named, sort: Sort| find(context, machine, sort);
    default_virtual_machine(&mut machine, &find);
    if let Some(spec) = &machine.spec {
        object.content.insert(String::from("spec"), to_json(spec));
    }
}

fn find(context: &AdmitContext<'_>, machine: &VirtualMachine, sort: Sort) -> Option<Value> {
    let get = |id: &ObjectId| Ok::<_, Infallible>((context.find)(id));
    let found = find_kit(machine, sort, get);
    found.ok().and_then(|part| part.spec().cloned())
}

fn judge(object: &Object, context: &AdmitContext<'_>) -> Admission {
    // As under KubeVirt: what goes is not judged any more.
    if object.is_deleted() {
        return Admission::default();
    }
    let machine: VirtualMachine = match from_json(object.to_json()) {
        Ok(machine) => machine,
        Err(errors) => {
            let invalid = |error: proto_node::DecodeError| {
                FieldError::new(error.path, Rule::Invalid, error.message)
            };
            return Admission {
                errors: errors.into_iter().map(invalid).collect(),
                warnings: Vec::new(),
            };
        }
    };
    let find = |machine: &VirtualMachine, _: &Named, sort: Sort| find(context, machine, sort);
    let errors = of_changes(&machine, context);
    if !errors.is_empty() {
        return Admission {
            errors,
            warnings: Vec::new(),
        };
    }
    let caps = context.caps.map(|caps| caps());
    // Away from the objects of a node only common instance types and preferences are known.
    let absence = if context.finds_all {
        Absence::Known
    } else {
        Absence::Unknown
    };
    match judge_virtual_machine(&machine, (caps.as_ref(), &find), absence) {
        Ok(advice) => Admission {
            errors: Vec::new(),
            warnings: advice.warnings,
        },
        Err(errors) => Admission {
            errors,
            warnings: Vec::new(),
        },
    }
}

/// What is wrong with a change, whatever the machine is.
fn of_changes(machine: &VirtualMachine, context: &AdmitContext<'_>) -> Vec<FieldError> {
    let before = context.before.and_then(|before| before.content.get("spec"));
    let before = before.map(|spec| from_json::<VirtualMachineSpec>(spec.clone()));
    match (before, &machine.spec) {
        (Some(Ok(before)), Some(spec)) => check_matcher_changes(&before, spec),
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::Kinds;

    fn machine(name: &str, revision: &str) -> Object {
        let value = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "web", "namespace": "default", "uid": "m"},
            "spec": {
                "runStrategy": "Halted",
                "instancetype": {"name": name, "revisionName": revision},
                "template": {"spec": {"domain": {"devices": {}}}},
            },
        });
        Kinds::this_release().read(value).unwrap().1
    }

    #[test]
    fn another_name_takes_another_revision() {
        let before = machine("small", "kept");
        let context = AdmitContext {
            caps: None,
            before: Some(&before),
            find: &|_| None,
            finds_all: true,
        };
        for (mut after, is_legal) in [
            (machine("small", "kept"), true),
            (machine("large", ""), true),
            (machine("large", "other"), true),
            (machine("large", "kept"), false),
        ] {
            let output = KIND.admit(&mut after, &context).unwrap_or_default().errors;
            let output: Vec<Value> = output
                .iter()
                .map(|error| json!([error.path, error.message]))
                .collect();
            let wanted = json!([
                "spec.instancetype.revisionName",
                "the Matcher Name has been updated without updating the RevisionName",
            ]);
            let wanted = if is_legal { vec![] } else { vec![wanted] };
            assert_eq!(output, wanted, "{after:?}");
        }
    }
}

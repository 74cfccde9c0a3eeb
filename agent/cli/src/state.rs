//! What the status of a VMI says to those who wait for it.

use proto_node::node::Object;
use proto_node::node::object::Kind;
use proto_node::vmi::{Condition, VirtualMachineInstance, VirtualMachineInstanceStatus};
use serde_json::Value;

use crate::text::text;

/// The agent's condition: its last word is the end of the grace period.
pub const TERMINATING: &str = "Terminating";

/// Conditions that explain why a VMI is not ready, the first that holds: Ready alone only says that the guest does not run.
const REASONS: [(&str, bool); 4] = [
    (TERMINATING, true),
    ("Paused", true),
    ("Synchronized", false),
    ("PodScheduled", false),
];

/// The VMI in an object.
pub fn as_vmi(object: &Object) -> Option<&VirtualMachineInstance> {
    match &object.kind {
        Some(Kind::VirtualMachineInstance(vmi)) => Some(vmi),
        _ => None,
    }
}

/// The run strategy of a VirtualMachine: `Always` or `Halted`, also where that is said by `running`, which KubeVirt deprecates.
pub fn strategy(machine: &Value) -> String {
    match machine.pointer("/spec/running").and_then(Value::as_bool) {
        Some(true) => "Always".to_owned(),
        Some(false) => "Halted".to_owned(),
        None => text(machine, "/spec/runStrategy"),
    }
}

/// What starts a machine that is at rest. The agent refuses to start one by hand that was to run once.
pub fn way_to_start(strategy: &str, name: &str, option: &str) -> String {
    match strategy {
        "Once" => format!(
            "its guest has run, and another strategy runs it again: `kvmctl patch vm {name}{option} -p \
             '{{\"spec\":{{\"runStrategy\":\"Always\"}}}}'`"
        ),
        _ => format!("`kvmctl start vm {name}{option}` starts it"),
    }
}

/// A condition of a VMI.
pub fn condition<'a>(
    status: &'a VirtualMachineInstanceStatus,
    name: &str,
) -> Option<&'a Condition> {
    let mut all = status.conditions.iter();
    all.find(|condition| condition.r#type == name)
}

/// What keeps a VMI from being ready, as far as the agent knows.
pub fn held_back(vmi: &VirtualMachineInstance) -> Option<String> {
    let status = vmi.status.as_ref()?;
    let holds = |(name, wanted): (&str, bool)| {
        let wanted = if wanted { "True" } else { "False" };
        condition(status, name).filter(|condition| condition.status == wanted)
    };
    let ready = || condition(status, "Ready").filter(|ready| ready.status != "True");
    let found = REASONS.into_iter().find_map(holds).or_else(ready)?;
    let text = if found.message.is_empty() {
        found.reason.clone()
    } else if found.r#type == "Synchronized" {
        format!("{}: {}", found.reason, found.message)
    } else {
        found.message.clone()
    };
    (!text.is_empty()).then_some(text)
}

/// How a VMI ended, when it has. Conditions say nothing of that: Ready only says that it does not run. With the command
/// that says more, which finds it by `option`.
pub fn ended(vmi: &VirtualMachineInstance, option: &str) -> Option<String> {
    let status = vmi.status.as_ref()?;
    if status.phase != "Succeeded" && status.phase != "Failed" {
        return None;
    }
    let reason = if status.reason.is_empty() {
        String::new()
    } else {
        format!(", {}", status.reason)
    };
    let name = vmi.metadata.as_ref().map_or("", |it| it.name.as_str());
    let phase = &status.phase;
    Some(format!(
        "phase {phase}{reason}; `kvmctl why {name}{option}` says more"
    ))
}

#[cfg(test)]
mod tests {
    use agent_objects::{Kinds, MachineRequest, change_state};
    use proto_node::object::VMI_KIND;
    use serde_json::json;

    use super::*;

    fn vmi(phase: &str, conditions: &[[&str; 4]]) -> VirtualMachineInstance {
        let condition = |[kind, status, reason, message]: &[&str; 4]| Condition {
            r#type: (*kind).to_owned(),
            status: (*status).to_owned(),
            reason: (*reason).to_owned(),
            message: (*message).to_owned(),
            ..Condition::default()
        };
        VirtualMachineInstance {
            metadata: Some(proto_node::meta::ObjectMeta {
                name: "web".to_owned(),
                ..Default::default()
            }),
            status: Some(VirtualMachineInstanceStatus {
                phase: phase.to_owned(),
                reason: "GuestPanicked".to_owned(),
                conditions: conditions.iter().map(condition).collect(),
                ..Default::default()
            }),
            ..Default::default()
        }
    }

    const NOT_RUNNING: [&str; 4] = ["Ready", "False", "GuestNotRunning", "not running"];

    #[test]
    fn the_cause_goes_before_what_it_brings_about() {
        let no_kernel = ["Synchronized", "False", "KernelNotFound", "/k: none"];
        let no_room = ["PodScheduled", "False", "Unschedulable", "no room"];
        let paused = ["Paused", "True", "PausedByUser", "paused by user"];
        let silent = ["Ready", "Unknown", "VmmNotAnswering", ""];
        for (conditions, wanted) in [
            (&[NOT_RUNNING, no_kernel][..], "KernelNotFound: /k: none"),
            (&[NOT_RUNNING, no_room], "no room"),
            (&[NOT_RUNNING, no_kernel, paused], "paused by user"),
            (&[NOT_RUNNING], "not running"),
            (&[silent], "VmmNotAnswering"),
        ] {
            let reason = held_back(&vmi("Scheduled", conditions));
            assert_eq!(reason.as_deref(), Some(wanted));
        }
        let ready = ["Ready", "True", "", ""];
        assert_eq!(held_back(&vmi("Running", &[ready])), None);
    }

    #[test]
    fn an_end_shows_its_reason() {
        let failed = ended(&vmi("Failed", &[NOT_RUNNING]), " -n prod");
        let wanted = "phase Failed, GuestPanicked; `kvmctl why web -n prod` says more";
        assert_eq!(failed.as_deref(), Some(wanted));
        assert_eq!(ended(&vmi("Running", &[]), ""), None);
    }

    #[test]
    fn no_start_is_proposed_that_the_agent_refuses() {
        for strategy in ["Halted", "Manual", "RerunOnFailure", "Once"] {
            let machine = json!({
                "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
                "metadata": {"name": "web", "namespace": "default"},
                "spec": {"runStrategy": strategy, "template": {"spec": {"domain": {"devices": {}}}}},
                "status": {"printableStatus": "Stopped", "runStrategy": strategy},
            });
            let vmi = json!({
                "apiVersion": "kubevirt.io/v1", "kind": VMI_KIND,
                "metadata": {"name": "web", "namespace": "default", "uid": "u"},
                "spec": {"domain": {"devices": {}}},
                "status": {"phase": "Succeeded"},
            });
            let read = |value| Kinds::this_release().read(value).unwrap().1;
            let (machine, vmi) = (read(machine), read(vmi));
            let request = MachineRequest::Start { paused: false };
            let is_started = change_state(&machine, Some(&vmi), request).is_ok();
            let way = way_to_start(strategy, "web", " -n team");
            let proposes = way.contains("`kvmctl start vm web -n team`");
            assert_eq!(proposes, is_started, "{strategy}: {way}");
        }
        let way = way_to_start("Once", "web", "");
        let patch = way.split('\'').nth(1).unwrap();
        let patch: Value = serde_json::from_str(patch).unwrap();
        assert_eq!(patch, json!({"spec": {"runStrategy": "Always"}}));
    }
}

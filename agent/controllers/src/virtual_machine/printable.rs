//! `printableStatus`: KubeVirt's word for the state of a machine, the first that fits.

use agent_domain::RunStrategy;
use agent_objects::Object;
use proto_node::vmi::VirtualMachineStatus;
use serde_json::Value;

use super::view::{is_final, phase};

/// What the word depends on beside the objects.
pub(super) struct Expected {
    /// A VMI is about to be made.
    pub(super) start: bool,
    /// The VMI is about to be deleted.
    pub(super) stop: bool,
}

/// The word.
pub(super) fn word(
    machine: &Object,
    vmi: Option<&Object>,
    (strategy, status): (RunStrategy, &VirtualMachineStatus),
    expected: &Expected,
) -> &'static str {
    if machine.is_deleted() {
        return "Terminating";
    }
    let Some(vmi) = vmi else {
        if expected.start {
            return "Starting";
        }
        return if is_crash_loop(strategy, status) {
            "CrashLoopBackOff"
        } else {
            "Stopped"
        };
    };
    if is_final(vmi) {
        return if is_crash_loop(strategy, status) {
            "CrashLoopBackOff"
        } else {
            "Stopped"
        };
    }
    if vmi.is_deleted() || expected.stop {
        return "Stopping";
    }
    if phase(vmi) == "Running" {
        return if condition(vmi, "Paused", "True").is_some() {
            "Paused"
        } else {
            "Running"
        };
    }
    let not_synchronized = condition(vmi, "Synchronized", "False").unwrap_or_default();
    if not_synchronized == "FailedPvcNotFound" {
        return "ErrorPvcNotFound";
    }
    if condition(vmi, "PodScheduled", "False") == Some("Unschedulable") {
        return "ErrorUnschedulable";
    }
    match not_synchronized {
        "ErrImagePull" => return "ErrImagePull",
        "ImagePullBackOff" => return "ImagePullBackOff",
        _ => {}
    }
    match phase(vmi) {
        "" | "Pending" | "Scheduling" | "Scheduled" => "Starting",
        _ => "Unknown",
    }
}

fn is_crash_loop(strategy: RunStrategy, status: &VirtualMachineStatus) -> bool {
    let failures = status.start_failure.as_ref();
    strategy.starts_by_itself() && failures.is_some_and(|it| it.consecutive_fail_count > 0)
}

/// The reason of a condition of a VMI, if it has this status.
fn condition<'a>(vmi: &'a Object, kind: &str, status: &str) -> Option<&'a str> {
    let conditions = vmi.at(&["status", "conditions"]).and_then(Value::as_array);
    let mut conditions = conditions.into_iter().flatten();
    let found = conditions.find(|it| text(it, "type") == kind && text(it, "status") == status)?;
    Some(text(found, "reason"))
}

/// A member of a condition; empty where there is none.
fn text<'a>(condition: &'a Value, member: &str) -> &'a str {
    let value = condition.get(member).and_then(Value::as_str);
    value.unwrap_or_default()
}

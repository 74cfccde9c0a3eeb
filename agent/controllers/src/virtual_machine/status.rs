//! What a machine reports.

use agent_domain::RunStrategy;
use agent_objects::{Object, Part, Preconditions, Write};
use proto_node::vmi::{
    VirtualMachineCondition as Condition, VirtualMachineStateChangeRequest as StateChange,
    VirtualMachineStatus as Status,
};
use proto_node::{from_json, to_json};
use serde_json::{Map, Value, json};

use super::drift::Drift;
use super::memory::Failure;
use super::moment::Moment;
use super::printable::{self, Expected};
use super::revision::made_of;
use super::start_failure;
use crate::patch::replacing;

/// Conditions that are the machine's own; all others are its VMI's.
const READY: &str = "Ready";
const FAILURE: &str = "Failure";
const RESTART_REQUIRED: &str = "RestartRequired";

/// What a status is made of.
pub(super) struct Facts<'a> {
    pub(super) machine: &'a Object,
    /// The status as it is.
    pub(super) before: &'a Status,
    /// The machine's own VMI.
    pub(super) vmi: Option<&'a Object>,
    pub(super) strategy: RunStrategy,
    /// Requests that are still to be carried out.
    pub(super) requests: Vec<StateChange>,
    /// The strategy to record.
    pub(super) recorded: Option<RunStrategy>,
    pub(super) expected: Expected,
    pub(super) failure: Option<&'a Failure>,
    /// How the machine differs from what the guest that runs was made of.
    pub(super) drift: &'a Drift,
    pub(super) moment: Moment,
}

/// The requests that are still to be carried out. A stop is done when its VMI is gone. A start is done when there is a
/// VMI: a start that is to follow the present one comes after the stop of that.
pub(super) fn left(
    requests: &[StateChange],
    vmi: Option<&Object>,
    has_run_once: bool,
) -> Vec<StateChange> {
    let uid = vmi.map(|vmi| vmi.metadata.uid.as_str());
    let is_done = |request: &&StateChange| match request.action.as_str() {
        "Stop" => uid != Some(request.uid.as_str()),
        "Start" => uid.is_some() || has_run_once,
        _ => true,
    };
    requests.iter().skip_while(is_done).cloned().collect()
}

/// The write that has the machine report this, unless it does already.
pub(super) fn report(facts: Facts<'_>) -> Option<Write> {
    let machine = facts.machine;
    let present = machine.content.get("status").cloned();
    let present = present.unwrap_or_else(|| Value::Object(Map::new()));
    let status = to_json(&next(facts));
    if status == present {
        return None;
    }
    Some(Write::Patch {
        id: machine.id(),
        part: Part::Status,
        patch: json!({"status": replacing(&present, status)}),
        preconditions: Preconditions::exactly(&machine.metadata),
    })
}

fn next(facts: Facts<'_>) -> Status {
    let mut status = facts.before.clone();
    let vmi = facts.vmi;
    status.created = vmi.is_some();
    status.conditions = conditions(&facts);
    status.ready = status
        .conditions
        .iter()
        .any(|condition| condition.r#type == READY && condition.status == "True");
    status.start_failure = start_failure::count(
        facts.before.start_failure.as_ref(),
        vmi,
        facts.strategy,
        facts.moment.date,
    );
    if let Some(generation) = vmi.and_then(made_of) {
        let present = facts.machine.metadata.generation;
        // What a change of the run strategy alone made is no news to a guest.
        let is_seen = facts.drift.is_same_template;
        status.observed_generation = if is_seen { present } else { generation };
        status.desired_generation = present;
    }
    status.run_strategy = facts
        .recorded
        .map(|strategy| strategy.as_str().to_owned())
        .unwrap_or_default();
    status.printable_status = printable::word(
        facts.machine,
        vmi,
        (facts.strategy, &status),
        &facts.expected,
    )
    .to_owned();
    status.volume_snapshot_statuses = snapshots_of_volumes(facts.machine);
    status.state_change_requests = facts.requests;
    status
}

/// Whether each volume can be part of a snapshot, in KubeVirt's words: none of the sources that this release has can.
fn snapshots_of_volumes(machine: &Object) -> Vec<Vec<u8>> {
    let volumes = machine.at(&["spec", "template", "spec", "volumes"]);
    let names = volumes.and_then(Value::as_array).into_iter().flatten();
    let names = names.filter_map(|volume| volume.get("name")?.as_str());
    let status = |name: &str| {
        let reason = format!("Snapshot is not supported for this volumeSource type [{name}]");
        let status = json!({"enabled": false, "name": name, "reason": reason});
        status.to_string().into_bytes()
    };
    names.map(status).collect()
}

fn conditions(facts: &Facts<'_>) -> Vec<Condition> {
    let of_vmi: Vec<Condition> = facts.vmi.map(conditions_of).unwrap_or_default();
    let mut conditions = vec![ready(facts, &of_vmi)];
    if let Some(failure) = facts.failure {
        let failure = holds(FAILURE, failure.reason, &failure.message);
        conditions.push(since(failure, facts));
    }
    if let Some(why) = facts.drift.restart {
        let required = holds(RESTART_REQUIRED, RESTART_REQUIRED, why);
        conditions.push(since(required, facts));
    }
    let own = [READY, FAILURE, RESTART_REQUIRED];
    let others = of_vmi
        .into_iter()
        .filter(|condition| !own.contains(&condition.r#type.as_str()));
    conditions.extend(others);
    conditions
}

fn ready(facts: &Facts<'_>, of_vmi: &[Condition]) -> Condition {
    let not_ready = |reason: &str, message: &str| Condition {
        status: String::from("False"),
        ..holds(READY, reason, message)
    };
    if facts.vmi.is_none() {
        return since(not_ready("VMINotExists", "VMI does not exist"), facts);
    }
    let ready = of_vmi.iter().find(|condition| condition.r#type == READY);
    ready.cloned().unwrap_or_else(|| {
        let missing = not_ready("VMIConditionMissing", "VMI is missing the Ready condition");
        since(missing, facts)
    })
}

/// A VMI's conditions as a machine has them.
fn conditions_of(vmi: &Object) -> Vec<Condition> {
    let all = vmi.at(&["status", "conditions"]).and_then(Value::as_array);
    let read = |value: &Value| {
        let mut value = value.clone();
        if let Value::Object(members) = &mut value {
            members.shift_remove("observedGeneration");
        }
        from_json(value).ok()
    };
    all.into_iter().flatten().filter_map(read).collect()
}

/// A condition that is true.
fn holds(kind: &str, reason: &str, message: &str) -> Condition {
    Condition {
        r#type: kind.to_owned(),
        status: String::from("True"),
        reason: reason.to_owned(),
        message: message.to_owned(),
        ..Condition::default()
    }
}

/// A condition that was there before keeps the time since when it is so.
fn since(mut condition: Condition, facts: &Facts<'_>) -> Condition {
    let known = facts
        .before
        .conditions
        .iter()
        .find(|known| known.r#type == condition.r#type && known.status == condition.status);
    condition.last_transition_time = known.map_or_else(
        || facts.moment.text(),
        |known| known.last_transition_time.clone(),
    );
    condition
}

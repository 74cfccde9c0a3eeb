//! What a set reports.

use agent_objects::{LabelSelector, Object, Part, Preconditions, Write};
use proto_node::vmi::{
    VirtualMachineInstanceReplicaSetCondition as Condition, VirtualMachineInstanceReplicaSetStatus,
};
use proto_node::{from_json, to_json};
use serde_json::{Map, Value, json};

use super::memory::Failure;
use super::view::is_ready;
use crate::event::ControllerEvent;
use crate::patch::replacing;

/// Condition of a set that a user has paused.
const PAUSED: &str = "ReplicaPaused";

/// Condition of a set whose replicas cannot be made or deleted.
const FAILURE: &str = "ReplicaFailure";

/// The facts that a status is made of.
pub(super) struct Facts<'a> {
    pub(super) active: &'a [&'a Object],
    pub(super) selector: &'a LabelSelector,
    pub(super) is_paused: bool,
    pub(super) failure: Option<&'a Failure>,
    /// As RFC 3339 has it.
    pub(super) now: &'a str,
}

/// The write that has the set report this, unless it does already; and what changed for people.
pub(super) fn report(
    set: &Object,
    facts: &Facts<'_>,
    events: &mut Vec<ControllerEvent>,
) -> Option<Write> {
    let present = set.content.get("status").cloned();
    let present = present.unwrap_or_else(|| Value::Object(Map::new()));
    // A status that a newer release wrote in another form counts as empty: it is written anew as a whole.
    let before: VirtualMachineInstanceReplicaSetStatus =
        from_json(present.clone()).unwrap_or_default();
    let count = |number: usize| i32::try_from(number).ok();
    let ready = facts.active.iter().filter(|vmi| is_ready(vmi)).count();
    let conditions = [
        facts
            .is_paused
            .then(|| holds(PAUSED, "Paused", "Controller got paused")),
        facts
            .failure
            .map(|failure| holds(FAILURE, failure.reason, &failure.message)),
    ];
    let conditions: Vec<Condition> = conditions
        .into_iter()
        .flatten()
        .map(|condition| since(condition, &before, facts.now))
        .collect();
    let was_paused = before.conditions.iter().any(|it| it.r#type == PAUSED);
    match (was_paused, facts.is_paused) {
        (false, true) => events.push(ControllerEvent::normal(
            "SuccessfulPaused",
            String::from("Paused"),
        )),
        (true, false) => events.push(ControllerEvent::normal(
            "SuccessfulResumed",
            String::from("Resumed"),
        )),
        _ => {}
    }
    let status = to_json(&VirtualMachineInstanceReplicaSetStatus {
        replicas: count(facts.active.len()),
        ready_replicas: count(ready),
        conditions,
        label_selector: facts.selector.to_string(),
    });
    if status == present {
        return None;
    }
    Some(Write::Patch {
        id: set.id(),
        part: Part::Status,
        patch: json!({"status": replacing(&present, status)}),
        preconditions: Preconditions::exactly(&set.metadata),
    })
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
fn since(
    mut condition: Condition,
    before: &VirtualMachineInstanceReplicaSetStatus,
    now: &str,
) -> Condition {
    let known = before
        .conditions
        .iter()
        .find(|known| known.r#type == condition.r#type && known.status == condition.status);
    condition.last_transition_time = known.map_or_else(
        || now.to_owned(),
        |known| known.last_transition_time.clone(),
    );
    condition
}

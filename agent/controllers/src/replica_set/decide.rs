//! What is to be done for a set.

use std::cmp::Reverse;
use std::time::Duration;

use agent_domain::name_suffix;
use agent_objects::{LabelSelector, Object, ObjectId, Preconditions, Write, owner_reference};
use proto_node::meta::ObjectMeta;
use proto_node::vmi::{
    VirtualMachineInstanceReplicaSetSpec as SetSpec, VirtualMachineInstanceTemplateSpec,
};
use proto_node::{from_json, to_json};
use serde_json::Map;

use super::claim::{self, Claimed, claim};
use super::memory::{Awaited, Ending, Memory};
use super::status::{Facts, report};
use super::view::{BURST, VMI, View, is_final, is_ready};
use crate::event::ControllerEvent;

/// Result of a round for one set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// In the order in which they are carried out.
    pub writes: Vec<Write>,
    /// For people.
    pub events: Vec<ControllerEvent>,
    /// Decide again at this time, whether anything changes or not.
    pub again_at: Option<Duration>,
}

/// Decides what is to be done for a set. `now` counts from any fixed moment, `date` is the same as RFC 3339 has it. What
/// the view shows must have been noted in the memory ([`Memory::observe`]).
#[must_use]
pub fn decide(view: &View, memory: &mut Memory, now: Duration, date: &str) -> Outcome {
    let mut outcome = Outcome::default();
    let set = &view.set;
    // Who owns a set that goes decides on its replicas: they are collected, or left without an owner.
    if set.is_deleted() {
        return outcome;
    }
    // Admission took the set, so what cannot be read was written by a newer release: it is left alone.
    let Some((spec, selector)) = wanted(set) else {
        return outcome;
    };
    let claimed = claim(view, &selector, memory);
    let releases = claimed.release.iter().map(|vmi| claim::release(set, vmi));
    outcome.writes.extend(releases);
    let adoptions = claimed.adopt.iter().map(|vmi| claim::adopt(set, vmi));
    outcome.writes.extend(adoptions);
    if !spec.paused && claimed.adopt.is_empty() {
        scale(view, (&spec, &claimed), memory, now, &mut outcome);
    }
    let active = active(&claimed, memory);
    let facts = Facts {
        active: &active,
        selector: &selector,
        is_paused: spec.paused,
        failure: memory.failure.as_ref(),
        now: date,
    };
    let status = report(set, &facts, &mut outcome.events);
    outcome.writes.extend(status);
    outcome
}

fn wanted(set: &Object) -> Option<(SetSpec, LabelSelector)> {
    let spec: SetSpec = from_json(set.content.get("spec")?.clone()).ok()?;
    let selector = LabelSelector::of(spec.selector.as_ref()?).ok()?;
    Some((spec, selector))
}

/// Replicas that have not ended and are not on their way out.
fn active<'a>(claimed: &Claimed<'a>, memory: &Memory) -> Vec<&'a Object> {
    let stays = |vmi: &&&Object| {
        let is_ending = memory.ending.contains_key(&vmi.metadata.uid);
        !vmi.is_deleted() && !is_final(vmi) && !is_ending
    };
    claimed.mine.iter().filter(stays).copied().collect()
}

fn scale(
    view: &View,
    (spec, claimed): (&SetSpec, &Claimed<'_>),
    memory: &mut Memory,
    now: Duration,
    outcome: &mut Outcome,
) {
    let Some(template) = &spec.template else {
        return;
    };
    repeat(view, template, memory, outcome);
    let active = active(claimed, memory);
    let wanted = usize::try_from(spec.replicas.unwrap_or(1)).unwrap_or(0);
    let missing = wanted.saturating_sub(active.len() + memory.awaited.len());
    let held = clear_away(claimed, missing > 0, memory, now, outcome);
    let count = missing
        .saturating_sub(held)
        .min(BURST.saturating_sub(memory.awaited.len()));
    let names = free_names(view, template, memory, count);
    let made = names.into_iter().map(|name| replica(view, template, name));
    outcome
        .writes
        .extend(made.map(|made| Write::Create(Box::new(made))));
    // Those that are not in view are the newest, and first to go once they are seen.
    if memory.awaited.is_empty() {
        let surplus = active.len().saturating_sub(wanted);
        let mut order = active;
        order.sort_by_key(|vmi| removal_rank(vmi));
        let gone = order.into_iter().take(surplus).map(removal);
        outcome.writes.extend(gone);
    }
}

/// Asks again for what nobody knows whether it was done.
fn repeat(
    view: &View,
    template: &VirtualMachineInstanceTemplateSpec,
    memory: &Memory,
    outcome: &mut Outcome,
) {
    for (name, awaited) in &memory.awaited {
        if *awaited == Awaited::Unknown {
            let made = replica(view, template, name.clone());
            outcome.writes.push(Write::Create(Box::new(made)));
        }
    }
    for vmi in &view.vmis {
        if memory.ending.get(&vmi.metadata.uid) == Some(&Ending::Unknown) {
            outcome.writes.push(removal(vmi));
        }
    }
}

/// Deletes replicas that have ended. Where others are to take their place they may keep it for a while; the answer is how
/// many do.
fn clear_away(
    claimed: &Claimed<'_>,
    is_replaced: bool,
    memory: &mut Memory,
    now: Duration,
    outcome: &mut Outcome,
) -> usize {
    let has_ended = |vmi: &&&Object| {
        let is_ending = memory.ending.contains_key(&vmi.metadata.uid);
        is_final(vmi) && !vmi.is_deleted() && !is_ending
    };
    let ended: Vec<&Object> = claimed.mine.iter().filter(has_ended).copied().collect();
    if ended.is_empty() {
        return 0;
    }
    if is_replaced {
        if now < memory.replaces_at() {
            outcome.again_at = Some(memory.replaces_at());
            return ended.len();
        }
        memory.replaced(now);
    }
    outcome.writes.extend(ended.into_iter().map(removal));
    0
}

/// Who goes first: what does not run, then what is not ready, then the newest; of two made in one second the one whose
/// name sorts last.
fn removal_rank(vmi: &Object) -> (bool, bool, Reverse<String>, Reverse<String>) {
    (
        vmi.text(&["status", "phase"]) == "Running",
        is_ready(vmi),
        Reverse(vmi.metadata.creation_timestamp.clone()),
        Reverse(vmi.metadata.name.clone()),
    )
}

fn removal(vmi: &Object) -> Write {
    Write::Delete {
        id: vmi.id(),
        preconditions: Preconditions::same(&vmi.metadata),
    }
}

/// Names for new replicas. They follow from the set and from which are in use, not from chance: what asks for a replica
/// twice asks for the same.
fn free_names(
    view: &View,
    template: &VirtualMachineInstanceTemplateSpec,
    memory: &Memory,
    count: usize,
) -> Vec<String> {
    let base = base_name(view, template);
    let used = claim::names(view);
    let uid = &view.set.metadata.uid;
    let all = (0_u64..).map(|number| {
        let suffix = name_suffix(&["replica", uid, &number.to_string()]);
        format!("{base}{suffix}")
    });
    let is_free = |name: &String| {
        !used.contains(name.as_str())
            && !memory.awaited.contains_key(name)
            && !memory.taken.contains(name)
    };
    let mut names: Vec<String> = Vec::new();
    for name in all.filter(is_free) {
        if names.len() >= count {
            break;
        }
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names
}

/// The beginning of replicas' names.
fn base_name(view: &View, template: &VirtualMachineInstanceTemplateSpec) -> String {
    let metadata = template.metadata.as_ref();
    let given = metadata.and_then(|metadata| {
        [&metadata.name, &metadata.generate_name]
            .into_iter()
            .find(|name| !name.is_empty())
    });
    given.unwrap_or(&view.set.metadata.name).clone()
}

/// A replica before the store has it.
fn replica(view: &View, template: &VirtualMachineInstanceTemplateSpec, name: String) -> Object {
    let metadata = template.metadata.clone().unwrap_or_default();
    let spec = template.spec.as_ref().map(to_json).unwrap_or_default();
    let mut content = Map::new();
    content.insert(String::from("spec"), spec);
    let id = ObjectId {
        kind: String::from(VMI),
        namespace: view.set.metadata.namespace.clone(),
        name,
    };
    Object {
        api_version: view.set.api_version.clone(),
        kind: id.kind,
        metadata: ObjectMeta {
            name: id.name,
            generate_name: base_name(view, template),
            namespace: id.namespace,
            labels: metadata.labels,
            annotations: metadata.annotations,
            owner_references: vec![owner_reference(&view.set)],
            ..ObjectMeta::default()
        },
        content,
        ..Object::default()
    }
}

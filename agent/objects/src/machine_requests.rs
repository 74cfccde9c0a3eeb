//! Starts, stops and restarts of a VirtualMachine that somebody asks for: what changes on the machine, or why that does not fit.
//!
//! Rules and words are those of KubeVirt's subresources.

use agent_domain::RunStrategy;
use proto_node::vmi::{
    VirtualMachineSpec, VirtualMachineStateChangeRequest as StateChange, VirtualMachineStatus,
};
use proto_node::{from_json, to_json};
use serde_json::{Value, json};

use crate::object::Object;
use crate::write::Part;

/// Member of a start's data: the generation of the machine at the time. A halted machine is turned on by a start only while
/// its spec is the one that the start was asked of: who halts it afterwards has the last word.
pub const ASKED_GENERATION: &str = "generation";

/// What somebody asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineRequest {
    /// `start`, and the second half of `restart`.
    Start {
        /// The guest waits for an unpause.
        paused: bool,
    },
    /// `stop`: the guest is asked to shut down.
    Stop {
        /// Seconds that the guest has; its own when absent.
        grace: Option<i64>,
    },
    /// A stop and a start.
    Restart {
        /// Seconds that the guest has: 0 or its own.
        grace: Option<i64>,
    },
}

/// A change of a VirtualMachine that a request causes.
#[derive(Clone, Debug, PartialEq)]
pub struct MachineChange {
    /// On which part of the machine.
    pub part: Part,
    /// By which merge patch.
    pub patch: Value,
    /// The VMI is deleted with this grace period once the patch is stored.
    pub end_within: Option<i64>,
}

/// Why a request is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineRequestError {
    /// The state of the machine.
    #[error("{0}")]
    Conflict(String),
    /// It makes no sense for any machine.
    #[error("{0}")]
    BadRequest(String),
}

/// The change that a request makes to a machine and its VMI as they are.
///
/// # Errors
/// [`MachineRequestError`].
pub fn change_state(
    machine: &Object,
    vmi: Option<&Object>,
    request: MachineRequest,
) -> Result<MachineChange, MachineRequestError> {
    if machine.is_deleted() {
        return conflict("VM is being deleted");
    }
    let Some((spec, strategy)) = spec_and_strategy(machine) else {
        return conflict("the run strategy of the VM is not known to this release");
    };
    match request {
        MachineRequest::Start { paused } => start(machine, vmi, (&spec, strategy), paused),
        MachineRequest::Stop { grace } => stop(machine, vmi, (&spec, strategy), grace),
        MachineRequest::Restart { grace } => restart(machine, vmi, strategy, grace),
    }
}

/// A machine's spec without the template, which takes many times as long to read as the rest, and its run strategy. Nothing
/// when this release does not know them.
#[must_use]
pub fn spec_and_strategy(machine: &Object) -> Option<(VirtualMachineSpec, RunStrategy)> {
    let members = machine.content.get("spec")?.as_object()?.iter();
    let members = members.filter(|(name, _)| *name != "template");
    let rest: Value = members
        .map(|(name, value)| (name.clone(), value.clone()))
        .collect();
    let spec: VirtualMachineSpec = from_json(rest).ok()?;
    let strategy = RunStrategy::of(&spec)?;
    Some((spec, strategy))
}

fn start(
    machine: &Object,
    vmi: Option<&Object>,
    (spec, strategy): (&VirtualMachineSpec, RunStrategy),
    paused: bool,
) -> Result<MachineChange, MachineRequestError> {
    if vmi.is_some_and(|vmi| !is_final(vmi) && !phase(vmi).is_empty()) {
        return conflict("VM is already running");
    }
    let request = request_start(paused.then_some(machine));
    match strategy {
        RunStrategy::Halted if paused => match vmi {
            Some(vmi) => ask(machine, &[request_stop(vmi), request]),
            None => ask(machine, &[request]),
        },
        RunStrategy::Halted => Ok(with_strategy(spec, RunStrategy::Always)),
        RunStrategy::RerunOnFailure if vmi.is_some_and(|vmi| phase(vmi) == "Failed") => {
            conflict("RerunOnFailure does not support starting VM from failed state")
        }
        RunStrategy::RerunOnFailure | RunStrategy::Manual => match vmi {
            // The present VMI is no answer to the request: the next one is.
            Some(vmi) if is_final(vmi) || vmi.is_deleted() => {
                ask(machine, &[request_stop(vmi), request])
            }
            _ => ask(machine, &[request]),
        },
        RunStrategy::Always | RunStrategy::Once => conflict(&format!(
            "{} does not support manual start requests",
            strategy.as_str()
        )),
    }
}

fn stop(
    machine: &Object,
    vmi: Option<&Object>,
    (spec, strategy): (&VirtualMachineSpec, RunStrategy),
    grace: Option<i64>,
) -> Result<MachineChange, MachineRequestError> {
    if grace.is_some_and(|grace| grace < 0) {
        return bad("gracePeriod has to be greater or equal to 0");
    }
    let live = vmi.filter(|vmi| !is_final(vmi));
    let end_within = grace.filter(|_| live.is_some());
    match (strategy, live) {
        (RunStrategy::Always | RunStrategy::Once, _) => Ok(MachineChange {
            end_within,
            ..with_strategy(spec, RunStrategy::Halted)
        }),
        (RunStrategy::Halted, Some(live)) => {
            let present = live.metadata.deletion_grace_period_seconds;
            let present = present.or_else(|| {
                let spec = live.at(&["spec", "terminationGracePeriodSeconds"]);
                spec.and_then(Value::as_i64)
            });
            if grace.is_none_or(|grace| present.is_some_and(|present| grace >= present)) {
                return conflict(
                    "Halted only supports manual stop requests with a shorter graceperiod",
                );
            }
            Ok(MachineChange {
                end_within,
                ..ask(machine, &[request_stop(live)])?
            })
        }
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, Some(live)) => Ok(MachineChange {
            end_within,
            ..ask(machine, &[request_stop(live)])?
        }),
        // KubeVirt has no way to stop what waits for its next start. The stop of a VMI that has failed stays until that is
        // gone, so that it is not run again.
        (RunStrategy::RerunOnFailure | RunStrategy::Manual, None) if waits_for_start(machine) => {
            let stop: Vec<StateChange> = vmi.map(request_stop).into_iter().collect();
            let mut change = requests(machine, &stop);
            // Nor does the first start come that a strategy has by itself, if it has not come yet.
            change.patch["status"]["runStrategy"] = strategy.as_str().into();
            Ok(change)
        }
        (_, None) => conflict("VM is not running"),
    }
}

fn restart(
    machine: &Object,
    vmi: Option<&Object>,
    strategy: RunStrategy,
    grace: Option<i64>,
) -> Result<MachineChange, MachineRequestError> {
    match grace {
        Some(1..) => return bad("For force restart, only gracePeriod=0 is supported for now"),
        Some(..=-1) => return bad("gracePeriod has to be greater or equal to 0"),
        _ => {}
    }
    if matches!(strategy, RunStrategy::Halted | RunStrategy::Once) {
        return conflict(&format!(
            "RunStategy {} does not support manual restart requests",
            strategy.as_str()
        ));
    }
    let Some(vmi) = vmi else {
        return conflict("VM is not running: Halted");
    };
    Ok(MachineChange {
        end_within: grace.filter(|_| !is_final(vmi)),
        ..ask(machine, &[request_stop(vmi), request_start(None)])?
    })
}

/// A start; that of a machine which is to wait for an unpause names the generation that it was asked of.
fn request_start(paused: Option<&Object>) -> StateChange {
    let data = paused.map(|machine| {
        let generation = machine.metadata.generation.to_string();
        [
            (String::from("paused"), String::from("true")),
            (String::from(ASKED_GENERATION), generation),
        ]
    });
    StateChange {
        action: String::from("Start"),
        data: data.into_iter().flatten().collect(),
        uid: String::new(),
    }
}

fn request_stop(vmi: &Object) -> StateChange {
    StateChange {
        action: String::from("Stop"),
        uid: vmi.metadata.uid.clone(),
        ..StateChange::default()
    }
}

/// The status of a machine. One of another form counts as empty.
fn status_of(machine: &Object) -> VirtualMachineStatus {
    let status = machine.content.get("status").cloned().unwrap_or_default();
    from_json(status).unwrap_or_default()
}

fn phase(vmi: &Object) -> &str {
    vmi.text(&["status", "phase"])
}

fn is_final(vmi: &Object) -> bool {
    matches!(phase(vmi), "Succeeded" | "Failed")
}

/// Whether a start was asked for that is still to come.
fn waits_for_start(machine: &Object) -> bool {
    let requests = status_of(machine).state_change_requests;
    requests.iter().any(|request| request.action == "Start")
}

/// The change that puts requests on a machine. A stop takes the place of what was asked for before; anything else waits
/// until that is done.
fn ask(machine: &Object, wanted: &[StateChange]) -> Result<MachineChange, MachineRequestError> {
    let is_stop = matches!(wanted, [only] if only.action == "Stop");
    if !is_stop && !status_of(machine).state_change_requests.is_empty() {
        return conflict("unable to complete request: stop/start already underway");
    }
    Ok(requests(machine, wanted))
}

fn requests(machine: &Object, wanted: &[StateChange]) -> MachineChange {
    let wanted: Vec<Value> = wanted.iter().map(to_json).collect();
    let wanted = if wanted.is_empty() {
        Value::Null
    } else {
        Value::Array(wanted)
    };
    let mut status = json!({"stateChangeRequests": wanted});
    if machine.at(&["status", "startFailure"]).is_some() {
        status["startFailure"] = Value::Null;
    }
    MachineChange {
        part: Part::Status,
        patch: json!({"status": status}),
        end_within: None,
    }
}

/// The change of the strategy, in the field that the user set.
#[must_use]
pub fn with_strategy(spec: &VirtualMachineSpec, strategy: RunStrategy) -> MachineChange {
    let spec = if spec.run_strategy.is_some() {
        json!({"runStrategy": strategy.as_str()})
    } else {
        json!({"running": strategy == RunStrategy::Always})
    };
    MachineChange {
        part: Part::Main,
        patch: json!({"spec": spec}),
        end_within: None,
    }
}

fn conflict<T>(text: &str) -> Result<T, MachineRequestError> {
    Err(MachineRequestError::Conflict(text.to_owned()))
}

fn bad<T>(text: &str) -> Result<T, MachineRequestError> {
    Err(MachineRequestError::BadRequest(text.to_owned()))
}

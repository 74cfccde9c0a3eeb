//! What is to be done for a machine.

use std::time::Duration;

use agent_domain::{Kit, ObjectSource, RunStrategy};
use agent_objects::{
    ASKED_GENERATION, ORPHAN_FINALIZER, Object, Part, Preconditions, Write, controller_of,
    owner_reference, spec_and_strategy, with_strategy,
};
use proto_node::to_json;
use proto_node::vmi::{
    VirtualMachineSpec as Spec, VirtualMachineStateChangeRequest as StateChange,
    VirtualMachineStatus as Status,
};
use serde_json::{Value, json};

use super::drift::{Drift, drift};
use super::follow::follow;
use super::kit::{Stash, stash};
use super::memory::{Failure, Memory};
use super::moment::Moment;
use super::printable::Expected;
use super::status::{self, Facts, report};
use super::step::{Guest, Request, Situation, Step, step};
use super::view::{FINALIZER, GUEST_FINALIZER, View, has_finalizer, is_final, phase, status_of};
use super::{make, revision, start_failure};

/// Marks the start by which `RerunOnFailure` answers a failure; it is void under any other strategy.
const AFTER_FAILURE: &str = "afterFailure";

/// Result of a round for one machine.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// In the order in which they are carried out. What follows one that failed is not carried out.
    pub writes: Vec<Write>,
    /// The VMI to make once they are.
    pub start: Option<Start>,
    /// Decide again at this time, whether anything changes or not.
    pub again_at: Option<Duration>,
}

/// A start of a machine. Nothing is to hold it up: both objects are made by one write where the store can.
#[derive(Clone, Debug, PartialEq)]
pub struct Start {
    /// Keeps what the machine is.
    pub revision: Object,
    /// The new VMI, which the store has not admitted yet.
    pub vmi: Object,
}

/// Decides what is to be done for a machine. What the view shows must have been noted in the memory ([`Memory::observe`]).
#[must_use]
pub fn decide(view: &View, memory: &Memory, moment: Moment) -> Outcome {
    let machine = &view.machine;
    // Admission took the machine, so what cannot be read was written by a newer release: it is left alone.
    let Some((spec, strategy)) = spec_and_strategy(machine) else {
        return Outcome::default();
    };
    // What is not in view yet must not be taken for absent.
    if memory.awaited.is_some() {
        return Outcome::default();
    }
    let round = Round {
        view,
        spec: &spec,
        strategy,
        before: status_of(machine),
        moment,
    };
    if machine.is_deleted() {
        return round.go(memory);
    }
    if !has_finalizer(machine, FINALIZER) {
        let mut finalizers = machine.metadata.finalizers.clone();
        finalizers.push(FINALIZER.to_owned());
        return Outcome {
            writes: vec![with_finalizers(machine, &finalizers)],
            ..Outcome::default()
        };
    }
    round.run(memory)
}

/// One decision about one machine.
struct Round<'a> {
    view: &'a View,
    spec: &'a Spec,
    strategy: RunStrategy,
    before: Status,
    moment: Moment,
}

impl Round<'_> {
    /// A machine that is to be as its strategy says.
    fn run(&self, memory: &Memory) -> Outcome {
        let mut outcome = Outcome::default();
        if let Some(vmi) = self.adoptable() {
            outcome.writes.push(adopt(&self.view.machine, vmi));
            return outcome;
        }
        let (kit, missing, copies) = self.kit(memory);
        if !copies.is_empty() && missing.is_none() {
            outcome.writes = copies;
            return outcome;
        }
        let own = self.view.own_vmi();
        let recorded = RunStrategy::parse(&self.before.run_strategy);
        let drift = self.drift(missing.is_none().then_some(kit));
        let (step, requests) = self.step(own, recorded);
        let wait = start_failure::seconds_left(&self.before, self.moment.date);
        let is_start = matches!(step, Step::Start { .. });
        let is_due = is_start && wait == 0;
        if is_start && wait > 0 {
            let wait = Duration::from_secs(wait);
            outcome.again_at = Some(self.moment.elapsed.saturating_add(wait));
        }
        let mut blocked = missing.or_else(|| self.blocked(is_due));
        let makes = is_due && self.view.vmi.is_none() && blocked.is_none();
        let made = match (step, makes) {
            (Step::Start { paused }, true) => {
                let made = make::vmi(&self.view.machine, self.spec, kit, paused);
                made.map_err(|text| blocked = Some(conflict(&text))).ok()
            }
            _ => None,
        };
        let makes = made.is_some();
        let failure = blocked.as_ref().or(memory.failure.as_ref());
        // Its VMI says more than the machine could before it is there.
        let is_silent = step == Step::TurnOn || (makes && failure.is_none());
        if !is_silent {
            let status = report(Facts {
                machine: &self.view.machine,
                before: &self.before,
                vmi: own,
                strategy: self.strategy,
                requests,
                recorded: self.record(own, recorded, is_start),
                expected: Expected {
                    start: is_due && failure.is_none(),
                    stop: step == Step::Stop,
                },
                failure,
                drift: &drift,
                moment: self.moment,
            });
            outcome.writes.extend(status);
        }
        outcome.writes.extend(own.and_then(release));
        // Not at the start, which nothing is to hold up.
        let outdated = self.view.outdated.iter();
        outcome.writes.extend(outdated.map(revision::delete));
        outcome.start = made.map(|vmi| Start {
            revision: revision::of(&self.view.machine),
            vmi,
        });
        outcome.writes.extend(self.act(step, drift));
        outcome.writes.extend(copies);
        outcome
    }

    /// What the template is completed by, or why nothing can be started, and writes that have it be there. They come first,
    /// unless they failed: then the status has to say so, and all but a start goes on.
    fn kit(&self, memory: &Memory) -> (Kit<'_>, Option<Failure>, Vec<Write>) {
        match stash(self.view, self.spec, &self.before) {
            Stash::Ready(kit) => (kit, None, Vec::new()),
            Stash::Missing(failure) => (Kit::default(), Some(failure), Vec::new()),
            Stash::Writes(writes) => (Kit::default(), memory.failure.clone(), writes),
        }
    }

    /// What carries a step out, beside a start.
    fn act(&self, step: Step, drift: Drift) -> Option<Write> {
        match (step, self.view.own_vmi()) {
            (Step::Start { .. }, _) => None,
            (Step::Stop, Some(own)) if !own.is_deleted() => Some(removal(own)),
            (Step::TurnOn, _) => Some(self.turn_on()),
            (_, Some(own)) => {
                // As in KubeVirt, what waits for a restart has the rest wait, too; links do not.
                let places = drift.spec.filter(|_| drift.restart.is_none());
                follow(&self.view.machine, own, places.as_ref())
            }
            _ => None,
        }
    }

    /// The next step, and the requests that are left when it is done.
    fn step(
        &self,
        own: Option<&Object>,
        recorded: Option<RunStrategy>,
    ) -> (Step, Vec<StateChange>) {
        let requests = self.requests(recorded);
        let step = step(Situation {
            strategy: self.strategy,
            guest: guest_of(own),
            is_going: own.is_some_and(Object::is_deleted),
            request: head(&requests),
            recorded,
        });
        match (step, own) {
            // Until the status has them, which a conflict may delay: the VMI goes after that.
            (Step::StopAndRerun, Some(own)) => (Step::Stop, rerun(&own.metadata.uid)),
            _ => (step, requests),
        }
    }

    /// A machine that is being deleted: its VMI goes before it, or stays without it.
    fn go(&self, memory: &Memory) -> Outcome {
        let mut outcome = Outcome::default();
        let machine = &self.view.machine;
        let own = self.view.own_vmi();
        let is_orphaning = has_finalizer(machine, ORPHAN_FINALIZER);
        let status = report(Facts {
            machine,
            before: &self.before,
            vmi: own,
            strategy: self.strategy,
            requests: self.before.state_change_requests.clone(),
            recorded: RunStrategy::parse(&self.before.run_strategy),
            expected: Expected {
                start: false,
                stop: false,
            },
            failure: memory.failure.as_ref(),
            drift: &Drift::default(),
            moment: self.moment,
        });
        let held = own.filter(|vmi| !is_orphaning || has_finalizer(vmi, FINALIZER));
        match held {
            None if has_finalizer(machine, FINALIZER) => {
                outcome.writes.push(without_finalizer(machine));
            }
            None => {}
            Some(vmi) if is_orphaning => outcome.writes.push(without_finalizer(vmi)),
            Some(vmi) => {
                outcome.writes.extend(status);
                outcome.writes.extend(release(vmi));
                if !vmi.is_deleted() {
                    outcome.writes.push(removal(vmi));
                }
            }
        }
        outcome
    }

    /// A VMI of the machine's name that nobody controls, as KubeVirt adopts it.
    fn adoptable(&self) -> Option<&Object> {
        let vmi = self.view.vmi.as_ref()?;
        let is_free = controller_of(&vmi.metadata).is_none()
            && ObjectSource::of(&vmi.metadata.annotations)
                .allows_change_by(&ObjectSource::GrpcCaller);
        (is_free && !vmi.is_deleted() && !is_final(vmi)).then_some(vmi)
    }

    /// Somebody else's VMI has the name, and does not go.
    fn blocked(&self, is_due: bool) -> Option<Failure> {
        let vmi = self.view.vmi.as_ref()?;
        if !is_due || vmi.is_deleted() || self.view.is_own(vmi) {
            return None;
        }
        Some(Failure {
            reason: "FailedCreate",
            message: format!(
                "Failure while starting VMI: virtualmachineinstances.kubevirt.io {:?} already exists, and belongs to another: \
                 delete it, or give this machine another name",
                vmi.metadata.name
            ),
        })
    }

    /// How the machine differs from what a guest that runs was made of.
    fn drift(&self, kit: Option<Kit<'_>>) -> Drift {
        let own = self.view.own_vmi();
        let runs = own.is_some_and(|vmi| !vmi.is_deleted() && !is_final(vmi));
        let started = self.view.started.as_ref().filter(|_| runs);
        let drift = started.map(|started| drift(&self.view.machine, started, kit));
        drift.unwrap_or_default()
    }

    fn requests(&self, recorded: Option<RunStrategy>) -> Vec<StateChange> {
        let is_over = self.strategy == RunStrategy::Once && recorded == Some(RunStrategy::Once);
        let mut left = status::left(
            &self.before.state_change_requests,
            self.view.own_vmi(),
            is_over,
        );
        left.retain(|request| !self.is_void(request));
        left
    }

    /// A request that the strategy of today has no use for: a start that is the second half of a restart or the answer to
    /// a failure from before the user changed the strategy, or a stop where the VMI is kept whatever becomes of it.
    fn is_void(&self, request: &StateChange) -> bool {
        let generation = self.view.machine.metadata.generation.to_string();
        let is_of_now = request.data.get(ASKED_GENERATION) == Some(&generation);
        let is_rerun = request.data.contains_key(AFTER_FAILURE);
        match request.action.as_str() {
            "Start" => {
                (self.strategy == RunStrategy::Halted && !is_of_now)
                    || (self.strategy != RunStrategy::RerunOnFailure && is_rerun)
            }
            _ => self.strategy == RunStrategy::Once,
        }
    }

    /// The strategy to record: the present one, once there was a VMI. While a start is due it stays as it was, since the
    /// start may follow from the change of the strategy.
    fn record(
        &self,
        own: Option<&Object>,
        recorded: Option<RunStrategy>,
        is_start: bool,
    ) -> Option<RunStrategy> {
        match (own, recorded) {
            (Some(_), _) => Some(self.strategy),
            (None, Some(_)) if !is_start => Some(self.strategy),
            (None, recorded) => recorded,
        }
    }

    fn turn_on(&self) -> Write {
        let machine = &self.view.machine;
        Write::Patch {
            id: machine.id(),
            part: Part::Main,
            patch: with_strategy(self.spec, RunStrategy::Always).patch,
            preconditions: Preconditions::exactly(&machine.metadata),
        }
    }
}

/// A machine that cannot be made a VMI of.
fn conflict(text: &str) -> Failure {
    Failure {
        reason: "FailedCreate",
        message: format!("Failure while starting VMI: {text}"),
    }
}

fn guest_of(vmi: Option<&Object>) -> Guest {
    match vmi.map(phase) {
        None => Guest::Absent,
        Some("Succeeded") => Guest::Succeeded,
        Some("Failed") => Guest::Failed,
        Some(_) => Guest::Live,
    }
}

fn head(requests: &[StateChange]) -> Option<Request> {
    let first = requests.first()?;
    Some(if first.action == "Stop" {
        Request::Stop
    } else {
        let paused = first.data.get("paused");
        Request::Start {
            paused: paused.is_some_and(|paused| paused == "true"),
        }
    })
}

/// The requests by which a machine is started again once its VMI is gone.
fn rerun(uid: &str) -> Vec<StateChange> {
    let stop = StateChange {
        action: String::from("Stop"),
        uid: uid.to_owned(),
        ..StateChange::default()
    };
    let start = StateChange {
        action: String::from("Start"),
        data: [(String::from(AFTER_FAILURE), String::from("true"))].into(),
        ..StateChange::default()
    };
    vec![stop, start]
}

/// Lets go of a VMI whose end is written down.
fn release(vmi: &Object) -> Option<Write> {
    let is_over = is_final(vmi) || (vmi.is_deleted() && !has_finalizer(vmi, GUEST_FINALIZER));
    (is_over && has_finalizer(vmi, FINALIZER)).then(|| without_finalizer(vmi))
}

fn removal(vmi: &Object) -> Write {
    Write::Delete {
        id: vmi.id(),
        preconditions: Preconditions::same(&vmi.metadata),
    }
}

/// Has the machine control a VMI.
fn adopt(machine: &Object, vmi: &Object) -> Write {
    let mut owners = vmi.metadata.owner_references.clone();
    owners.retain(|owner| owner.uid != machine.metadata.uid);
    owners.push(owner_reference(machine));
    let owners: Vec<Value> = owners.iter().map(to_json).collect();
    let mut finalizers = vmi.metadata.finalizers.clone();
    finalizers.push(FINALIZER.to_owned());
    Write::Patch {
        id: vmi.id(),
        part: Part::Main,
        patch: json!({"metadata": {"ownerReferences": owners, "finalizers": finalizers}}),
        preconditions: Preconditions::exactly(&vmi.metadata),
    }
}

fn without_finalizer(object: &Object) -> Write {
    let mut finalizers = object.metadata.finalizers.clone();
    finalizers.retain(|name| name != FINALIZER);
    with_finalizers(object, &finalizers)
}

fn with_finalizers(object: &Object, finalizers: &[String]) -> Write {
    let finalizers = if finalizers.is_empty() {
        Value::Null
    } else {
        json!(finalizers)
    };
    Write::Patch {
        id: object.id(),
        part: Part::Main,
        patch: json!({"metadata": {"finalizers": finalizers}}),
        preconditions: Preconditions::exactly(&object.metadata),
    }
}

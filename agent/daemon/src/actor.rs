//! One VMI's actor: observe, plan, store, execute, again. Serial for its VMI, independent of others.

mod asked;
mod begin;
mod credentials;
mod guest;
mod ledger;
mod operation;
mod probes;
mod spec;

use std::sync::Arc;
use std::time::{Duration, Instant};

use agent_domain::Vmi;
use agent_host::{Host, ObserveInput, Wake};
use agent_plan::{
    Action, Completed, Deletion, GuestDemand, ImageEvent, Millis, Observation, Observed, PciDemand,
    Phase, Plan, PlanEvent, Record, Reservation, Timestamp, Wanted, complete, plan,
};
use agent_sources::ObjectRef;
use agent_store::StoreError;
use proto_node::meta::ObjectMeta;
use proto_node::vmi::VirtualMachineInstance;
use tracing::{debug, error, info, warn};

use self::credentials::CredentialsWatch;
use self::guest::GuestWatch;
use self::operation::{Operations, Outcome};
use self::probes::Probes;
use self::spec::Spec;
use crate::agent::{Agent, accepted_at};
use crate::error::WriteError;
use crate::pods::{self, Given};
use crate::traces::{Moment, StartTrace};
use crate::{clock, events, object, orders};

/// Rounds without a pause; more of them mean that something goes in circles.
const MAX_HASTE: u32 = 16;

/// The pause after that, and after the ledger failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Looks at least this often, in case a wake-up was lost.
const HEARTBEAT: Duration = Duration::from_secs(60);

/// What a round found out about when the next one is due.
enum Next {
    /// At once: something was done that has to be looked at.
    Now,
    /// When woken, or at this time.
    At(Option<Timestamp>),
    /// Never: the VMI is gone.
    Never,
}

/// The actor of one VMI.
pub(crate) struct Actor<H> {
    agent: Arc<Agent<H>>,
    uid: String,
    wake: Wake,
    /// As it was last logged.
    phase: Option<Phase>,
    /// Read once: under a uid nothing of a spec changes but states of interfaces.
    spec: Option<Box<Spec>>,
    /// Asks the guest, from when the spec was read.
    probes: Option<Probes>,
    /// Asks the agent in it what it is, from then on.
    guest: Option<GuestWatch>,
    /// Has it set keys and passwords, if there are any.
    credentials: Option<CredentialsWatch>,
    /// What is carried out beside the actor.
    operations: Operations,
    /// The first observation of a guest that ran before this agent did.
    adopting: bool,
    /// How the guest starts, for whoever collects traces.
    start: StartTrace,
}

impl<H: Host> Actor<H> {
    pub(crate) fn new(agent: Arc<Agent<H>>, uid: String, wake: Wake, adopting: bool) -> Self {
        Self {
            agent,
            uid,
            wake,
            phase: None,
            spec: None,
            probes: None,
            guest: None,
            credentials: None,
            operations: Operations::default(),
            adopting,
            start: StartTrace::default(),
        }
    }

    /// Runs until the VMI is gone or the agent ends.
    pub(crate) async fn run(mut self) {
        let mut stopping = self.agent.actors.stopping();
        let mut haste = 0;
        loop {
            if *stopping.borrow() {
                return;
            }
            let timed = Arc::clone(&self.agent);
            let timed = timed.metrics.round();
            let round = self.round().await;
            drop(timed);
            if let Some(started) = self.start.end_round() {
                let agent = Arc::clone(&self.agent);
                tokio::spawn(async move { started.conclude(&*agent.host).await });
            }
            let next = round.unwrap_or_else(|error| {
                self.agent.metrics.round_failed();
                error!(%error, "the ledger failed; nothing is done until it works again");
                Next::At(Some(clock::now().plus(Millis::from_secs(1))))
            });
            let pause = match next {
                Next::Never => return,
                Next::Now if haste < MAX_HASTE => {
                    haste += 1;
                    continue;
                }
                Next::Now => PAUSE,
                Next::At(at) => at.map_or(HEARTBEAT, |at| until(at).min(HEARTBEAT)),
            };
            haste = 0;
            tokio::select! {
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
                _ = stopping.changed() => return,
            }
        }
    }

    /// Reconciles once: observes, and does what the plan says.
    async fn round(&mut self) -> Result<Next, WriteError> {
        let Some((target, object)) = self.object()? else {
            self.agent.host.drop_vmi_state(&self.uid);
            self.agent.release_reservation(&self.uid);
            return Ok(Next::Never);
        };
        self.agent.metrics.synced(&target);
        let metadata = object::metadata(&object);
        let Some(mut wanted) = self.wanted(&object, &metadata) else {
            return Ok(Next::At(None));
        };
        let stored = self.record(&object, &metadata)?;
        let mut record = stored.clone();
        let now = clock::follow(&mut record, &self.agent.node.facts.boot_id);
        self.take_reports(&mut record, &mut wanted);
        self.start
            .begin_round(&self.agent.traces, &metadata, &record);
        let ended = self.end_operation(&mut record, now).await;
        wanted.closed = self.agent.node.maintenance.closed(&self.agent.node.name);
        wanted.reservation = self.reservation(&record, wanted.closed.is_some());
        let given = self.address(&mut record, now)?;
        if let Given::Waits(why) = &given {
            wanted.reservation = Reservation::Waits { why: why.clone() };
        }
        let begun = self.start.mark();
        let mut observed = Box::pin(self.agent.host.observe(ObserveInput {
            record: &record,
            now,
        }))
        .await;
        let mut seen = self.agent.host.work(&self.uid);
        let news = std::mem::take(&mut seen.images);
        observed.operation = self.operations.observe(seen, now);
        self.start.note("observe", begun);
        let begun = self.start.mark();
        let mut planned = plan(&wanted, &record, &observed, now);
        self.start.note("plan", begun);
        let before = news.iter().map(ImageEvent::event).chain(ended);
        planned.events.splice(..0, before);
        self.note_adoption(&record, &observed, &mut planned);
        self.have_tasks_follow(&wanted, &mut planned, &observed);
        let to_lease = given.to_lease();
        let is_news =
            planned.record.is_ahead_of(&stored) || !planned.events.is_empty() || to_lease.is_some();
        if is_news
            && !self.store(
                &target,
                (&mut planned.record, &planned.events),
                to_lease,
                now,
            )?
        {
            return Ok(Next::Now);
        }
        if planned.record.report.end.is_some() && planned.record.allocations.reservation.is_none() {
            self.agent.release_reservation(&self.uid);
        }
        if sees_vmm(&observed) {
            self.agent
                .host
                .watch(&planned.record, Wake::clone(&self.wake));
        }
        if planned.gone {
            return self.remove_finalizer(&target);
        }
        self.execute((&target, &object), &planned).await
    }

    /// Writes down what tasks of the actor have heard and seen, and what follows from that for the conditions.
    fn take_reports(&self, record: &mut Record, wanted: &mut Wanted) {
        if let Some(guest) = &self.guest {
            guest.note(record);
        }
        if let Some(credentials) = &self.credentials {
            credentials.note(record);
        }
        if let Some(spec) = &self.spec {
            wanted.admitted = spec.conditions(&record.report.judged);
        }
    }

    /// Has tasks of the actor ask the guest that runs now, or nobody; and takes over what probes have to say.
    fn have_tasks_follow(&self, wanted: &Wanted, planned: &mut Plan, observed: &Observed) {
        if let Some(probes) = &self.probes {
            probes.follow(wanted, &planned.record, observed);
            planned.events.extend(probes.events());
        }
        if let Some(guest) = &self.guest {
            guest.follow(wanted, &planned.record, observed);
        }
        if let Some(credentials) = &self.credentials {
            credentials.follow(wanted, &planned.record, observed);
        }
    }

    /// Carries out the actions in order, up to the first that fails.
    async fn execute(
        &mut self,
        (target, object): (&ObjectRef, &VirtualMachineInstance),
        planned: &Plan,
    ) -> Result<Next, WriteError> {
        let Some(spec) = &self.spec else {
            return Ok(Next::At(None));
        };
        let vmi = spec.vmi.clone();
        let mut record = planned.record.clone();
        let mut observe_at_once = false;
        for action in &planned.actions {
            self.operations.make_use();
            let begun = Instant::now();
            let traced = self.start.mark();
            let outcome = match action {
                Action::CancelOperation => {
                    self.operations.cancel();
                    Ok(Completed::Done)
                }
                action if action.work().is_some() => {
                    let now = clock::follow(&mut record.clone(), &self.agent.node.facts.boot_id);
                    self.begin(action, (object, &vmi), &record, now).await
                }
                // In a box: an actor that waits has no room for what it might do.
                action => Box::pin(self.agent.host.execute(action, &vmi, &record)).await,
            };
            self.note_action(
                action,
                (begun, traced),
                &outcome,
                record.launches.incarnation(),
            );
            let mut current = record.clone();
            let now = clock::follow(&mut current, &self.agent.node.facts.boot_id);
            let (mut after, plan_events) = complete(&current, action, &outcome, now);
            let news = self.agent.host.work(&self.uid).images;
            let events: Vec<_> = news
                .iter()
                .map(ImageEvent::event)
                .chain(plan_events)
                .collect();
            if after.is_ahead_of(&record) || !events.is_empty() {
                self.store(target, (&mut after, &events), None, now)?;
                record = after;
            }
            if outcome == Ok(Completed::Begun) {
                let soon = now.plus(Millis::from_secs(1));
                return Ok(Next::At(Some(
                    planned.wake_at.map_or(soon, |at| at.min(soon)),
                )));
            }
            if outcome.is_err() {
                // The planner waits for the next attempt; what went wrong is to be seen meanwhile.
                let waits = record.report.failures.retry_at.is_some_and(|at| at > now);
                let ended = record.report.end != planned.record.report.end;
                let later = planned
                    .wake_at
                    .unwrap_or_else(|| now.plus(Millis::from_secs(1)));
                return Ok(if waits || ended {
                    Next::Now
                } else {
                    Next::At(Some(later))
                });
            }
            observe_at_once |= shows_at_once(action);
        }
        Ok(if observe_at_once {
            Next::Now
        } else {
            Next::At(planned.wake_at)
        })
    }

    /// Writes the outcome of an operation that has ended since into the record; returns the events that the outcome has.
    async fn end_operation(&mut self, record: &mut Record, now: Timestamp) -> Vec<PlanEvent> {
        let Some((running, outcome)) = self.operations.ended().await else {
            return Vec::new();
        };
        let times = (running.begun, running.traced);
        self.note_action(
            &running.action,
            times,
            &outcome,
            record.launches.incarnation(),
        );
        let (after, events) = complete(record, &running.action, &outcome, now);
        *record = after;
        events
    }

    /// Metrics, trace and log of an action that has ended.
    fn note_action(
        &mut self,
        action: &Action,
        (begun, traced): (Instant, Option<Moment>),
        outcome: &Outcome,
        incarnation: u64,
    ) {
        let failure = outcome.as_ref().err();
        if *outcome == Ok(Completed::Begun) {
            debug!(
                action = action.name(),
                incarnation, "an action goes on while its VMI is observed again"
            );
            return;
        }
        let reason = failure.map(|failure| failure.reason.as_str());
        self.agent
            .metrics
            .acted(action.name(), reason, begun.elapsed());
        self.start.acted(action, traced, failure);
        match failure {
            None => debug!(action = action.name(), incarnation, "done"),
            Some(failure) => warn!(
                action = action.name(),
                incarnation,
                reason = failure.reason,
                "{}",
                failure.message
            ),
        }
    }

    /// The object as it is now; nothing when it is gone.
    fn object(&self) -> Result<Option<(ObjectRef, VirtualMachineInstance)>, WriteError> {
        let Some(target) = self.agent.store.target_of(&self.uid)? else {
            return Ok(None);
        };
        let Some(row) = self.agent.store.ledger().object(&object::key(&target))? else {
            return Ok(None);
        };
        Ok((row.uid == self.uid)
            .then(|| object::vmi(&row))
            .transpose()?
            .map(|object| (target, object)))
    }

    /// What is wanted; nothing when this release cannot read the spec.
    fn wanted(&mut self, object: &VirtualMachineInstance, metadata: &ObjectMeta) -> Option<Wanted> {
        if self.spec.is_none() {
            match Vmi::restore(object.clone()) {
                Ok(admitted) => {
                    self.probes = Some(Probes::of(&self.agent, &admitted.vmi, &self.wake));
                    self.guest = Some(GuestWatch::of(&self.agent, &admitted.vmi, &self.wake));
                    self.credentials = CredentialsWatch::of(&self.agent, &admitted.vmi, &self.wake);
                    self.spec = Some(Box::new(Spec::of(admitted, metadata.generation)));
                }
                Err(errors) => {
                    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                    error!(
                        errors = errors.join("; "),
                        "this release does not understand what an earlier one accepted; the guest is left alone"
                    );
                    return None;
                }
            }
        }
        let spec = self.spec.as_mut()?;
        spec.follow(object, metadata.generation);
        let own_grace =
            i64::try_from(spec.vmi.termination_grace_period.as_secs()).unwrap_or(i64::MAX);
        let deletion = clock::parse(&metadata.deletion_timestamp).map(|requested_at| Deletion {
            requested_at,
            grace: Millis::from_secs(metadata.deletion_grace_period_seconds.unwrap_or(own_grace)),
        });
        Some(Wanted {
            generation: metadata.generation,
            deletion,
            admitted: Vec::new(),
            pci: PciDemand::of(&spec.vmi),
            links_down: spec.links_down(),
            firmware: spec.vmi.boot.firmware().is_some(),
            reservation: Reservation::default(),
            probes: self
                .probes
                .as_ref()
                .map(Probes::results)
                .unwrap_or_default(),
            closed: None,
        })
    }

    /// The reservation of the VMI. A VMI that has one, or will never need one, asks nobody; one that waits
    /// for the node to start guests only takes its place among those that wait.
    fn reservation(&self, record: &Record, is_closed: bool) -> Reservation {
        if let Some(demand) = &record.allocations.reservation {
            return Reservation::Granted(demand.clone());
        }
        let Some(spec) = self.spec.as_ref().filter(|_| record.report.end.is_none()) else {
            return Reservation::default();
        };
        let reservations = &self.agent.node.reservations;
        let demand = reservations.demand_of(&spec.vmi);
        if is_closed && record.launches.present().is_none() {
            reservations.note(GuestDemand {
                uid: self.uid.clone(),
                since: accepted_at(record),
                demand,
                holds: false,
            });
            return Reservation::default();
        }
        reservations.ask(&self.uid, accepted_at(record), demand)
    }

    /// Gives the guest its address of the pod network.
    fn address(&self, record: &mut Record, now: Timestamp) -> Result<Given, WriteError> {
        match &self.spec {
            Some(spec) => {
                let ledger_and_node = (&self.agent.store, &*self.agent.node);
                pods::give_address(ledger_and_node, &spec.vmi, record, now)
            }
            None => Ok(Given::Settled),
        }
    }

    /// Read anew each time: requests write their orders into it.
    fn record(
        &mut self,
        object: &VirtualMachineInstance,
        metadata: &ObjectMeta,
    ) -> Result<Record, StoreError> {
        let stored = self.agent.store.ledger().record(&self.uid)?;
        let record = stored.unwrap_or_else(|| {
            let mut record = Record::new(object::vmi_id(metadata), clock::now());
            record.orders = orders::first_orders(object);
            record
        });
        self.phase.get_or_insert(record.phase());
        Ok(record)
    }

    /// The first observation of a guest that outlived an agent is worth an event.
    fn note_adoption(&mut self, before: &Record, observed: &Observed, planned: &mut Plan) {
        if observed.vmms.is_unknown() {
            return;
        }
        if std::mem::take(&mut self.adopting)
            && before.phase() == Phase::Running
            && sees_vmm(observed)
        {
            info!(
                incarnation = before.launches.incarnation(),
                "adopted a running guest"
            );
            self.agent.metrics.adopted();
            planned.events.push(events::normal(
                "Adopted",
                "The agent was started and found the guest running.",
            ));
        }
    }
}

fn sees_vmm(observed: &Observed) -> bool {
    matches!(&observed.vmms, Observation::Present(vmms) if !vmms.is_empty())
}

/// Whether the effect of an action can be seen as soon as it is carried out. A guest that was asked
/// to shut down takes its time.
const fn shows_at_once(action: &Action) -> bool {
    !matches!(
        action,
        Action::PressPowerButton { .. } | Action::StopVmm { .. } | Action::KillVmm { .. }
    )
}

fn until(at: Timestamp) -> Duration {
    let span = at.since(clock::now()).0;
    Duration::from_millis(u64::try_from(span).unwrap_or(0))
}

//! Leases are kept by the agent alone, whether its control plane is there or not.

use std::future::Future;
use std::time::Duration;

use agent_host::Host;
use agent_plan::{
    Assignment, Lease, LeaseStep, Millis, OnExpiry, Order, PlanEvent, Record, Stage, Timestamp,
    order,
};
use agent_store::{AssignmentKey, Transaction};
use tracing::{error, info};

use super::{offer, token};
use crate::agent::Agent;
use crate::error::WriteError;
use crate::{clock, events, object};

/// Leases are looked at this often at least: the node may have slept, which timers do not notice.
const LOOK: Duration = Duration::from_secs(10);

/// After the ledger failed.
const PAUSE: Duration = Duration::from_secs(1);

impl<H: Host> Agent<H> {
    /// What has to be done before any guest is started: what was assigned in another boot is not for this one, and
    /// leases may have run out while there was no agent.
    pub(crate) fn settle_assignments(&self) -> Result<(), WriteError> {
        for (key, assignment) in self.ledger.assignments()? {
            if assignment.stage != Stage::Withdrawn && assignment.boot_id != self.facts.boot_id {
                self.end_of_another_boot(&key)?;
            }
        }
        self.keep_leases().map(drop)
    }

    /// Keeps leases until `shutdown` is done.
    pub(crate) async fn run_leases(self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        loop {
            let pause = match self.keep_leases() {
                Ok(None) => None,
                Ok(Some(left)) => {
                    Some(Duration::from_millis(u64::try_from(left.0).unwrap_or(0)).min(LOOK))
                }
                Err(error) => {
                    error!(%error, "leases can not be looked at");
                    Some(PAUSE)
                }
            };
            tokio::select! {
                () = &mut shutdown => return,
                () = self.leases_changed.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Does what leases ask for; the answer is when the next may be over.
    fn keep_leases(&self) -> Result<Option<Millis>, WriteError> {
        let now = self.at(clock::boot_time());
        let mut next: Option<Millis> = None;
        for (key, assignment) in self.ledger.assignments()? {
            let lease = due(&assignment).map(|lease| {
                let mut lease = lease.clone();
                self.renewals.bring_up_to_date(&key, &mut lease);
                lease
            });
            match lease.map(|lease| lease.step(&now)) {
                None | Some(LeaseStep::Nothing(None)) => {}
                Some(LeaseStep::Nothing(Some(left))) => {
                    next = Some(next.map_or(left, |next| next.min(left)));
                }
                Some(_) => self.keep_lease(&key)?,
            }
        }
        Ok(next)
    }

    /// Carries out what one lease asks for, unless it was renewed in the meantime.
    fn keep_lease(&self, key: &AssignmentKey) -> Result<(), WriteError> {
        let uid = self.write(|transaction| {
            let Some(mut assignment) = transaction.assignment(key)? else {
                return Ok(None);
            };
            let Some((uid, mut record)) = placement(transaction, key, assignment.token)? else {
                return Ok(None);
            };
            let Some(lease) = assignment.lease.as_mut() else {
                return Ok(None);
            };
            self.renewals.bring_up_to_date(key, lease);
            let step = lease.step(&self.at(clock::boot_time()));
            let now = clock::now();
            if let Some(said) = carry_out(step, lease.terms.grace, key, &mut record, now) {
                transaction.put_record(&record)?;
                self.record_events(transaction, (&offer::target(key), &uid), &[said], now)?;
            }
            lease.note(step);
            transaction.put_assignment(key, &assignment)?;
            info!(
                control_plane = key.control_plane,
                vmi = %format_args!("{}/{}", key.namespace, key.name),
                ?step,
                "the lease was looked at"
            );
            Ok(Some(uid))
        })?;
        if let Some(uid) = uid {
            self.wake(&uid);
        }
        Ok(())
    }

    /// A VMI that was assigned in another boot may run elsewhere by now. One that ran has failed by the reboot;
    /// one that never ran must not begin.
    fn end_of_another_boot(&self, key: &AssignmentKey) -> Result<(), WriteError> {
        self.write(|transaction| {
            let Some(assignment) = transaction.assignment(key)? else {
                return Ok(());
            };
            let Some((uid, mut record)) = placement(transaction, key, assignment.token)? else {
                return Ok(());
            };
            let now = clock::now();
            if record.orders.stop.is_some() {
                return Ok(());
            }
            let Ok(orders) = order(&record, Order::Stop { grace: Millis(0) }, now) else {
                return Ok(());
            };
            record.orders = orders;
            transaction.put_record(&record)?;
            let text = format!(
                "Assigned by the control plane {:?} before the node was restarted; it may run elsewhere by now and is \
                 not started.",
                key.control_plane
            );
            let said = events::warning("AssignedInAnotherBoot", text);
            self.record_events(transaction, (&offer::target(key), &uid), &[said], now)
        })
    }
}

/// Without an end in sight there is nothing to wait for.
async fn sleep(pause: Option<Duration>) {
    match pause {
        Some(pause) => tokio::time::sleep(pause).await,
        None => std::future::pending().await,
    }
}

/// The lease of what is placed.
fn due(assignment: &Assignment) -> Option<&Lease> {
    let lease = assignment.lease.as_ref();
    lease.filter(|_| assignment.stage != Stage::Withdrawn)
}

/// The VMI that was made under a token, with its record.
fn placement(
    transaction: &Transaction<'_>,
    key: &AssignmentKey,
    wanted: u64,
) -> Result<Option<(String, Record)>, WriteError> {
    let Some(row) = transaction.object(&offer::object_key(key))? else {
        return Ok(None);
    };
    let metadata = object::metadata(&object::vmi(&row)?);
    let owner = agent_domain::Owner::of(&metadata.annotations);
    if owner != offer::owner(key) || token(&metadata) != wanted {
        return Ok(None);
    }
    Ok(transaction
        .record(&row.uid)?
        .map(|record| (row.uid, record)))
}

/// Changes the orders of a VMI as its lease asks; the answer is what is said of it. A VMI that has ended is left
/// as it is.
fn carry_out(
    step: LeaseStep,
    grace: Millis,
    key: &AssignmentKey,
    record: &mut Record,
    now: Timestamp,
) -> Option<PlanEvent> {
    if record.phase().is_final() {
        return None;
    }
    let name = &key.control_plane;
    match step {
        LeaseStep::Nothing(_) | LeaseStep::Act(OnExpiry::Keep) => None,
        LeaseStep::Act(OnExpiry::Stop) => {
            record.orders = order(record, Order::Stop { grace }, now).ok()?;
            let text =
                format!("The lease of the control plane {name:?} is over: the guest is ended.");
            Some(events::warning("LeaseExpired", text))
        }
        LeaseStep::Act(OnExpiry::Pause) => {
            // Whether it runs yet or not, and whether a person holds it or not.
            record.orders.lease_paused = true;
            let text =
                format!("The lease of the control plane {name:?} is over: the guest is paused.");
            Some(events::warning("LeaseExpired", text))
        }
        LeaseStep::GoOn => {
            record.orders.lease_paused = false;
            let goes_on = if record.orders.paused {
                "the guest stays paused, as it was asked to"
            } else {
                "the guest goes on"
            };
            let text = format!("The lease of the control plane {name:?} holds again: {goes_on}.");
            Some(events::normal("LeaseRenewed", text))
        }
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::{Misfit, Phase, PhaseEntry, VmiId};

    use super::*;

    fn record(phase: Phase) -> Record {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, Timestamp(0));
        record.phases.push(PhaseEntry {
            phase,
            at: Timestamp(0),
        });
        record
    }

    fn done(step: LeaseStep, record: &mut Record) -> Option<String> {
        let key = offer::key("north", "default", "web");
        carry_out(step, Millis(0), &key, record, Timestamp(1)).map(|said| said.message)
    }

    #[test]
    fn a_guest_that_is_paused_for_its_lease_goes_on_with_it() {
        for phase in [Phase::Pending, Phase::Running] {
            let mut record = record(phase);
            let said = done(LeaseStep::Act(OnExpiry::Pause), &mut record);
            assert!(record.orders.hold() && said.is_some_and(|said| said.contains("north")));
            let said = done(LeaseStep::GoOn, &mut record);
            assert!(!record.orders.hold() && said.is_some_and(|said| said.contains("goes on")));
            // What its disk or its watchdog did to it is not undone.
            assert_eq!(record.orders.unpauses, 0);
        }
    }

    #[test]
    fn a_guest_that_a_person_paused_stays_so_when_its_lease_holds_again() {
        let mut record = record(Phase::Running);
        let ask = |record: &Record, what| order(record, what, Timestamp(1));
        record.orders = ask(&record, Order::Pause).unwrap();
        done(LeaseStep::Act(OnExpiry::Pause), &mut record);
        let said = done(LeaseStep::GoOn, &mut record);
        assert!(record.orders.hold() && said.is_some_and(|said| said.contains("stays paused")));
        record.orders = ask(&record, Order::Unpause).unwrap();
        assert!(!record.orders.hold());

        // The other way round: a person does not let go on what its lease holds.
        done(LeaseStep::Act(OnExpiry::Pause), &mut record);
        assert_eq!(ask(&record, Order::Unpause), Err(Misfit::LeaseOver));
        record.orders = ask(&record, Order::Pause).unwrap();
        assert_eq!(ask(&record, Order::Pause), Err(Misfit::AlreadyPaused));
        record.orders = ask(&record, Order::Unpause).unwrap();
        assert!(record.orders.hold());
        done(LeaseStep::GoOn, &mut record);
        assert!(!record.orders.hold());
    }

    #[test]
    fn a_guest_whose_lease_is_over_is_ended_whether_it_runs_yet_or_not() {
        for phase in [Phase::Pending, Phase::Scheduled, Phase::Running] {
            let mut record = record(phase);
            assert!(done(LeaseStep::Act(OnExpiry::Stop), &mut record).is_some());
            assert!(record.orders.stop.is_some());
        }
    }

    #[test]
    fn what_has_ended_is_told_nothing() {
        for step in [LeaseStep::Act(OnExpiry::Stop), LeaseStep::GoOn] {
            let mut ended = record(Phase::Succeeded);
            let before = ended.clone();
            assert_eq!(done(step, &mut ended), None);
            assert_eq!(ended, before);
        }
    }
}

//! Leases are kept by the agent alone, whether its control plane is there or not.

use std::future::Future;
use std::time::Duration;

use agent_plan::{
    LeaseOutcome, LeaseStep, Millis, PlanEvent, Stage, end_of_another_boot, keep_lease,
};
use agent_store::{AssignmentKey, Transaction};
use tracing::{error, info};

use super::{Placements, offer, token};
use crate::error::WriteError;
use crate::{clock, events, object, orders};

/// Leases are looked at this often at least: the node may have slept, which timers do not notice.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// After the ledger failed.
const PAUSE: Duration = Duration::from_secs(1);

impl Placements {
    /// What has to be done before any guest is started: what was assigned in another boot is not for this one, and
    /// leases may have run out while there was no agent.
    pub(crate) fn settle_assignments(&self) -> Result<(), WriteError> {
        for (key, assignment) in self.store.ledger().assignments()? {
            if assignment.stage != Stage::Withdrawn && assignment.boot_id != self.node.facts.boot_id
            {
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
                Ok(Some(left)) => Some(
                    Duration::from_millis(u64::try_from(left.0).unwrap_or(0)).min(CHECK_INTERVAL),
                ),
                Err(error) => {
                    error!(%error, "leases cannot be checked");
                    Some(PAUSE)
                }
            };
            tokio::select! {
                () = &mut shutdown => return,
                () = self.control_planes.leases_changed.notified() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Does what leases ask for; the answer is when the next may be over.
    fn keep_leases(&self) -> Result<Option<Millis>, WriteError> {
        let now = self.at(clock::boot_time());
        let mut next: Option<Millis> = None;
        for (key, assignment) in self.store.ledger().assignments()? {
            let lease = assignment.lease.map(|mut lease| {
                self.control_planes
                    .renewals
                    .bring_up_to_date(&key, &mut lease);
                lease
            });
            match lease.map(|lease| lease.step(&now)) {
                None | Some(LeaseStep::Nothing(None)) => {}
                Some(LeaseStep::Nothing(Some(left))) => {
                    next = Some(next.map_or(left, |next| next.min(left)));
                }
                // Where nothing is, nothing is to be written down either.
                Some(_)
                    if self
                        .store
                        .ledger()
                        .object(&offer::object_key(&key))?
                        .is_none() => {}
                Some(_) => self.keep_lease(&key)?,
            }
        }
        Ok(next)
    }

    /// Carries out what one lease asks for, unless it was renewed in the meantime.
    fn keep_lease(&self, key: &AssignmentKey) -> Result<(), WriteError> {
        let uid = self.store.write(|transaction| {
            let Some(mut assignment) = transaction.assignment(key)? else {
                return Ok(None);
            };
            let Some(placed) = placement(transaction, key)? else {
                return Ok(None);
            };
            let Some(lease) = assignment.lease.as_mut() else {
                return Ok(None);
            };
            self.control_planes.renewals.bring_up_to_date(key, lease);
            let vmi = (placed.uid.as_str(), &self.node.facts.boot_id);
            let decided = orders::decide_and_give(transaction, vmi, |record, wall| {
                let now = self.at(clock::boot_time());
                let kept = keep_lease(&mut assignment, placed.token, record, (&now, wall));
                let (orders, outcome) = kept.unzip();
                Ok::<_, WriteError>((orders, outcome.map(|outcome| (outcome, wall))))
            })?;
            let Some(decided) = decided else {
                return Ok(None);
            };
            if let Some((outcome, wall)) = decided {
                let events = [event(&key.control_plane, outcome)];
                let about = (&offer::target(key), placed.uid.as_str());
                self.store
                    .record_events(transaction, about, &events, wall)?;
            }
            transaction.put_assignment(key, &assignment)?;
            info!(
                control_plane = key.control_plane,
                vmi = %format_args!("{}/{}", key.namespace, key.name),
                told = ?decided.map(|(outcome, _)| outcome),
                "the lease was checked"
            );
            Ok(Some(placed.uid))
        })?;
        if let Some(uid) = uid {
            self.actors.wake(&uid);
        }
        Ok(())
    }

    /// A VMI that was assigned in another boot may run elsewhere by now. One that ran has failed by the reboot;
    /// one that never ran must not begin.
    fn end_of_another_boot(&self, key: &AssignmentKey) -> Result<(), WriteError> {
        self.store.write(|transaction| {
            let Some(assignment) = transaction.assignment(key)? else {
                return Ok(());
            };
            let Some(placed) = placement(transaction, key)? else {
                return Ok(());
            };
            if placed.token != assignment.token {
                return Ok(());
            }
            let vmi = (placed.uid.as_str(), &self.node.facts.boot_id);
            let Some(now) = orders::give(transaction, vmi, end_of_another_boot)? else {
                return Ok(());
            };
            let text = format!(
                "Assigned by the control plane {:?} before the node was restarted; it may run elsewhere by now and is \
                 not started.",
                key.control_plane
            );
            let said = events::warning("AssignedInAnotherBoot", text);
            let about = (&offer::target(key), placed.uid.as_str());
            self.store.record_events(transaction, about, &[said], now)
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

/// The VMI that is there under the name of an assignment.
struct Placement {
    uid: String,
    /// The token that it was made under.
    token: u64,
}

/// What is there, if it is its control plane's.
fn placement(
    transaction: &Transaction<'_>,
    key: &AssignmentKey,
) -> Result<Option<Placement>, WriteError> {
    let Some(row) = transaction.object(&offer::object_key(key))? else {
        return Ok(None);
    };
    let metadata = object::metadata(&object::vmi(&row)?);
    if agent_domain::ObjectSource::of(&metadata.annotations) != offer::source(key) {
        return Ok(None);
    }
    Ok(Some(Placement {
        uid: row.uid,
        token: token(&metadata),
    }))
}

/// The event of what a lease did.
fn event(control_plane: &str, outcome: LeaseOutcome) -> PlanEvent {
    let over = format!("The lease of the control plane {control_plane:?} is over");
    let again = format!("The lease of the control plane {control_plane:?} holds again");
    match outcome {
        LeaseOutcome::Stopped => {
            events::warning("LeaseExpired", format!("{over}: the guest is ended."))
        }
        LeaseOutcome::Paused => {
            events::warning("LeaseExpired", format!("{over}: the guest is paused."))
        }
        LeaseOutcome::GoesOn => {
            events::normal("LeaseRenewed", format!("{again}: the guest goes on."))
        }
        LeaseOutcome::StaysPaused => {
            let text = format!("{again}: the guest stays paused, as it was asked to.");
            events::normal("LeaseRenewed", text)
        }
    }
}

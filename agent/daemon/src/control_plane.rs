//! The agent as the client of its control plane sees it: assignments in, fenced and on disk before they are
//! answered.

mod answers;
mod leases;
mod offer;
mod renewals;

use std::collections::BTreeSet;
use std::time::Duration;

use agent_domain::Owner;
use agent_host::Host;
use agent_plan::{
    Assignment, BootTime, Fence, Lease, LeaseTerms, Millis, OnExpiry, Placed, Stage, Step, fence,
    step,
};
use agent_sources::{ApiError, AssignedName, Assignments, Delete, Registry, TOKEN_ANNOTATION};
use agent_store::{AssignmentKey, Transaction};
use proto_node::controlplane::{self as wire, Answer, Register};
use proto_node::meta::ObjectMeta;

use self::answers::{Refusal, answer};
use self::offer::Offered;
pub(crate) use self::renewals::Renewals;
use crate::agent::Agent;
use crate::error::{WriteError, store};
use crate::{clock, object, resources};

impl<H: Host> Assignments for Agent<H> {
    async fn registration(&self, control_plane: &str) -> Result<Register, ApiError> {
        let info = self.node_info().await?;
        let mark = self.write(|transaction| Ok(transaction.control_plane(control_plane)?))?;
        Ok(Register {
            node_name: info.node_name,
            boot_id: info.boot_id,
            agent_version: info.agent_version,
            architecture: info.architecture,
            features: info.features,
            labels: self.caps().labels,
            capacity: Some(resources::capacity(&self.rooms.figures(), info.max_vcpus)),
            networks: info.networks,
            control_plane: control_plane.to_owned(),
            highest_token: mark.highest,
            unschedulable: info.unschedulable,
        })
    }

    fn boot_time(&self) -> Duration {
        clock::boot_time()
    }

    fn welcomed(&self, control_plane: &str, generation: u64) -> Result<(), ApiError> {
        let mark = self.write(|transaction| Ok(transaction.control_plane(control_plane)?))?;
        if generation >= mark.highest {
            return Ok(());
        }
        Err(ApiError::Conflict(format!(
            "{control_plane:?} is at generation {generation}, and this node has seen token {} of it: it was restored \
             from an old copy, or is another; give it its memory back, or give it another control_plane.name",
            mark.highest
        )))
    }

    async fn assign(
        &self,
        control_plane: &str,
        assignment: &wire::Assignment,
        since: Duration,
    ) -> Answer {
        match Offered::read(control_plane, assignment) {
            Ok(offered) => {
                let done = self.take(&offered, since).await;
                answer(&offered.key, offered.token, done)
            }
            Err((key, why)) => answer(&key, assignment.token, Err(Refusal::invalid(why))),
        }
    }

    async fn withdraw(&self, control_plane: &str, withdrawal: &wire::Withdrawal) -> Answer {
        let key = offer::key(control_plane, &withdrawal.namespace, &withdrawal.name);
        let done = self.take_back(&key, withdrawal).await;
        answer(&key, withdrawal.token, done)
    }

    fn renew(
        &self,
        control_plane: &str,
        names: &BTreeSet<AssignedName>,
        since: Duration,
    ) -> Result<(), ApiError> {
        let since = self.at(since);
        let remembered = self.ledger.assignments().map_err(store)?;
        let leased: Vec<(AssignmentKey, Lease)> = remembered
            .into_iter()
            .filter_map(|(key, assignment)| {
                let name = (key.namespace.clone(), key.name.clone());
                let listed = key.control_plane == control_plane && names.contains(&name);
                Some((key, assignment.lease.filter(|_| listed)?))
            })
            .collect();
        let keys: Vec<AssignmentKey> = leased.iter().map(|(key, _)| key.clone()).collect();
        self.renewals.note(control_plane, &keys, &since);
        if leased
            .iter()
            .any(|(_, lease)| lease.is_worth_storing(&since))
        {
            self.store_renewals(&keys, &since)?;
        }
        self.leases_changed.notify_one();
        Ok(())
    }
}

impl<H: Host> Agent<H> {
    /// All at once: it is one write, whatever their number.
    fn store_renewals(&self, keys: &[AssignmentKey], since: &BootTime) -> Result<(), WriteError> {
        self.write(|transaction| {
            for key in keys {
                let Some(mut assignment) = transaction.assignment(key)? else {
                    continue;
                };
                if let Some(lease) = &mut assignment.lease {
                    lease.renew(lease.terms, since);
                }
                transaction.put_assignment(key, &assignment)?;
            }
            Ok(())
        })
    }

    /// A moment of this boot.
    fn at(&self, at: Duration) -> BootTime {
        BootTime {
            boot_id: self.facts.boot_id.clone(),
            at: Millis(i64::try_from(at.as_millis()).unwrap_or(i64::MAX)),
        }
    }

    /// Takes an assignment: it is judged and remembered, then the next step is done for it.
    async fn take(&self, offered: &Offered, since: Duration) -> Result<(), Refusal> {
        let since = self.at(since);
        let assignment = self.write(|transaction| {
            Ok(match self.judge(transaction, offered)? {
                Ok(known) => Ok(self.remember(transaction, offered, known, &since)?),
                Err(refusal) => Err(refusal),
            })
        })??;
        self.leases_changed.notify_one();
        let present = self.placed(&offered.key)?;
        match step(&assignment, present) {
            Step::Keep if assignment.stage == Stage::Made => Ok(()),
            Step::Keep => self.note_made(&offered.key),
            Step::Make => {
                let over = assignment.lease.as_ref();
                if over.is_some_and(|lease| lease.left(&self.at(clock::boot_time())).is_none()) {
                    return Err(Refusal::later("its lease is over before it begins"));
                }
                self.apply_vmi(offered.apply()).map_err(Refusal::of_apply)?;
                self.note_made(&offered.key)
            }
            Step::EndEarlier => {
                self.delete(offered.delete_earlier()).await?;
                Err(Refusal::waiting())
            }
            Step::Await => Err(Refusal::waiting()),
            Step::Gone => Err(Refusal::gone()),
        }
    }

    /// What is known of a believed offer's name, when it is the same placement.
    fn judge(
        &self,
        transaction: &Transaction<'_>,
        offered: &Offered,
    ) -> Result<Result<Option<Assignment>, Refusal>, WriteError> {
        let known = transaction.assignment(&offered.key)?;
        let floor = transaction.control_plane(&offered.key.control_plane)?.floor;
        Ok(match fence(known.as_ref(), floor, offered.offer()) {
            Fence::Stale { seen } => Err(Refusal::stale(seen)),
            Fence::Altered => Err(Refusal::altered()),
            Fence::Same => Ok(known),
            // A name that is another's is nothing to remember.
            Fence::New => self.placed(&offered.key).map(|_| None),
        })
    }

    /// Remembers an offer that is believed.
    fn remember(
        &self,
        transaction: &mut Transaction<'_>,
        offered: &Offered,
        known: Option<Assignment>,
        since: &BootTime,
    ) -> Result<Assignment, WriteError> {
        let before = known.clone();
        let mut assignment = known.unwrap_or_else(|| Assignment {
            token: offered.token,
            digest: offered.digest.clone(),
            stage: Stage::Accepted,
            boot_id: self.facts.boot_id.clone(),
            lease: None,
        });
        assignment.boot_id.clone_from(&self.facts.boot_id);
        assignment.lease = renewed(assignment.lease.take(), offered.lease, since);
        if before.as_ref() != Some(&assignment) {
            transaction.put_assignment(&offered.key, &assignment)?;
        }
        Ok(assignment)
    }

    /// What is there under a name, and is its control plane's.
    fn placed(&self, key: &AssignmentKey) -> Result<Option<Placed>, Refusal> {
        let row = self.ledger.object(&offer::object_key(key)).map_err(store)?;
        let Some(row) = row else {
            return Ok(None);
        };
        let metadata = object::metadata(&object::vmi(&row)?);
        match Owner::of(&metadata.annotations) {
            Owner::ControlPlane { name } if name == key.control_plane => Ok(Some(Placed {
                token: token(&metadata),
                deleting: !metadata.deletion_timestamp.is_empty(),
            })),
            owner => Err(Refusal::owned(&owner)),
        }
    }

    fn note_made(&self, key: &AssignmentKey) -> Result<(), Refusal> {
        Ok(self.write(|transaction| {
            if let Some(mut assignment) = transaction.assignment(key)? {
                assignment.stage = Stage::Made;
                transaction.put_assignment(key, &assignment)?;
            }
            Ok(())
        })?)
    }

    /// Takes an assignment back: first it is fenced, then its VMI goes.
    async fn take_back(
        &self,
        key: &AssignmentKey,
        withdrawal: &wire::Withdrawal,
    ) -> Result<(), Refusal> {
        offer::check_name(key).map_err(Refusal::invalid)?;
        let grace = withdrawal.grace_period_seconds;
        if grace.is_some_and(|seconds| seconds < 0) {
            return Err(Refusal::invalid(String::from(
                "grace_period_seconds must not be negative",
            )));
        }
        self.write(|transaction| self.fence_withdrawn(transaction, key, withdrawal.token))??;
        if !matches!(self.placed(key), Ok(Some(placed)) if placed.token <= withdrawal.token) {
            return Ok(());
        }
        let delete = Delete {
            target: offer::target(key),
            grace_period_seconds: grace,
            uid: String::new(),
            resource_version: String::new(),
            by: offer::owner(key),
        };
        match self.delete(delete).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    fn fence_withdrawn(
        &self,
        transaction: &mut Transaction<'_>,
        key: &AssignmentKey,
        token: u64,
    ) -> Result<Result<(), Refusal>, WriteError> {
        let seen = match transaction.assignment(key)? {
            Some(known) if known.stage == Stage::Withdrawn && known.token == token => {
                return Ok(Ok(()));
            }
            Some(known) => known.token,
            None => transaction.control_plane(&key.control_plane)?.floor + 1,
        };
        if token < seen {
            return Ok(Err(Refusal::stale(seen)));
        }
        let withdrawn = Assignment {
            token,
            digest: String::new(),
            stage: Stage::Withdrawn,
            boot_id: self.facts.boot_id.clone(),
            lease: None,
        };
        transaction.put_assignment(key, &withdrawn)?;
        Ok(Ok(()))
    }
}

/// A lease by the terms that are offered now. Without terms there is none any more, but for a guest that waits to go
/// on.
fn renewed(lease: Option<Lease>, terms: Option<LeaseTerms>, since: &BootTime) -> Option<Lease> {
    let endless = LeaseTerms {
        duration: Millis(i64::MAX),
        on_expiry: OnExpiry::Keep,
        grace: Millis(0),
    };
    let is_paused = lease.as_ref().is_some_and(|lease| lease.acted.is_some());
    let terms = terms.or_else(|| is_paused.then_some(endless))?;
    let mut lease = lease.unwrap_or_else(|| Lease::new(terms, since.clone()));
    lease.renew(terms, since);
    Some(lease)
}

/// The token that an object was made under; 0 stands for none.
fn token(metadata: &ObjectMeta) -> u64 {
    let token = metadata.annotations.get(TOKEN_ANNOTATION);
    token.and_then(|token| token.parse().ok()).unwrap_or(0)
}

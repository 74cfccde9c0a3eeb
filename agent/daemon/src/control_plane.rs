//! Placements of VMIs on this node by control planes: assignments in, fenced and on disk before they are answered, and their
//! leases.

mod answers;
pub(crate) mod known;
mod leases;
mod offer;
mod renewals;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use agent_domain::ObjectSource;
use agent_plan::{Assignment, BootTime, Fence, Placed, Stage, Step, accept, fence, step, withdraw};
use agent_sources::{ApiError, AssignedName, Assignments, Delete, GuestRegistry, TOKEN_ANNOTATION};
use agent_store::{AssignmentKey, Transaction};
use proto_node::controlplane::{self as wire, Answer, Register};
use proto_node::meta::ObjectMeta;
use proto_node::node::GetNodeInfoResponse;

use self::answers::{Refusal, answer};
use self::known::ControlPlanes;
use self::offer::Offered;
use crate::actors::Actors;
use crate::error::{WriteError, store};
use crate::node::Node;
use crate::objects::Objects;
use crate::store::Store;
use crate::{clock, object, resources};

/// The service of placements. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Placements {
    store: Store,
    node: Arc<Node>,
    actors: Arc<Actors>,
    control_planes: Arc<ControlPlanes>,
    objects: Objects,
}

impl Placements {
    pub(crate) fn new(
        (store, objects): (Store, Objects),
        node: Arc<Node>,
        actors: Arc<Actors>,
        control_planes: Arc<ControlPlanes>,
    ) -> Self {
        Self {
            store,
            node,
            actors,
            control_planes,
            objects,
        }
    }

    /// Notes the control plane that this node dials.
    pub(crate) fn dial(&self, name: &str) {
        self.control_planes.name.get_or_init(|| name.to_owned());
    }
}

impl Assignments for Placements {
    async fn registration(
        &self,
        control_plane: &str,
        info: GetNodeInfoResponse,
    ) -> Result<Register, ApiError> {
        let mark = self
            .store
            .write(|transaction| Ok(transaction.control_plane(control_plane)?))?;
        Ok(Register {
            node_name: info.node_name,
            boot_id: info.boot_id,
            agent_version: info.agent_version,
            architecture: info.architecture,
            features: info.features,
            labels: self.node.configured_caps().labels,
            capacity: Some(resources::capacity(
                &self.node.reservations.figures(),
                info.max_vcpus,
            )),
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
        let mark = self
            .store
            .write(|transaction| Ok(transaction.control_plane(control_plane)?))?;
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
        let (since, now) = (self.at(since), self.at(clock::boot_time()));
        let remembered = self.store.ledger().assignments().map_err(store)?;
        let mut keys = Vec::new();
        let mut is_worth_storing = false;
        for (key, mut assignment) in remembered {
            let name = (key.namespace.clone(), key.name.clone());
            if key.control_plane != control_plane {
                continue;
            }
            let stored = assignment.lease.clone();
            if let Some(lease) = &mut assignment.lease {
                self.control_planes.renewals.bring_up_to_date(&key, lease);
            }
            if assignment.renew(names.contains(&name), &since, &now) {
                is_worth_storing |= stored.is_some_and(|lease| lease.is_worth_storing(&since));
                keys.push(key);
            }
        }
        self.control_planes
            .renewals
            .note(control_plane, &keys, &since);
        if is_worth_storing {
            self.store_renewals(&keys, &since)?;
        }
        self.control_planes.leases_changed.notify_one();
        Ok(())
    }
}

impl Placements {
    /// All at once: it is one write, whatever their number.
    fn store_renewals(&self, keys: &[AssignmentKey], since: &BootTime) -> Result<(), WriteError> {
        self.store.write(|transaction| {
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
        clock::moment(&self.node.facts.boot_id, at)
    }

    /// Takes an assignment: it is judged and remembered, then the next step is done for it.
    async fn take(&self, offered: &Offered, since: Duration) -> Result<(), Refusal> {
        let since = self.at(since);
        let assignment = self.store.write(|transaction| {
            Ok(match self.judge(transaction, offered)? {
                Ok(known) => Ok(self.remember(transaction, offered, known, &since)?),
                Err(refusal) => Err(refusal),
            })
        })??;
        self.control_planes.leases_changed.notify_one();
        let present = self.placed(&offered.key)?;
        match step(&assignment, present) {
            Step::Keep if assignment.stage == Stage::Made => Ok(()),
            Step::Keep => self.note_made(&offered.key),
            Step::Make => {
                let over = assignment.lease.as_ref();
                if over.is_some_and(|lease| lease.left(&self.at(clock::boot_time())).is_none()) {
                    return Err(Refusal::later("its lease is over before it begins"));
                }
                self.objects
                    .apply_vmi(offered.apply())
                    .map_err(Refusal::of_apply)?;
                self.note_made(&offered.key)
            }
            Step::EndEarlier => {
                self.objects.delete(offered.delete_earlier()).await?;
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
        let assignment = accept(known.clone(), offered.offer(), offered.lease, since);
        if known.as_ref() != Some(&assignment) {
            transaction.put_assignment(&offered.key, &assignment)?;
        }
        Ok(assignment)
    }

    /// What is there under a name, and is its control plane's.
    fn placed(&self, key: &AssignmentKey) -> Result<Option<Placed>, Refusal> {
        let row = self
            .store
            .ledger()
            .object(&offer::object_key(key))
            .map_err(store)?;
        let Some(row) = row else {
            return Ok(None);
        };
        let metadata = object::metadata(&object::vmi(&row)?);
        match ObjectSource::of(&metadata.annotations) {
            ObjectSource::ControlPlane { name } if name == key.control_plane => Ok(Some(Placed {
                token: token(&metadata),
                deleting: !metadata.deletion_timestamp.is_empty(),
            })),
            source => Err(Refusal::of_another_source(&source)),
        }
    }

    fn note_made(&self, key: &AssignmentKey) -> Result<(), Refusal> {
        Ok(self.store.write(|transaction| {
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
        // Older than what was seen it fences nothing; what is still there of it goes all the same.
        let fenced = self
            .store
            .write(|transaction| self.fence_withdrawn(transaction, key, withdrawal.token))?;
        if !matches!(self.placed(key), Ok(Some(placed)) if placed.token <= withdrawal.token) {
            return fenced;
        }
        let delete = Delete {
            target: offer::target(key),
            grace_period_seconds: grace,
            uid: String::new(),
            resource_version: String::new(),
            by: offer::source(key),
            propagation: None,
            dry_run: false,
        };
        match self.objects.delete(delete).await {
            Ok(_) | Err(ApiError::NotFound { .. }) => fenced,
            Err(error) => Err(error.into()),
        }
    }

    fn fence_withdrawn(
        &self,
        transaction: &mut Transaction<'_>,
        key: &AssignmentKey,
        token: u64,
    ) -> Result<Result<(), Refusal>, WriteError> {
        let known = transaction.assignment(key)?;
        let floor = transaction.control_plane(&key.control_plane)?.floor;
        Ok(
            match withdraw(known.as_ref(), floor, token, &self.node.facts.boot_id) {
                Ok(Some(withdrawn)) => Ok(transaction.put_assignment(key, &withdrawn)?),
                Ok(None) => Ok(()),
                Err(seen) => Err(Refusal::stale(seen)),
            },
        )
    }
}

/// The token that an object was made under; 0 stands for none.
fn token(metadata: &ObjectMeta) -> u64 {
    let token = metadata.annotations.get(TOKEN_ANNOTATION);
    token.and_then(|token| token.parse().ok()).unwrap_or(0)
}

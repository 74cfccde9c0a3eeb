//! Running controllers and the collection of garbage against the ledger.

use std::future::Future;
use std::time::{Duration, Instant};

use agent_controllers::virtual_machine::Moment;
use agent_controllers::{
    ControllerEvent, Namespaces, ObjectStore, ReplicaSets, StoreError, VirtualMachines,
};
use agent_objects::{Kinds, ORPHAN_FINALIZER, Object, Write, Writer, collect};
use agent_sources::ApiError;
use agent_store::{ObjectKey, StoredObject};
use proto_node::meta::ObjectMeta;
use tracing::{error, info, warn};

use super::Objects;
use super::sweep::{Sweep, Swept};
use crate::error::{WriteError, store};
use crate::events::About;
use crate::{clock, events, object};

/// How long to wait when the ledger cannot be read.
const PAUSE: Duration = Duration::from_secs(5);

/// Controllers work on one object after another for so long before they look at what has changed meanwhile.
const SPELL: Duration = Duration::from_millis(5);

/// Controllers look at what has changed no more often than this: under load, what many writes changed is one look. Whatever
/// changes after a rest is looked at without delay.
const PACE: Duration = Duration::from_millis(5);

/// How long events wait for others: their sync is not to hold up the start of the guest that they tell of.
const EVENTS_WAIT: Duration = Duration::from_millis(50);

/// So many uids of gone objects are remembered: something that is written later may name one of them as its owner.
const KEPT_UIDS: u64 = 16_384;

/// So many more are pruned in one go.
const PRUNED_AT_ONCE: u64 = 256;

/// What is kept between two looks.
#[derive(Default)]
struct Controllers {
    sets: ReplicaSets,
    machines: VirtualMachines,
    namespaces: Namespaces,
    /// Garbage was collected as of this version of the ledger; nothing before the first time.
    collected: Option<u64>,
    /// What is left to do of the garbage that was found.
    sweep: Sweep,
    /// Objects that went since uids were pruned last.
    gone: u64,
    /// Events that are yet to be recorded, and the heads of the objects that they are about.
    events: Vec<(Object, ControllerEvent)>,
    /// Boot time at which the first of them came up.
    first_event_at: Duration,
}

impl Controllers {
    /// Whether sets or machines have work now.
    fn are_due(&self, now: Duration) -> bool {
        let due = [self.sets.next_due(), self.machines.next_due()];
        due.into_iter().flatten().any(|due| due <= now)
    }
}

/// What the controllers do at the agent's start, until nothing is left to do.
struct FirstPass {
    begun: Instant,
    rounds: u64,
}

impl FirstPass {
    fn begin() -> Self {
        Self {
            begun: Instant::now(),
            rounds: 0,
        }
    }

    fn log(self) {
        let took = self.begun.elapsed();
        info!(
            rounds = self.rounds,
            milliseconds = u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "controllers have seen to everything that is stored"
        );
    }
}

impl Objects {
    /// Runs until `shutdown` is done.
    pub(crate) async fn run_controllers(self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let mut versions = self.store.versions();
        let mut controllers = Controllers::default();
        let mut first_pass = Some(FirstPass::begin());
        loop {
            // Changes from here on wake the controller.
            versions.mark_unchanged();
            let looked_at = Instant::now();
            let pause = match self.control(&mut controllers) {
                Ok(pause) => pause,
                Err(error) => {
                    error!(%error, "controllers cannot work");
                    Some(PAUSE)
                }
            };
            if let Some(pass) = &mut first_pass {
                pass.rounds += 1;
            }
            if pause != Some(Duration::ZERO)
                && let Some(pass) = first_pass.take()
            {
                pass.log();
            }
            let pause = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            let changed = async {
                let changed = versions.changed().await;
                tokio::time::sleep(PACE.saturating_sub(looked_at.elapsed())).await;
                changed
            };
            tokio::select! {
                () = &mut shutdown => break,
                () = pause => {}
                changed = changed => if changed.is_err() { break },
            }
        }
        self.record(&controllers.events);
    }

    /// Works for a short time, so that the end of the agent waits for no more; the answer is when there is work again.
    fn control(&self, controllers: &mut Controllers) -> Result<Option<Duration>, StoreError> {
        let now = clock::boot_time();
        controllers.sets.follow(self, now)?;
        controllers.machines.follow(self, now)?;
        // Most of what is written concerns none of them: a thread that blocks costs more than the look at it.
        let worked = if controllers.are_due(now) {
            tokio::task::block_in_place(|| self.work(controllers, now))
        } else {
            Ok(false)
        };
        let is_due = now >= controllers.first_event_at.saturating_add(EVENTS_WAIT);
        if !controllers.events.is_empty() && (is_due || worked.is_err()) {
            self.record(&std::mem::take(&mut controllers.events));
        }
        if worked? {
            return Ok(Some(Duration::ZERO));
        }
        // Before namespaces: one that cannot be emptied for now holds up nothing else.
        if self.collect_garbage(controllers)? {
            return Ok(Some(Duration::ZERO));
        }
        let namespaces = &mut controllers.namespaces;
        namespaces.follow(self)?;
        if namespaces.is_due() {
            let date = clock::rfc3339(clock::now());
            let emptied = tokio::task::block_in_place(|| namespaces.work(self, &date));
            if emptied? {
                return Ok(Some(Duration::ZERO));
            }
        }
        let events_due = (!controllers.events.is_empty())
            .then(|| controllers.first_event_at.saturating_add(EVENTS_WAIT));
        let due = [
            controllers.sets.next_due(),
            controllers.machines.next_due(),
            events_due,
        ];
        let due = due.into_iter().flatten().min();
        Ok(due.map(|due| due.saturating_sub(now)))
    }

    /// Works on what is due; false when nothing is.
    fn work(&self, controllers: &mut Controllers, now: Duration) -> Result<bool, StoreError> {
        let Controllers {
            sets,
            machines,
            events,
            first_event_at,
            ..
        } = controllers;
        let mut report = |object: &Object, event: ControllerEvent| {
            if events.is_empty() {
                *first_event_at = now;
            }
            let head = Object {
                api_version: object.api_version.clone(),
                kind: object.kind.clone(),
                metadata: object.metadata.clone(),
                ..Object::default()
            };
            events.push((head, event));
        };
        let begun = Instant::now();
        let mut has_worked = false;
        loop {
            let today = clock::now();
            let date = clock::rfc3339(today);
            let moment = Moment {
                elapsed: now,
                date: today.0.div_euclid(1000),
            };
            let of_sets = sets.work(self, (now, &date), &mut report)?;
            if !machines.work(self, moment, &mut report)? && !of_sets {
                return Ok(has_worked);
            }
            has_worked = true;
            if begun.elapsed() >= SPELL {
                return Ok(true);
            }
        }
    }

    fn record(&self, events: &[(Object, ControllerEvent)]) {
        if events.is_empty() {
            return;
        }
        let node_name = self.node.name.clone();
        let written = self.store.write(|transaction| {
            for (object, event) in events {
                let about = About {
                    api_version: &object.api_version,
                    kind: &object.kind,
                    namespace: &object.metadata.namespace,
                    name: &object.metadata.name,
                    uid: &object.metadata.uid,
                    node_name: &node_name,
                };
                let event = if event.is_warning {
                    events::warning(event.reason, event.message.as_str())
                } else {
                    events::normal(event.reason, event.message.as_str())
                };
                self.store
                    .record_events_about(transaction, &about, &[event], clock::now())?;
            }
            Ok(())
        });
        if let Err(error) = written {
            warn!(%error, "events of a controller cannot be recorded");
        }
    }

    /// Deletes, for a spell, what depends on nothing but objects that are gone; true when there may be more.
    fn collect_garbage(&self, controllers: &mut Controllers) -> Result<bool, StoreError> {
        let Controllers {
            collected,
            sweep,
            gone,
            ..
        } = controllers;
        if !sweep.is_over() {
            return Ok(self.go_on_sweeping(sweep, collected));
        }
        let version = self.store.ledger().version().map_err(unreadable)?;
        if !self.may_have_garbage(*collected, gone)? {
            *collected = Some(version);
            if *gone >= PRUNED_AT_ONCE {
                self.prune_deleted(gone)?;
            }
            return Ok(false);
        }
        let kinds = Kinds::this_release();
        let is_owned = |kind: &str| {
            let entry = kinds.find(kind);
            entry.is_some_and(|kind| !matches!(kind.writer, Writer::Agent))
        };
        let everything =
            tokio::task::block_in_place(|| self.store.ledger().everything(is_owned, owners_of));
        let everything = everything.map_err(unreadable)?;
        let objects = everything.objects.into_iter();
        let objects: Vec<Object> = objects.collect::<Result<_, _>>().map_err(unknown)?;
        let writes = collect(&objects, |uid| everything.gone.contains(uid));
        if !writes.is_empty() {
            *sweep = Sweep::of(writes, version);
            return Ok(self.go_on_sweeping(sweep, collected));
        }
        *collected = Some(version);
        let remembered = u64::try_from(everything.gone.len()).unwrap_or(u64::MAX);
        if remembered >= KEPT_UIDS + PRUNED_AT_ONCE {
            self.prune_deleted(gone)?;
        }
        Ok(false)
    }

    /// Discards garbage for a spell; true when there may be more.
    fn go_on_sweeping(&self, sweep: &mut Sweep, collected: &mut Option<u64>) -> bool {
        let begun = Instant::now();
        let carry_out = |write: &Write| {
            let done = tokio::task::block_in_place(|| self.discard(write));
            done.inspect_err(
                |error| warn!(%error, "an object whose owner is gone cannot be collected yet"),
            )
        };
        match sweep.go_on(carry_out, || begun.elapsed() >= SPELL) {
            Swept::Partly => true,
            Swept::Whole {
                version,
                has_failed: true,
            } => {
                // What failed is tried again with the next change.
                *collected = Some(version);
                false
            }
            Swept::Whole { .. } => true,
        }
    }

    fn discard(&self, write: &Write) -> Result<(), StoreError> {
        let done = match write {
            Write::Delete { id, preconditions } => ObjectStore::delete(self, id, preconditions),
            Write::Patch {
                id,
                part,
                patch,
                preconditions,
            } => ObjectStore::patch(self, id, *part, patch, preconditions).map(drop),
            Write::Create(object) => ObjectStore::create(self, object).map(drop),
        };
        match done {
            // It changed meanwhile, or is gone: the next pass sees.
            Err(StoreError::Conflict(_) | StoreError::NotFound(_)) => Ok(()),
            other => other,
        }
    }

    /// Removes the uids of objects that were deleted before many others.
    fn prune_deleted(&self, gone: &mut u64) -> Result<(), StoreError> {
        let pruned = self.store.write(|transaction| {
            let pruned = transaction.prune_deleted_uids(KEPT_UIDS);
            pruned.map_err(WriteError::from)
        });
        pruned.map_err(|error| unknown(error.into()))?;
        *gone = 0;
        Ok(())
    }

    /// Whether anything since a version has left garbage: an owner of others is gone, or goes and lets go of them, or what
    /// was written names an owner that had gone before. Looking for it takes reading everything. Objects that went are
    /// added to `gone`.
    fn may_have_garbage(&self, since: Option<u64>, gone: &mut u64) -> Result<bool, StoreError> {
        let Some(since) = since else {
            return Ok(true);
        };
        let changes = match ObjectStore::changes_after(self, since) {
            Ok(changes) => changes,
            Err(StoreError::Expired(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        let kinds = Kinds::this_release();
        for change in changes {
            let entry = kinds.find(&change.kind);
            if entry.is_none_or(|kind| matches!(kind.writer, Writer::Agent)) {
                continue;
            }
            let metadata = &change.metadata;
            if metadata.finalizers.iter().any(|it| it == ORPHAN_FINALIZER) {
                return Ok(true);
            }
            let is_garbage = match change.happened {
                agent_controllers::ChangeKind::Deleted => {
                    *gone += 1;
                    let dependents = self.store.ledger().dependents(&metadata.uid);
                    !dependents.map_err(unreadable)?.is_empty()
                }
                agent_controllers::ChangeKind::Put => self.names_gone_owner(metadata)?,
            };
            if is_garbage {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether an object that nobody has deleted yet names an owner that is gone.
    fn names_gone_owner(&self, metadata: &ObjectMeta) -> Result<bool, StoreError> {
        if !metadata.deletion_timestamp.is_empty() {
            return Ok(false);
        }
        for owner in &metadata.owner_references {
            if self
                .store
                .ledger()
                .is_gone(&owner.uid)
                .map_err(unreadable)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// As much of an object as decides on whether it is garbage.
fn owners_of(key: ObjectKey, row: StoredObject) -> Result<Object, ApiError> {
    let mut metadata = object::metadata_of(&row)?;
    metadata.managed_fields.clear();
    metadata.annotations.clear();
    metadata.labels.clear();
    Ok(Object {
        kind: key.kind,
        metadata,
        ..Object::default()
    })
}

fn unreadable(error: agent_store::StoreError) -> StoreError {
    unknown(store(error))
}

fn unknown(error: ApiError) -> StoreError {
    StoreError::Unknown(error.to_string())
}

//! Running controllers and the collection of garbage against the ledger.

use std::future::Future;
use std::time::Duration;

use agent_controllers::virtual_machine::Moment;
use agent_controllers::{Namespaces, ObjectStore, ReplicaSets, Said, StoreError, VirtualMachines};
use agent_host::Host;
use agent_objects::{Kinds, ORPHAN_FINALIZER, Object, Write, Writer, collect};
use agent_sources::ApiError;
use tracing::{error, info, warn};

use crate::agent::Agent;
use crate::error::{WriteError, store};
use crate::events::About;
use crate::{clock, events, object};

/// How long to wait when the ledger cannot be read.
const PAUSE: Duration = Duration::from_secs(5);

/// What is kept between two looks.
#[derive(Default)]
struct Controllers {
    sets: ReplicaSets,
    machines: VirtualMachines,
    namespaces: Namespaces,
    /// Garbage was collected as of this version of the ledger; nothing before the first time.
    collected: Option<u64>,
}

/// What the controllers do at the agent's start, until nothing is left to do.
struct FirstPass {
    begun: std::time::Instant,
    rounds: u64,
}

impl FirstPass {
    fn begin() -> Self {
        Self {
            begun: std::time::Instant::now(),
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

impl<H: Host> Agent<H> {
    /// Runs until `shutdown` is done.
    pub(crate) async fn run_controllers(self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let mut versions = self.versions();
        let mut controllers = Controllers::default();
        let mut first_pass = Some(FirstPass::begin());
        loop {
            // Changes from here on wake the controller.
            versions.mark_unchanged();
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
            tokio::select! {
                () = &mut shutdown => return,
                () = pause => {}
                changed = versions.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Works on one object of each controller, so that the end of the agent waits for no more; the answer is when there is
    /// work again.
    fn control(&self, controllers: &mut Controllers) -> Result<Option<Duration>, StoreError> {
        let now = clock::boot_time();
        let today = clock::now();
        let date = clock::rfc3339(today);
        let moment = Moment {
            elapsed: now,
            date: today.0.div_euclid(1000),
        };
        let Controllers { sets, machines, .. } = controllers;
        let mut said = Vec::new();
        let mut say = |object: &Object, words: Said| said.push((object.clone(), words));
        let worked = tokio::task::block_in_place(|| {
            sets.follow(self, now)?;
            machines.follow(self, now)?;
            let worked = sets.work(self, (now, &date), &mut say)?;
            Ok(machines.work(self, moment, &mut say)? || worked)
        });
        self.tell(&said);
        if worked? {
            return Ok(Some(Duration::ZERO));
        }
        // Before namespaces: one that cannot be emptied for now holds up nothing else.
        if self.collect_garbage(&mut controllers.collected)? {
            return Ok(Some(Duration::ZERO));
        }
        let namespaces = &mut controllers.namespaces;
        let emptied = tokio::task::block_in_place(|| {
            namespaces.follow(self)?;
            namespaces.work(self, &date)
        });
        if emptied? {
            return Ok(Some(Duration::ZERO));
        }
        let due = [controllers.sets.next_due(), controllers.machines.next_due()];
        let due = due.into_iter().flatten().min();
        Ok(due.map(|due| due.saturating_sub(now)))
    }

    fn tell(&self, said: &[(Object, Said)]) {
        if said.is_empty() {
            return;
        }
        let node_name = self.node_name();
        let written = self.write(|transaction| {
            for (object, said) in said {
                let about = About {
                    api_version: &object.api_version,
                    kind: &object.kind,
                    namespace: &object.metadata.namespace,
                    name: &object.metadata.name,
                    uid: &object.metadata.uid,
                    node_name: &node_name,
                };
                let event = if said.is_warning {
                    events::warning(said.reason, said.message.as_str())
                } else {
                    events::normal(said.reason, said.message.as_str())
                };
                self.record_events_about(transaction, &about, &[event], clock::now())?;
            }
            Ok(())
        });
        if let Err(error) = written {
            warn!(%error, "events of a controller cannot be recorded");
        }
    }

    /// Deletes what depends on nothing but objects that are gone; true when there may be more.
    fn collect_garbage(&self, collected: &mut Option<u64>) -> Result<bool, StoreError> {
        let version = self.ledger.version().map_err(unreadable)?;
        if !self.may_have_garbage(*collected)? {
            *collected = Some(version);
            return Ok(false);
        }
        let kinds = Kinds::this_release();
        let is_owned = |kind: &str| {
            let entry = kinds.find(kind);
            entry.is_some_and(|kind| !matches!(kind.writer, Writer::Agent))
        };
        let everything = tokio::task::block_in_place(|| self.ledger.everything(is_owned));
        let everything = everything.map_err(unreadable)?;
        let mut objects = Vec::new();
        for (key, row) in &everything.objects {
            objects.push(Object {
                kind: key.kind.clone(),
                metadata: object::metadata_of(row).map_err(unknown)?,
                ..Object::default()
            });
        }
        let writes = collect(&objects, |uid| everything.gone.contains(uid));
        let is_clean = writes.is_empty();
        let mut failed = false;
        for write in writes {
            let done = tokio::task::block_in_place(|| self.discard(&write));
            if let Err(error) = done {
                failed = true;
                warn!(%error, "an object whose owner is gone cannot be collected yet");
            }
        }
        if is_clean && !everything.gone.is_empty() {
            let forgotten = self.write(|transaction| {
                let forgotten = transaction.forget_gone(&everything.gone);
                forgotten.map_err(WriteError::from)
            });
            forgotten.map_err(|error| unknown(error.into()))?;
        }
        if is_clean || failed {
            // What failed is tried again with the next change.
            *collected = Some(version);
        }
        Ok(!is_clean && !failed)
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

    /// Whether anything since a version can have left garbage: an object is gone, or goes and lets go of what it owns.
    fn may_have_garbage(&self, since: Option<u64>) -> Result<bool, StoreError> {
        let Some(since) = since else {
            return Ok(true);
        };
        let changes = match ObjectStore::changes_after(self, since) {
            Ok(changes) => changes,
            Err(StoreError::Expired(_)) => return Ok(true),
            Err(error) => return Err(error),
        };
        let kinds = Kinds::this_release();
        let is_owner = |kind: &str| {
            let entry = kinds.find(kind);
            entry.is_some_and(|kind| !matches!(kind.writer, Writer::Agent))
        };
        let may_leave = |change: &agent_controllers::Change| {
            let is_deleted = change.happened == agent_controllers::ChangeKind::Deleted;
            let mut finalizers = change.metadata.finalizers.iter();
            is_owner(&change.kind) && (is_deleted || finalizers.any(|it| it == ORPHAN_FINALIZER))
        };
        Ok(changes.iter().any(may_leave))
    }
}

fn unreadable(error: agent_store::StoreError) -> StoreError {
    unknown(store(error))
}

fn unknown(error: ApiError) -> StoreError {
    StoreError::Unknown(error.to_string())
}

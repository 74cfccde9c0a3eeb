//! What the agent's parts share, and the set of its actors.

mod actors;

use std::collections::HashMap;
use std::convert::Infallible;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Instant;

use agent_domain::{NodeCaps, PathRules};
use agent_host::{FirmwareFinder, Host, KnownPaths, NodeFacts, Wake};
use agent_plan::{CapacityRules, PlanEvent, Record, Timestamp};
use agent_sources::{ApiError, Kind, ObjectRef};
use agent_store::{Ledger, StoreError, StoredObject, Transaction};
use proto_node::object::VMI_API_VERSION;
use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinSet;

use crate::config::Hooks;
use crate::control_plane::renewals::Renewals;
use crate::error::{WriteError, store};
use crate::events::{About, EventLog};
use crate::maintenance::keeper::Keeper;
use crate::metrics::Metrics;
use crate::object;
use crate::objects::recent::RecentChanges;
use crate::reservations::Reservations;
use crate::secrets::Secrets;
use crate::traces::handle::Traces;
use crate::usage::figures::LastFigures;

/// The agent. Cheap to clone.
pub(crate) struct Agent<H>(Arc<Inner<H>>);

impl<H> Clone for Agent<H> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<H> Deref for Agent<H> {
    type Target = Inner<H>;

    fn deref(&self) -> &Inner<H> {
        &self.0
    }
}

/// State that all tasks of the agent share.
pub(crate) struct Inner<H> {
    pub(crate) ledger: Ledger,
    /// What opens confidential objects of the ledger.
    pub(crate) secrets: Secrets,
    pub(crate) host: H,
    caps: RwLock<(NodeCaps, FirmwareFinder)>,
    hooks: RwLock<Hooks>,
    /// Whose files of the host are, beside what the configuration grants.
    pub(crate) known_paths: KnownPaths,
    pub(crate) facts: NodeFacts,
    pub(crate) started_at: Timestamp,
    pub(crate) metrics: Metrics,
    pub(crate) traces: Traces,
    pub(crate) last_figures: LastFigures,
    pub(crate) reservations: Reservations,
    pub(crate) keeper: Keeper,
    /// The control plane that this node dials.
    pub(crate) control_plane: OnceLock<String>,
    /// What control planes renewed since.
    pub(crate) renewals: Renewals,
    /// A lease was granted, renewed or taken back.
    pub(crate) leases_changed: Notify,
    /// Changes that were handed to controllers.
    pub(crate) recent: RecentChanges,
    events: Mutex<EventLog>,
    versions: watch::Sender<u64>,
    wakes: Mutex<HashMap<String, Wake>>,
    tasks: Mutex<JoinSet<()>>,
    stopping: watch::Sender<bool>,
}

impl<H: Host> Agent<H> {
    /// An agent without actors.
    pub(crate) fn new(
        (ledger, secrets): (Ledger, Secrets),
        host: H,
        caps: (NodeCaps, FirmwareFinder),
        facts: NodeFacts,
        rules: CapacityRules,
        known_paths: KnownPaths,
    ) -> Result<Self, StoreError> {
        let events = EventLog::load(&ledger)?;
        let version = ledger.version()?;
        let keeper = Keeper::new(ledger.maintenance()?);
        let reservations = Reservations::new(caps.0.node_name.clone(), &facts, rules);
        Ok(Self(Arc::new(Inner {
            ledger,
            secrets,
            host,
            caps: RwLock::new(caps),
            hooks: RwLock::new(Hooks::default()),
            known_paths,
            facts,
            started_at: crate::clock::now(),
            metrics: Metrics::new(),
            traces: Traces::default(),
            last_figures: LastFigures::default(),
            reservations,
            keeper,
            control_plane: OnceLock::new(),
            renewals: Renewals::default(),
            leases_changed: Notify::new(),
            recent: RecentChanges::default(),
            events: Mutex::new(events),
            versions: watch::Sender::new(version),
            wakes: Mutex::new(HashMap::new()),
            tasks: Mutex::new(JoinSet::new()),
            stopping: watch::Sender::new(false),
        })))
    }

    /// What admission judges by at present: firmware that was installed since the start is there.
    pub(crate) fn caps(&self) -> NodeCaps {
        let present = self.caps.read().unwrap_or_else(PoisonError::into_inner);
        let (caps, firmware) = &*present;
        NodeCaps {
            firmware: firmware.lacks(),
            paths: self.with_known_paths(caps),
            ..caps.clone()
        }
    }

    /// Which paths of the host a namespace may name at present.
    pub(crate) fn path_rules(&self) -> PathRules {
        let present = self.caps.read().unwrap_or_else(PoisonError::into_inner);
        self.with_known_paths(&present.0)
    }

    fn with_known_paths(&self, caps: &NodeCaps) -> PathRules {
        PathRules {
            records: self.known_paths.get(),
            ..caps.paths.clone()
        }
    }

    /// The node's name, without a look for what else it has.
    pub(crate) fn node_name(&self) -> String {
        let present = self.caps.read().unwrap_or_else(PoisonError::into_inner);
        present.0.node_name.clone()
    }

    /// Has admission judge by something else from now on. What was admitted stays.
    pub(crate) fn set_caps(&self, caps: (NodeCaps, FirmwareFinder)) {
        let mut present = self.caps.write().unwrap_or_else(PoisonError::into_inner);
        *present = caps;
    }

    /// Who is asked about machines.
    pub(crate) fn hooks(&self) -> Hooks {
        let present = self.hooks.read().unwrap_or_else(PoisonError::into_inner);
        present.clone()
    }

    /// Has others be asked about machines from now on.
    pub(crate) fn set_hooks(&self, hooks: Hooks) {
        *self.hooks.write().unwrap_or_else(PoisonError::into_inner) = hooks;
    }

    /// Ends a VMI's reservation, and wakes the VMIs that are next to get theirs.
    pub(crate) fn release_room(&self, uid: &str) {
        for next in self.reservations.release(uid) {
            self.wake(&next);
        }
    }

    /// Runs one transaction of the ledger, and tells watchers. Blocks until it is on disk.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let begun = Instant::now();
        let written = tokio::task::block_in_place(|| self.ledger.write(versioned(work)));
        self.written(begun, written)
    }

    /// Looks at the ledger as a transaction does, and stores nothing.
    pub(crate) fn look<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let looked = tokio::task::block_in_place(|| {
            self.ledger.write(|transaction| {
                let seen = work(transaction);
                // Whatever was seen, the transaction ends without a change.
                Err::<Infallible, _>(seen.map_or_else(Looked::Failed, Looked::Saw))
            })
        });
        match looked {
            Err(Looked::Saw(seen)) => Ok(seen),
            Err(Looked::Failed(error)) => Err(error),
            Ok(never) => match never {},
        }
    }

    /// The same as a write, while no thread waits: `work` runs on the ledger's own, and `then` once it is on disk.
    pub(crate) async fn write_shared<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, WriteError> + Send + 'static,
        then: impl FnOnce(&Self, &T) + Send + 'static,
    ) -> Result<T, WriteError> {
        let (agent, begun) = (self.clone(), Instant::now());
        let (done, written) = oneshot::channel();
        // What follows from a write does not depend on whether its caller still listens.
        self.ledger.submit(versioned(work), move |written| {
            let written = agent.written(begun, written);
            if let Ok(value) = &written {
                then(&agent, value);
            }
            // Nobody listens where the call was cancelled.
            let _heard = done.send(written).is_ok();
        });
        written.await.unwrap_or_else(|_| {
            let text = String::from("a write ended halfway; nothing of it is stored");
            Err(ApiError::Internal(text).into())
        })
    }

    fn written<T>(
        &self,
        begun: Instant,
        written: Result<(T, u64), WriteError>,
    ) -> Result<T, WriteError> {
        self.metrics.committed(written.is_ok(), begun.elapsed());
        let (value, version) = written?;
        self.versions.send_if_modified(|known| {
            let newer = version > *known;
            *known = version.max(*known);
            newer
        });
        Ok(value)
    }

    /// Records events within a transaction.
    pub(crate) fn record_events(
        &self,
        transaction: &mut Transaction<'_>,
        (target, uid): (&ObjectRef, &str),
        said: &[PlanEvent],
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let node_name = self.node_name();
        let about = About {
            api_version: VMI_API_VERSION,
            kind: target.kind.as_str(),
            namespace: &target.namespace,
            name: &target.name,
            uid,
            node_name: &node_name,
        };
        self.record_events_about(transaction, &about, said, now)
    }

    /// The same about an object of any kind.
    pub(crate) fn record_events_about(
        &self,
        transaction: &mut Transaction<'_>,
        about: &About<'_>,
        said: &[PlanEvent],
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let mut log = locked(&self.events);
        for event in said {
            log.record(transaction, about, event, now)?;
        }
        Ok(())
    }

    /// How many VMIs have an actor.
    pub(crate) fn actors(&self) -> usize {
        locked(&self.wakes).len()
    }

    /// Has the actor of a VMI look again.
    pub(crate) fn wake(&self, uid: &str) {
        if let Some(wake) = locked(&self.wakes).get(uid) {
            wake.notify_one();
        }
    }

    /// Has all actors look again.
    pub(crate) fn wake_all(&self) {
        for wake in locked(&self.wakes).values() {
            wake.notify_one();
        }
    }

    /// Has those who follow the ledger look again, though it has not changed.
    pub(crate) fn nudge(&self) {
        self.versions.send_modify(|_| {});
    }

    /// The VMI of a row's key, if it is this uid.
    pub(crate) fn target_of(&self, uid: &str) -> Result<Option<ObjectRef>, StoreError> {
        let key = self.ledger.key_of(uid)?;
        Ok(key.map(|key| ObjectRef {
            kind: Kind::VirtualMachineInstance,
            namespace: key.namespace,
            name: key.name,
        }))
    }

    /// The version of the ledger: everything up to it is on disk.
    pub(crate) fn version(&self) -> u64 {
        *self.versions.borrow()
    }

    /// Follows the version of the ledger.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.versions.subscribe()
    }

    /// Follows whether the agent is about to end.
    pub(crate) fn stopping(&self) -> watch::Receiver<bool> {
        self.stopping.subscribe()
    }

    /// Has everything end. Guests are left alone.
    pub(crate) fn stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Waits until every actor has finished what it was doing.
    pub(crate) async fn join(&self) {
        let mut tasks = std::mem::take(&mut *locked(&self.tasks));
        while tasks.join_next().await.is_some() {}
    }

    /// An object, or that there is none.
    pub(crate) fn row(&self, target: &ObjectRef) -> Result<StoredObject, ApiError> {
        let row = self.ledger.object(&object::key(target)).map_err(store)?;
        row.ok_or_else(|| object::not_found(target))
    }
}

/// Work whose result comes with the version that it made.
fn versioned<T>(
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, WriteError>,
) -> impl FnOnce(&mut Transaction<'_>) -> Result<(T, u64), WriteError> {
    |transaction| Ok((work(transaction)?, transaction.version()))
}

/// How a look at the ledger ends.
enum Looked<T> {
    Saw(T),
    Failed(WriteError),
}

impl<T> From<StoreError> for Looked<T> {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

/// When a VMI was accepted.
pub(crate) fn accepted_at(record: &Record) -> Timestamp {
    record
        .report
        .phases
        .first()
        .map_or(Timestamp(0), |entry| entry.at)
}

/// No holder of these locks can leave what they guard half changed.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! The ledger, and what follows from each write to it.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use agent_plan::{PlanEvent, Timestamp};
use agent_sources::{ApiError, Kind, ObjectRef};
use agent_store::{Ledger, StoreError, StoredObject, Transaction};
use proto_node::object::VMI_API_VERSION;
use tokio::sync::{oneshot, watch};

use crate::error::{WriteError, store};
use crate::events::{About, EventLog};
use crate::locked::locked;
use crate::metrics::Metrics;
use crate::object;
use crate::secrets::Secrets;

/// What is stored. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Store(Arc<Shared>);

/// State of the store that all tasks share.
struct Shared {
    ledger: Ledger,
    secrets: Secrets,
    /// The node's name, which events bear.
    node_name: String,
    metrics: Arc<Metrics>,
    events: Mutex<EventLog>,
    versions: watch::Sender<u64>,
}

impl Store {
    pub(crate) fn new(
        (ledger, secrets): (Ledger, Secrets),
        node_name: String,
        metrics: Arc<Metrics>,
    ) -> Result<Self, StoreError> {
        let events = EventLog::load(&ledger)?;
        let version = ledger.version()?;
        Ok(Self(Arc::new(Shared {
            ledger,
            secrets,
            node_name,
            metrics,
            events: Mutex::new(events),
            versions: watch::Sender::new(version),
        })))
    }

    /// What is on disk, to be read.
    pub(crate) fn ledger(&self) -> &Ledger {
        &self.0.ledger
    }

    /// What opens confidential objects of the ledger.
    pub(crate) fn secrets(&self) -> &Secrets {
        &self.0.secrets
    }

    /// Runs one transaction of the ledger, and tells watchers. Blocks until it is on disk.
    pub(crate) fn write<T>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let begun = Instant::now();
        let written = tokio::task::block_in_place(|| self.0.ledger.write(versioned(work)));
        self.written(begun, written)
    }

    /// Reads the ledger in a transaction that stores nothing.
    pub(crate) fn read_as_transaction<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, WriteError>,
    ) -> Result<T, WriteError> {
        let read = tokio::task::block_in_place(|| {
            self.0.ledger.write(|transaction| {
                let seen = work(transaction);
                // Whatever was seen, the transaction ends without a change.
                Err::<Infallible, _>(seen.map_or_else(ReadOutcome::Failed, ReadOutcome::Read))
            })
        });
        match read {
            Err(ReadOutcome::Read(seen)) => Ok(seen),
            Err(ReadOutcome::Failed(error)) => Err(error),
            Ok(never) => match never {},
        }
    }

    /// The same as a write, while no thread waits: `work` runs on the ledger's own, and `then` once it is on disk.
    pub(crate) async fn write_shared<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Transaction<'_>) -> Result<T, WriteError> + Send + 'static,
        then: impl FnOnce(&T) + Send + 'static,
    ) -> Result<T, WriteError> {
        let (stored, begun) = (self.clone(), Instant::now());
        let (done, written) = oneshot::channel();
        // What follows from a write does not depend on whether its caller still listens.
        self.0.ledger.submit(versioned(work), move |written| {
            let written = stored.written(begun, written);
            if let Ok(value) = &written {
                then(value);
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
        self.0.metrics.committed(written.is_ok(), begun.elapsed());
        let (value, version) = written?;
        self.0.versions.send_if_modified(|known| {
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
        events: &[PlanEvent],
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let about = About {
            api_version: VMI_API_VERSION,
            kind: target.kind.as_str(),
            namespace: &target.namespace,
            name: &target.name,
            uid,
            node_name: &self.0.node_name,
        };
        self.record_events_about(transaction, &about, events, now)
    }

    /// The same about an object of any kind.
    pub(crate) fn record_events_about(
        &self,
        transaction: &mut Transaction<'_>,
        about: &About<'_>,
        events: &[PlanEvent],
        now: Timestamp,
    ) -> Result<(), WriteError> {
        let mut log = locked(&self.0.events);
        for event in events {
            log.record(transaction, about, event, now)?;
        }
        Ok(())
    }

    /// Has those who follow the ledger look again, though it has not changed.
    pub(crate) fn nudge(&self) {
        self.0.versions.send_modify(|_| {});
    }

    /// The VMI of a row's key, if it is this uid.
    pub(crate) fn target_of(&self, uid: &str) -> Result<Option<ObjectRef>, StoreError> {
        let key = self.0.ledger.key_of(uid)?;
        Ok(key.map(|key| ObjectRef {
            kind: Kind::VirtualMachineInstance,
            namespace: key.namespace,
            name: key.name,
        }))
    }

    /// The version of the ledger: everything up to it is on disk.
    pub(crate) fn version(&self) -> u64 {
        *self.0.versions.borrow()
    }

    /// Follows the version of the ledger.
    pub(crate) fn versions(&self) -> watch::Receiver<u64> {
        self.0.versions.subscribe()
    }

    /// An object, or that there is none.
    pub(crate) fn row(&self, target: &ObjectRef) -> Result<StoredObject, ApiError> {
        let row = self.0.ledger.object(&object::key(target)).map_err(store)?;
        row.ok_or_else(|| object::not_found(target))
    }
}

/// Work whose result comes with the version that it made.
fn versioned<T>(
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, WriteError>,
) -> impl FnOnce(&mut Transaction<'_>) -> Result<(T, u64), WriteError> {
    |transaction| Ok((work(transaction)?, transaction.version()))
}

/// How a read in a transaction ends.
enum ReadOutcome<T> {
    Read(T),
    Failed(WriteError),
}

impl<T> From<StoreError> for ReadOutcome<T> {
    fn from(error: StoreError) -> Self {
        Self::Failed(error.into())
    }
}

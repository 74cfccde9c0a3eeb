//! VMIs and events, as sources see them.

use agent_sources::{
    ApiError, Applied, Apply, Change, Delete, Deleted, GuestRegistry, Kind, Listed, ObjectRef,
};
use agent_store::{ObjectKey, StoredObject};
use proto_node::node::Object;
use tokio::sync::watch;
use tracing::warn;

use super::{Objects, PAGE};
use crate::error::store;
use crate::{clock, events, object};

impl GuestRegistry for Objects {
    async fn apply(&self, apply: Apply) -> Result<Applied, ApiError> {
        self.apply_vmi(apply)
    }

    async fn delete(&self, delete: Delete) -> Result<Deleted, ApiError> {
        self.delete_object(&delete)
    }

    fn get(&self, target: &ObjectRef) -> Result<Object, ApiError> {
        object::object(target.kind, &self.store.row(target)?)
    }

    fn list(&self, kind: Kind) -> Result<Listed, ApiError> {
        let (rows, version) = self.store.ledger().objects(kind.as_str()).map_err(store)?;
        listed(kind, &rows, version)
    }

    fn list_after(&self, kind: Kind, after: Option<(&str, &str)>) -> Result<Listed, ApiError> {
        let some = self
            .store
            .ledger()
            .objects_after(kind.as_str(), after, PAGE);
        let (rows, version) = some.map_err(store)?;
        listed(kind, &rows, version)
    }

    fn changes_after(
        &self,
        kind: Kind,
        version: u64,
        limit: usize,
    ) -> Result<(Vec<Change>, u64), ApiError> {
        let some = self
            .store
            .ledger()
            .changes_after(kind.as_str(), version, limit);
        let some = some.map_err(store)?;
        let read = some.changes.into_iter().map(|it| change(kind, it));
        Ok((read.collect::<Result<_, _>>()?, some.until))
    }

    fn versions(&self) -> watch::Receiver<u64> {
        self.store.versions()
    }

    async fn warn(&self, target: &ObjectRef, reason: &str, message: &str) {
        let events = [events::warning(reason, message)];
        let written = self.store.write(|transaction| {
            let uid = transaction
                .object(&object::key(target))?
                .map(|row| row.uid)
                .unwrap_or_default();
            self.store
                .record_events(transaction, (target, &uid), &events, clock::now())
        });
        if let Err(error) = written {
            warn!(%error, "an event could not be recorded");
        }
    }
}

fn listed(
    kind: Kind,
    rows: &[(ObjectKey, StoredObject)],
    version: u64,
) -> Result<Listed, ApiError> {
    let items = rows.iter().map(|(_, row)| object::object(kind, row));
    Ok(Listed {
        version,
        items: items.collect::<Result<_, _>>()?,
    })
}

fn change(kind: Kind, change: agent_store::Change) -> Result<Change, ApiError> {
    Ok(Change {
        version: change.version,
        change: change.kind,
        kind,
        object: object::object(kind, &change.object)?,
    })
}

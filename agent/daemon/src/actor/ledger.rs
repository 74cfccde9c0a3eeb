//! What an actor writes into the ledger.

use agent_domain::PodPool;
use agent_host::Host;
use agent_plan::{PlanEvent, Record, Timestamp};
use agent_sources::ObjectRef;
use agent_store::{StoreError, Transaction};
use tracing::info;

use super::{Actor, Next};
use crate::error::WriteError;
use crate::object::FINALIZER;
use crate::{object, pods, status};

impl<H: Host> Actor<H> {
    /// Stores what was done and seen, the status that follows from it and events, all or nothing; and leases the guest an
    /// address of a pool. `false`: that has none any more, and nothing was stored.
    pub(super) fn store(
        &mut self,
        target: &ObjectRef,
        (record, events): (&mut Record, &[PlanEvent]),
        to_lease: Option<&PodPool>,
        now: Timestamp,
    ) -> Result<bool, WriteError> {
        let vmi = self.spec.as_ref().map(|spec| &spec.vmi);
        let begun = self.start.mark();
        let is_stored = self.agent.store.write(|transaction| {
            if let Some(pool) = to_lease
                && !pods::lease_with_record(transaction, pool, record, now)?
            {
                return Ok(false);
            }
            let key = object::key(target);
            let row = transaction.object(&key)?;
            let row = row.filter(|row| row.uid == self.uid);
            put_parts(transaction, record, row.is_some())?;
            if let Some(row) = row {
                let mut object = object::vmi(&row)?;
                let before = object.status.take().unwrap_or_default();
                let after = status::project(before.clone(), record, vmi, &self.agent.node.name);
                if after != before {
                    object.status = Some(after);
                    transaction.put(&key, object::row(object, transaction.next_version()))?;
                }
            }
            self.agent
                .store
                .record_events(transaction, (target, &self.uid), events, now)?;
            Ok(true)
        })?;
        if !is_stored {
            return Ok(false);
        }
        self.start.stored(record, begun);
        let before = self.phase.replace(record.phase());
        if before != Some(record.phase()) {
            self.log_phase(record);
            if let Some(before) = before {
                self.agent.metrics.left_phase(before, record);
            }
        }
        Ok(true)
    }

    fn log_phase(&self, record: &Record) {
        let phase = record.phase().as_str();
        let incarnation = record.launches.incarnation();
        match &record.report.end {
            Some(end) => info!(phase, incarnation, reason = end.reason, "{}", end.message),
            None => info!(phase, incarnation, "phase reached"),
        }
    }

    /// Removes the agent's finalizer, after nothing is left on the host. The object goes with its last finalizer.
    pub(super) fn remove_finalizer(&mut self, target: &ObjectRef) -> Result<Next, WriteError> {
        let key = object::key(target);
        let gone = self.agent.store.write(|transaction| {
            let Some(row) = transaction.object(&key)?.filter(|row| row.uid == self.uid) else {
                return Ok(true);
            };
            let mut object = object::vmi(&row)?;
            let metadata = object.metadata.get_or_insert_default();
            let held = metadata
                .finalizers
                .iter()
                .any(|finalizer| finalizer == FINALIZER);
            metadata
                .finalizers
                .retain(|finalizer| finalizer != FINALIZER);
            let gone = metadata.finalizers.is_empty();
            let row = object::row(object, transaction.next_version());
            if gone {
                transaction.remove_owner(&key, row)?;
            } else if held {
                transaction.put(&key, row)?;
            }
            Ok(gone)
        })?;
        if !gone {
            // Somebody else's finalizer; the apply of that finalizer's controller wakes this actor.
            return Ok(Next::At(None));
        }
        info!("gone");
        self.agent.metrics.gone(target);
        self.agent.host.drop_vmi_state(&self.uid);
        self.agent.release_reservation(&self.uid);
        Ok(Next::Never)
    }
}

/// Stores the parts of a record that its actor writes; orders are not among them. Of an object that is gone nothing is kept.
fn put_parts(
    transaction: &mut Transaction<'_>,
    record: &Record,
    is_there: bool,
) -> Result<(), StoreError> {
    let uid = record.id.uid.as_str();
    if transaction.has_record(uid)? {
        transaction.put_launches(uid, &record.launches)?;
        transaction.put_allocations(uid, &record.allocations)?;
        return transaction.put_report(uid, &record.report);
    }
    if is_there {
        transaction.begin_record(record)?;
    }
    Ok(())
}

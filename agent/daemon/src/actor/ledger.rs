//! What an actor writes into the ledger.

use agent_domain::PodPool;
use agent_host::Host;
use agent_plan::{BootId, PlanEvent, Record, Timestamp};
use agent_sources::ObjectRef;
use agent_store::{StoreError, Transaction};
use tracing::info;

use super::{Actor, Next};
use crate::error::WriteError;
use crate::object::FINALIZER;
use crate::{clock, object, pods, status};

impl<H: Host> Actor<H> {
    /// Stores the record, the status that follows from it and events, all or nothing; and leases the guest an address of a pool.
    /// `false`: that has none any more, and nothing was stored.
    pub(super) fn store(
        &mut self,
        target: &ObjectRef,
        (record, said): (&mut Record, &[PlanEvent]),
        to_lease: Option<&PodPool>,
        now: Timestamp,
    ) -> Result<bool, WriteError> {
        let vmi = self.spec.as_ref().map(|spec| &spec.vmi);
        let begun = self.start.mark();
        let is_stored = self.agent.write(|transaction| {
            if let Some(pool) = to_lease
                && !pods::lease_with_record(transaction, pool, record, now)?
            {
                return Ok(false);
            }
            let boot_id = &self.agent.facts.boot_id;
            transaction.put_record(&with_orders(transaction, record, boot_id)?)?;
            let key = object::key(target);
            if let Some(row) = transaction.object(&key)?.filter(|row| row.uid == self.uid) {
                let mut object = object::vmi(&row)?;
                let before = object.status.take().unwrap_or_default();
                let after = status::project(before.clone(), record, vmi, &self.agent.node_name());
                if after != before {
                    object.status = Some(after);
                    transaction.put(&key, object::row(object, transaction.next_version()))?;
                }
            }
            self.agent
                .record_events(transaction, (target, &self.uid), said, now)?;
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
        let incarnation = record.incarnation;
        match &record.end {
            Some(end) => info!(phase, incarnation, reason = end.reason, "{}", end.message),
            None => info!(phase, incarnation, "phase reached"),
        }
    }

    /// Removes the agent's finalizer, after nothing is left on the host. The object goes with its last finalizer.
    pub(super) fn remove_finalizer(&mut self, target: &ObjectRef) -> Result<Next, WriteError> {
        let key = object::key(target);
        let gone = self.agent.write(|transaction| {
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
            // Somebody else's finalizer; its owner's apply wakes this actor.
            return Ok(Next::At(None));
        }
        info!("gone");
        self.agent.metrics.gone(target);
        self.agent.host.forget(&self.uid);
        self.agent.release_room(&self.uid);
        Ok(Next::Never)
    }
}

/// The record to store: what was ordered since it was read stays.
fn with_orders(
    transaction: &Transaction<'_>,
    record: &Record,
    boot_id: &BootId,
) -> Result<Record, StoreError> {
    let mut record = record.clone();
    if let Some(mut stored) = transaction.record(&record.id.uid)? {
        clock::follow(&mut stored, boot_id);
        clock::follow(&mut record, boot_id);
        record.orders = stored.orders;
    }
    Ok(record)
}

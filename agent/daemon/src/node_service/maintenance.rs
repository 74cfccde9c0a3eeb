//! What the operator wants of the node as a whole: that it starts no guests, and that it is empty.

mod drain;
mod shutdown;

use std::sync::PoisonError;

use agent_host::Host;
use agent_plan::{BootId, DrainOrder, Maintenance, Millis, StopCause, Timestamp, order_stop};
use agent_sources::{ApiError, Kind, Maintained, MaintenanceAction, MaintenanceRequest};
use agent_store::{StoreError, Transaction};
use proto_node::node::{self as wire, DrainOptions, DrainStatus};
use tracing::info;

use super::NodeService;
use crate::error::{WriteError, store};
use crate::{clock, object, orders};

impl<H: Host> Maintained for NodeService<H> {
    fn maintenance(&self) -> Result<wire::Maintenance, ApiError> {
        self.to_wire(&self.store.ledger().maintenance().map_err(store)?)
    }

    fn maintain(&self, request: MaintenanceRequest) -> Result<(wire::Maintenance, bool), ApiError> {
        let node_name = self.node.name.clone();
        if !request.node_name.is_empty() && request.node_name != node_name {
            return Err(ApiError::Conflict(format!(
                "this is node {node_name:?}, not {:?}: ask that one's agent, or leave the name out",
                request.node_name
            )));
        }
        let now = clock::now();
        if request.dry_run {
            let mut wanted = self.store.ledger().maintenance().map_err(store)?;
            let is_new = take(&mut wanted, &request.what, now);
            return Ok((self.to_wire(&wanted)?, is_new));
        }
        let (wanted, is_new) = self.order(&request.what, now)?;
        let client = request.client.as_str();
        info!(what = ?request.what, client, is_new, "maintenance of the node");
        self.node.maintenance.changed.notify_one();
        self.publish();
        self.actors.wake_all();
        self.store.nudge();
        Ok((self.to_wire(&wanted)?, is_new))
    }
}

impl<H: Host> NodeService<H> {
    /// Writes down what is wanted from now on.
    fn order(
        &self,
        what: &MaintenanceAction,
        now: Timestamp,
    ) -> Result<(Maintenance, bool), WriteError> {
        // Held until it is on disk: nobody sees a node that is closed, and open again after a power cut.
        let mut known = self
            .node
            .maintenance
            .wanted
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (wanted, is_new) = self.store.write(|transaction| {
            let mut wanted = transaction.maintenance()?;
            let was_drained = wanted.drain.is_some();
            let is_new = take(&mut wanted, what, now);
            if let Some(grace) = wanted.drain.as_ref().and_then(|drain| drain.grace) {
                hurry(transaction, grace, &self.node.facts.boot_id)?;
            }
            if was_drained && wanted.drain.is_none() {
                self.unmark(transaction)?;
            }
            transaction.put_maintenance(&wanted)?;
            Ok((wanted, is_new))
        })?;
        known.clone_from(&wanted);
        Ok((wanted, is_new))
    }

    /// Withdraws the eviction requests from controllers: clears `evacuationNodeName`.
    fn unmark(&self, transaction: &mut Transaction<'_>) -> Result<(), WriteError> {
        let node_name = self.node.name.clone();
        let (rows, _) = self
            .store
            .ledger()
            .objects(Kind::VirtualMachineInstance.as_str())?;
        for (key, row) in rows {
            let mut vmi = object::vmi(&row)?;
            let Some(status) = &mut vmi.status else {
                continue;
            };
            if status.evacuation_node_name == node_name {
                status.evacuation_node_name.clear();
                transaction.put(&key, object::row(vmi, transaction.next_version()))?;
            }
        }
        Ok(())
    }

    /// The answer to callers.
    fn to_wire(&self, wanted: &Maintenance) -> Result<wire::Maintenance, ApiError> {
        let drain = match &wanted.drain {
            Some(order) => Some(DrainStatus {
                requested_at: clock::rfc3339(order.requested_at),
                options: Some(options(order)),
                evictions: self.evictions(order)?,
            }),
            None => None,
        };
        Ok(wire::Maintenance {
            node_name: self.node.name.clone(),
            unschedulable: wanted.cordoned_at.is_some(),
            cordoned_at: wanted.cordoned_at.map(clock::rfc3339).unwrap_or_default(),
            drain,
        })
    }
}

/// What is wanted then; true when that changes what the caller asks about.
fn take(wanted: &mut Maintenance, what: &MaintenanceAction, now: Timestamp) -> bool {
    match what {
        MaintenanceAction::Cordon => wanted.cordon(now),
        MaintenanceAction::Uncordon => wanted.uncordon(),
        MaintenanceAction::Drain(options) => {
            let before = wanted.drain.take();
            wanted.drain = Some(DrainOrder {
                requested_at: before.map_or(now, |before| before.requested_at),
                force: options.force,
                grace: options.grace_period_seconds.map(Millis::from_secs),
                parallel: options.parallel,
            });
            wanted.cordon(now)
        }
        MaintenanceAction::CancelDrain => wanted.drain.take().is_some(),
    }
}

/// Shortens the time of guests that a drain has ordered to end before.
fn hurry(
    transaction: &mut Transaction<'_>,
    grace: Millis,
    boot_id: &BootId,
) -> Result<(), StoreError> {
    for (uid, known) in transaction.orders()? {
        if known
            .stop
            .is_some_and(|stop| stop.cause == StopCause::Drain)
        {
            // Nothing comes of it where it has ended, or has less time anyway.
            orders::give(transaction, (&uid, boot_id), |record, now| {
                order_stop(record, grace, StopCause::Drain, now).ok()
            })?;
        }
    }
    Ok(())
}

fn options(order: &DrainOrder) -> DrainOptions {
    DrainOptions {
        force: order.force,
        grace_period_seconds: order.grace.map(|grace| grace.0 / 1000),
        parallel: order.parallel,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(force: bool) -> MaintenanceAction {
        MaintenanceAction::Drain(DrainOptions {
            force,
            ..DrainOptions::default()
        })
    }

    #[test]
    fn a_drain_cordons_is_changed_by_another_and_taken_back_alone_or_with_the_cordon() {
        let mut wanted = Maintenance::default();
        assert!(take(&mut wanted, &drain(false), Timestamp(1)));
        assert!(!take(&mut wanted, &drain(true), Timestamp(2)));
        let order = wanted.drain.clone().unwrap_or_default();
        assert_eq!((order.requested_at, order.force), (Timestamp(1), true));
        assert!(!take(&mut wanted, &MaintenanceAction::Cordon, Timestamp(3)));
        assert!(wanted.drain.is_some());
        assert!(take(
            &mut wanted,
            &MaintenanceAction::CancelDrain,
            Timestamp(4)
        ));
        assert!(!take(
            &mut wanted,
            &MaintenanceAction::CancelDrain,
            Timestamp(5)
        ));
        assert_eq!(wanted.cordoned_at, Some(Timestamp(1)));
        take(&mut wanted, &drain(false), Timestamp(6));
        assert!(take(
            &mut wanted,
            &MaintenanceAction::Uncordon,
            Timestamp(7)
        ));
        assert_eq!(wanted, Maintenance::default());
    }
}

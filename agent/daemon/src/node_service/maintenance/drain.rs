//! A drain, step by step: it looks who is there, and gives each the order that its turn has come to.
//!
//! Nothing is kept in memory: each order given stands in a record or an object, so that an agent that is started goes
//! on where the last one was.

use std::future::Future;
use std::time::Duration;

use agent_host::Host;
use agent_plan::{
    BootId, DrainOrder, EvictionStep, EvictionStrategy, GuestToDrain, Millis, Record, StopCause,
    evictions, order_stop,
};
use agent_sources::{ApiError, Kind, ObjectRef};
use agent_store::Transaction;
use proto_node::node::{Eviction, eviction::Step};
use proto_node::vmi::VirtualMachineInstance;
use tracing::{error, info};

use crate::error::{WriteError, store};
use crate::node_service::NodeService;
use crate::{clock, events, object, orders};

/// While there is a drain, it is looked at so often at least.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// After the ledger failed.
const PAUSE: Duration = Duration::from_secs(1);

/// Several changes that come together are one.
const SETTLE: Duration = Duration::from_millis(50);

/// A VMI of the node.
pub(super) struct Guest {
    pub(super) target: ObjectRef,
    pub(super) uid: String,
    pub(super) record: Record,
    pub(super) vmi: VirtualMachineInstance,
}

impl Guest {
    fn strategy(&self) -> EvictionStrategy {
        let spec = self.vmi.spec.as_ref();
        EvictionStrategy::parse(spec.map_or("", |spec| spec.eviction_strategy.as_str()))
    }

    fn to_drain(&self) -> GuestToDrain<'_> {
        GuestToDrain {
            record: &self.record,
            strategy: self.strategy(),
            deleting: self.is_deleting(),
        }
    }

    pub(super) fn is_deleting(&self) -> bool {
        !object::metadata(&self.vmi).deletion_timestamp.is_empty()
    }

    /// How long it has to shut itself down unless somebody says otherwise.
    pub(super) fn own_grace(&self) -> Millis {
        Millis::from_secs(object::own_grace_seconds(&self.vmi))
    }

    /// `evacuationNodeName` names this node: its controller has been asked to move it, or to let it end.
    fn is_marked(&self, node_name: &str) -> bool {
        let status = self.vmi.status.as_ref();
        status.is_some_and(|status| status.evacuation_node_name == node_name)
    }
}

impl<H: Host> NodeService<H> {
    /// Carries drains out until `shutdown` is done.
    pub(crate) async fn run_drains(self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let mut versions = self.store.versions();
        loop {
            versions.mark_unchanged();
            let pause = match self.drain_further() {
                Ok(true) => Some(CHECK_INTERVAL),
                Ok(false) => None,
                Err(error) => {
                    error!(%error, "the drain cannot be checked");
                    Some(PAUSE)
                }
            };
            let pause = async {
                match pause {
                    Some(pause) => tokio::time::sleep(pause).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                () = &mut shutdown => return,
                () = self.node.maintenance.changed.notified() => {}
                changed = versions.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    tokio::time::sleep(SETTLE).await;
                }
                () = pause => {}
            }
        }
    }

    /// Gives the orders that are due; false when there is no drain.
    fn drain_further(&self) -> Result<bool, WriteError> {
        let Some(order) = self.node.maintenance.drain() else {
            return Ok(false);
        };
        let node_name = self.node.name.clone();
        let guests = self.all_guests()?;
        for (guest, step) in steps(&order, &guests) {
            let is_due = match step {
                EvictionStep::Stop => true,
                EvictionStep::External | EvictionStep::Blocked => !guest.is_marked(&node_name),
                EvictionStep::Wait | EvictionStep::Ending => false,
            };
            if is_due {
                self.evict(&order, guest, step)?;
            }
        }
        Ok(true)
    }

    /// Gives one order, unless the drain was taken back or changed meanwhile.
    fn evict(
        &self,
        order: &DrainOrder,
        guest: &Guest,
        step: EvictionStep,
    ) -> Result<(), WriteError> {
        let now = clock::now();
        let is_ordered = self.store.write(|transaction| {
            if transaction.maintenance()?.drain.as_ref() != Some(order) {
                return Ok(false);
            }
            let event = if step == EvictionStep::Stop {
                let grace = grace_of(order, guest);
                if !stop(transaction, (&guest.uid, &self.node.facts.boot_id), grace)? {
                    return Ok(false);
                }
                let seconds = grace.0 / 1000;
                let text = format!(
                    "The node is drained: the guest is asked to shut down, and is killed after {seconds} s."
                );
                events::normal("Evicted", text)
            } else {
                self.mark(transaction, guest)?;
                let text = format!("The node is drained: {}.", words(guest, step));
                if step == EvictionStep::External {
                    events::normal("EvictionRequested", text)
                } else {
                    events::warning("EvictionBlocked", text)
                }
            };
            self.store.record_events(transaction, (&guest.target, &guest.uid), &[event], now)?;
            Ok(true)
        })?;
        if is_ordered {
            let ObjectRef {
                namespace, name, ..
            } = &guest.target;
            info!(vmi = %format_args!("{namespace}/{name}"), ?step, "drained");
            self.actors.wake(&guest.uid);
        }
        Ok(())
    }

    /// Says in the VMI's status that its node is to be left (KubeVirt's `evacuationNodeName`).
    fn mark(&self, transaction: &mut Transaction<'_>, guest: &Guest) -> Result<(), WriteError> {
        let key = object::key(&guest.target);
        let row = transaction.object(&key)?;
        let Some(row) = row.filter(|row| row.uid == guest.uid) else {
            return Ok(());
        };
        let mut vmi = object::vmi(&row)?;
        vmi.status.get_or_insert_default().evacuation_node_name = self.node.name.clone();
        Ok(transaction.put(&key, object::row(vmi, transaction.next_version()))?)
    }

    /// The eviction step of each guest that is still there.
    pub(super) fn evictions(&self, order: &DrainOrder) -> Result<Vec<Eviction>, ApiError> {
        let guests = self.all_guests()?;
        let evictions = steps(order, &guests).into_iter().map(|(guest, step)| {
            let word = match step {
                EvictionStep::Stop | EvictionStep::Wait => Step::Waiting,
                EvictionStep::Ending => Step::Ending,
                EvictionStep::External => Step::External,
                EvictionStep::Blocked => Step::Blocked,
            };
            Eviction {
                namespace: guest.target.namespace.clone(),
                name: guest.target.name.clone(),
                uid: guest.uid.clone(),
                step: word.into(),
                message: words(guest, step),
                eviction_strategy: guest.strategy().as_str().to_owned(),
                grace_period_seconds: grace_of(order, guest).0 / 1000,
            }
        });
        Ok(evictions.collect())
    }

    /// All VMIs with their records, by namespace and name.
    pub(super) fn all_guests(&self) -> Result<Vec<Guest>, ApiError> {
        let kind = Kind::VirtualMachineInstance;
        let (rows, _) = self.store.ledger().objects(kind.as_str()).map_err(store)?;
        let mut guests = Vec::with_capacity(rows.len());
        for (key, row) in rows {
            let Some(mut record) = self.store.ledger().record(&row.uid).map_err(store)? else {
                continue;
            };
            clock::follow(&mut record, &self.node.facts.boot_id);
            guests.push(Guest {
                target: ObjectRef {
                    kind,
                    namespace: key.namespace,
                    name: key.name,
                },
                vmi: object::vmi(&row)?,
                uid: row.uid,
                record,
            });
        }
        Ok(guests)
    }
}

/// What the drain does with each guest that is still there.
fn steps<'a>(order: &DrainOrder, guests: &'a [Guest]) -> Vec<(&'a Guest, EvictionStep)> {
    let guests_to_drain: Vec<GuestToDrain<'_>> = guests.iter().map(Guest::to_drain).collect();
    let steps = evictions(order, &guests_to_drain).into_iter();
    let pairs = guests.iter().zip(steps);
    pairs
        .filter_map(|(guest, step)| Some((guest, step?)))
        .collect()
}

fn grace_of(order: &DrainOrder, guest: &Guest) -> Millis {
    order.grace.unwrap_or_else(|| guest.own_grace())
}

/// Orders a guest to end; false when it has ended, or ends already.
fn stop(
    transaction: &mut Transaction<'_>,
    vmi: (&str, &BootId),
    grace: Millis,
) -> Result<bool, WriteError> {
    let given = orders::give(transaction, vmi, |record, now| {
        if record.orders.stop.is_some() {
            return None;
        }
        order_stop(record, grace, StopCause::Drain, now).ok()
    });
    Ok(given?.is_some())
}

/// What keeps a guest there, for people.
fn words(guest: &Guest, step: EvictionStep) -> String {
    let name = &guest.target.name;
    match step {
        EvictionStep::Stop | EvictionStep::Wait | EvictionStep::Ending => String::new(),
        EvictionStep::External => {
            String::from("its controller has to see to it (evictionStrategy External)")
        }
        EvictionStep::Blocked => format!(
            "VMI {name} is configured with an eviction strategy but is not live-migratable (evictionStrategy \
             LiveMigrate, and there is no live migration yet): stop it, or drain with --force"
        ),
    }
}

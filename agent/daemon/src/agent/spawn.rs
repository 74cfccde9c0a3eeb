//! Actors begin to follow their VMIs.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use agent_domain::Vmi;
use agent_host::Host;
use agent_plan::GuestDemand;
use agent_sources::{ApiError, Kind, ObjectRef};
use agent_store::StoredObject;
use futures_util::FutureExt;
use tracing::{Instrument, error, info_span};

use super::{Agent, accepted_at};
use crate::actor::Actor;
use crate::error::store;
use crate::object;

/// How long an actor that panicked is left alone.
const AFTER_PANIC: Duration = Duration::from_secs(5);

impl<H: Host> Agent<H> {
    /// Gives every VMI of the ledger its actor: this is where guests are re-adopted.
    pub(crate) fn adopt_all(self: &Arc<Self>) -> Result<usize, ApiError> {
        let (objects, _) = self
            .store
            .ledger()
            .objects(Kind::VirtualMachineInstance.as_str())
            .map_err(store)?;
        let count = objects.len();
        for (_, row) in &objects {
            self.note_reservation(row)?;
        }
        self.node.reservations.warn_of_misplaced();
        for (key, row) in objects {
            let target = ObjectRef {
                kind: Kind::VirtualMachineInstance,
                namespace: key.namespace,
                name: key.name,
            };
            self.spawn(&target, &row.uid, true);
        }
        Ok(count)
    }

    /// Runs before any VMI asks for a reservation: notes who holds one, and since when the others have waited.
    fn note_reservation(&self, row: &StoredObject) -> Result<(), ApiError> {
        let Some(record) = self.store.ledger().record(&row.uid).map_err(store)? else {
            return Ok(());
        };
        let demand = match (&record.allocations.reservation, &record.report.end) {
            (Some(demand), _) => demand.clone(),
            (None, Some(_)) => return Ok(()),
            // What this release cannot read keeps what it has; how much nobody can tell.
            (None, None) => match Vmi::restore(object::vmi(row)?) {
                Ok(admitted) => self.node.reservations.demand_of(&admitted.vmi),
                Err(_) => return Ok(()),
            },
        };
        self.node.reservations.note(GuestDemand {
            uid: row.uid.clone(),
            since: accepted_at(&record),
            demand,
            holds: record.allocations.reservation.is_some() || record.launches.present().is_some(),
        });
        Ok(())
    }

    /// Starts the actor of a VMI.
    pub(super) fn spawn(self: &Arc<Self>, target: &ObjectRef, uid: &str, adopting: bool) {
        let wake = self.actors.enter(uid);
        let span =
            info_span!("vmi", vmi = %format_args!("{}/{}", target.namespace, target.name), uid);
        let (agent, uid) = (Arc::clone(self), uid.to_owned());
        let task = async move {
            let mut adopting = adopting;
            loop {
                let actor =
                    Actor::new(Arc::clone(&agent), uid.clone(), Arc::clone(&wake), adopting);
                // One VMI's trouble is not its neighbours'.
                if AssertUnwindSafe(actor.run()).catch_unwind().await.is_ok() {
                    break;
                }
                error!(
                    "the actor of this VMI panicked; its guest is left alone, the actor starts again"
                );
                adopting = false;
                tokio::time::sleep(AFTER_PANIC).await;
            }
            agent.actors.remove(&uid);
        };
        self.actors.run(task.instrument(span));
    }
}

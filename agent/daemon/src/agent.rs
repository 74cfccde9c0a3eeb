//! What makes the services, and what actors hold.

mod spawn;

use std::sync::Arc;

use agent_domain::NodeCaps;
use agent_host::{FirmwareFinder, Host, KnownPaths, NodeFacts};
use agent_plan::{CapacityRules, Record, Timestamp};
use agent_store::{Ledger, StoreError};

use crate::actors::Actors;
use crate::control_plane::Placements;
use crate::control_plane::known::ControlPlanes;
use crate::guests::Guests;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::node_maintenance::NodeMaintenance;
use crate::node_service::NodeService;
use crate::objects::Objects;
use crate::secrets::Secrets;
use crate::store::Store;
use crate::traces::handle::Traces;

/// The agent: it makes the services, and actors hold it.
pub(crate) struct Agent<H> {
    pub(crate) store: Store,
    pub(crate) node: Arc<Node>,
    pub(crate) actors: Arc<Actors>,
    control_planes: Arc<ControlPlanes>,
    pub(crate) host: Arc<H>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) traces: Arc<Traces>,
    pub(crate) objects: Objects,
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
    ) -> Result<Arc<Self>, StoreError> {
        let metrics = Arc::new(Metrics::new());
        let maintenance = NodeMaintenance::new(ledger.maintenance()?);
        let node = Arc::new(Node::new(caps, facts, rules, known_paths, maintenance));
        let store = Store::new((ledger, secrets), node.name.clone(), Arc::clone(&metrics))?;
        let actors = Arc::<Actors>::default();
        let control_planes = Arc::<ControlPlanes>::default();
        let traces = Arc::<Traces>::default();
        let agent = Arc::new(Self {
            objects: Objects::new(
                store.clone(),
                Arc::clone(&node),
                Arc::clone(&actors),
                Arc::clone(&control_planes),
                Arc::clone(&traces),
            ),
            store,
            node,
            actors,
            control_planes,
            host: Arc::new(host),
            metrics,
            traces,
        });
        // Actors hold the agent, and the ledger is closed when nothing holds it any more.
        let held = Arc::downgrade(&agent);
        agent.actors.start_by(move |target, uid| {
            if let Some(agent) = held.upgrade() {
                agent.spawn(target, uid, false);
            }
        });
        Ok(agent)
    }

    /// The service of guests that run.
    pub(crate) fn guests(&self) -> Guests<H> {
        Guests::new(
            self.store.clone(),
            Arc::clone(&self.node),
            Arc::clone(&self.actors),
            Arc::clone(&self.host),
        )
    }

    /// The service of the node, of which there is to be one: it keeps the last figures of guests for all who ask.
    pub(crate) fn node_service(&self) -> NodeService<H> {
        NodeService::new(
            (self.store.clone(), self.objects.clone()),
            Arc::clone(&self.node),
            Arc::clone(&self.actors),
            Arc::clone(&self.host),
            Arc::clone(&self.metrics),
        )
    }

    /// The service of placements.
    pub(crate) fn placements(&self) -> Placements {
        Placements::new(
            (self.store.clone(), self.objects.clone()),
            Arc::clone(&self.node),
            Arc::clone(&self.actors),
            Arc::clone(&self.control_planes),
        )
    }

    /// Ends a VMI's reservation, and wakes the VMIs that are next to get theirs.
    pub(crate) fn release_reservation(&self, uid: &str) {
        for next in self.node.reservations.release(uid) {
            self.actors.wake(&next);
        }
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

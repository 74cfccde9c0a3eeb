//! The node: its facts, what is wanted of it, and the images that it keeps.

mod images;
mod maintenance;
mod scrape;
pub(crate) mod usage;

use std::collections::BTreeMap;
use std::sync::Arc;

use agent_host::Host;
use agent_sources::{AnsweredCall, ApiError, NodeView};
use proto_node::node::{GetNodeInfoResponse, GuestUsage, VmmRelease};
use tracing::warn;

use self::usage::figures::LastFigures;
use crate::actors::Actors;
use crate::metrics::Metrics;
use crate::node::Node;
use crate::objects::Objects;
use crate::resources::{Resources, who_has_cpus};
use crate::store::Store;
use crate::{clock, facts};

/// What this release can do, for clients that depend on it.
const FEATURES: [&str; 19] = [
    "Console",
    "DedicatedCpus",
    "EmptyDisk",
    "FirmwareBoot",
    "HostDisk",
    "IdempotencyKey",
    "KernelBoot",
    "Logs",
    "Maintenance",
    "NodeResources",
    "Objects",
    "Pause",
    "PortForward",
    "Reset",
    "SoftReboot",
    "StartPaused",
    "Stop",
    "Usage",
    "WatchResume",
];

/// The service of the node. Cheap to clone.
pub(crate) struct NodeService<H> {
    store: Store,
    node: Arc<Node>,
    actors: Arc<Actors>,
    host: Arc<H>,
    metrics: Arc<Metrics>,
    objects: Objects,
    last_figures: Arc<LastFigures>,
}

impl<H> Clone for NodeService<H> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            node: Arc::clone(&self.node),
            actors: Arc::clone(&self.actors),
            host: Arc::clone(&self.host),
            metrics: Arc::clone(&self.metrics),
            objects: self.objects.clone(),
            last_figures: Arc::clone(&self.last_figures),
        }
    }
}

impl<H: Host> NodeService<H> {
    pub(crate) fn new(
        (store, objects): (Store, Objects),
        node: Arc<Node>,
        actors: Arc<Actors>,
        host: Arc<H>,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            store,
            node,
            actors,
            host,
            metrics,
            objects,
            last_figures: Arc::default(),
        }
    }

    /// Has the Node object say what this node is now. Nobody's guest depends on it, so a failure is logged and the agent
    /// goes on.
    pub(crate) fn publish(&self) {
        if let Err(error) = self.objects.publish_node(|| self.node_info()) {
            warn!(%error, "the Node object stays as it was");
        }
    }
}

impl<H: Host> NodeView for NodeService<H> {
    async fn usage(&self) -> Result<Vec<GuestUsage>, ApiError> {
        self.usage_of_all().await
    }

    fn is_unschedulable(&self) -> bool {
        self.node.maintenance.closed(&self.node.name).is_some()
    }

    fn count_call(&self, call: &AnsweredCall) {
        self.metrics.count_call(call);
    }

    fn node_info(&self) -> Result<GetNodeInfoResponse, ApiError> {
        let caps = self.node.configured_caps();
        let figures = self.node.reservations.figures();
        let resources = Resources::of(&figures);
        Ok(GetNodeInfoResponse {
            capacity: Some(resources.capacity),
            allocatable: Some(resources.allocatable),
            used: Some(resources.used),
            vmis: figures.used.vmis,
            dedicated_cpus: who_has_cpus(&self.store, &figures)?,
            node_name: caps.node_name.clone(),
            agent_version: env!("CARGO_PKG_VERSION").to_owned(),
            architecture: facts::ARCHITECTURE.to_owned(),
            features: FEATURES.map(str::to_owned).to_vec(),
            vmm_releases: counted(self.host.releases()),
            max_vcpus: caps.max_vcpus,
            memory_bytes: caps.memory_bytes,
            networks: caps.networks.keys().cloned().collect(),
            boot_id: self.node.facts.boot_id.0.clone(),
            started_at: clock::rfc3339(self.node.started_at),
            unschedulable: self.is_unschedulable(),
        })
    }
}

/// How many guests each release of the VMM runs.
fn counted(releases: Vec<String>) -> Vec<VmmRelease> {
    let mut guests = BTreeMap::<String, u32>::new();
    for release in releases {
        *guests.entry(release).or_default() += 1;
    }
    let release = |(version, guests)| VmmRelease { version, guests };
    guests.into_iter().map(release).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guests_are_counted_by_the_release_that_runs_them() {
        let releases = ["0.2.0", "0.1.0", "0.2.0"].map(str::to_owned).to_vec();
        let counts: Vec<(String, u32)> = counted(releases)
            .into_iter()
            .map(|release| (release.version, release.guests))
            .collect();
        assert_eq!(counts, [("0.1.0".to_owned(), 1), ("0.2.0".to_owned(), 2)]);
    }
}

//! The node, as sources see it.

use std::collections::BTreeMap;

use agent_host::Host;
use agent_sources::{AnsweredCall, ApiError, NodeView};
use proto_node::node::{GetNodeInfoResponse, GuestUsage, VmmRelease};

use crate::agent::Agent;
use crate::resources::Resources;
use crate::{clock, facts, usage};

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

impl<H: Host> NodeView for Agent<H> {
    async fn usage(&self) -> Result<Vec<GuestUsage>, ApiError> {
        let figures = self.figures().await?;
        Ok(figures.guests.iter().filter_map(usage::wire).collect())
    }

    fn is_unschedulable(&self) -> bool {
        self.node.keeper.closed(&self.node.name).is_some()
    }

    fn count_call(&self, call: &AnsweredCall) {
        self.metrics.count_call(call);
    }

    fn node_info(&self) -> Result<GetNodeInfoResponse, ApiError> {
        self.node_facts()
    }
}

impl<H: Host> Agent<H> {
    /// Has the Node object say what this node is now.
    pub(crate) fn publish_node(&self) {
        self.objects.publish_node(|| self.node_facts());
    }

    /// What is known of the node without asking anybody.
    pub(crate) fn node_facts(&self) -> Result<GetNodeInfoResponse, ApiError> {
        let caps = self.node.configured_caps();
        let figures = self.node.reservations.figures();
        let resources = Resources::of(&figures);
        Ok(GetNodeInfoResponse {
            capacity: Some(resources.capacity),
            allocatable: Some(resources.allocatable),
            used: Some(resources.used),
            vmis: figures.used.vmis,
            dedicated_cpus: self.who_has_cpus(&figures)?,
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
        let told: Vec<(String, u32)> = counted(releases)
            .into_iter()
            .map(|release| (release.version, release.guests))
            .collect();
        assert_eq!(told, [("0.1.0".to_owned(), 1), ("0.2.0".to_owned(), 2)]);
    }
}

//! The agent as its sources see it.

use std::collections::BTreeMap;

use agent_host::{ConsoleError, ConsoleRequest, Host};
use agent_sources::{
    AnsweredCall, ApiError, Applied, Apply, Attach, Attached, Change, ChangeKind, Delete, Deleted,
    Forward, Forwarded, GuestVerb, Kind, Listed, Logs, LogsPieces, ObjectRef, Registry, VerbResult,
};
use agent_store::{ObjectKey, StoredObject};
use proto_node::node::{GetNodeInfoResponse, GuestUsage, Object, VmmRelease};
use proto_node::vmi::VirtualMachineInstanceGuestAgentInfo;
use tokio::sync::watch;
use tracing::warn;

use crate::agent::Agent;
use crate::error::store;
use crate::objects::PAGE;
use crate::resources::Resources;
use crate::{clock, events, facts, object, usage};

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

impl<H: Host> Registry for Agent<H> {
    async fn apply(&self, apply: Apply) -> Result<Applied, ApiError> {
        self.apply_vmi(apply)
    }

    async fn delete(&self, delete: Delete) -> Result<Deleted, ApiError> {
        self.delete_object(&delete)
    }

    async fn run_verb(&self, tell: GuestVerb) -> Result<VerbResult, ApiError> {
        self.carry_out_verb(tell).await
    }

    fn get(&self, target: &ObjectRef) -> Result<Object, ApiError> {
        object::object(target.kind, &self.row(target)?)
    }

    fn list(&self, kind: Kind) -> Result<Listed, ApiError> {
        let (rows, version) = self.ledger.objects(kind.as_str()).map_err(store)?;
        listed(kind, &rows, version)
    }

    fn list_after(&self, kind: Kind, after: Option<(&str, &str)>) -> Result<Listed, ApiError> {
        let some = self.ledger.objects_after(kind.as_str(), after, PAGE);
        let (rows, version) = some.map_err(store)?;
        listed(kind, &rows, version)
    }

    fn changes_after(
        &self,
        kind: Kind,
        version: u64,
        limit: usize,
    ) -> Result<(Vec<Change>, u64), ApiError> {
        let some = self.ledger.changes_after(kind.as_str(), version, limit);
        let some = some.map_err(store)?;
        let read = some.changes.into_iter().map(|it| change(kind, it));
        Ok((read.collect::<Result<_, _>>()?, some.until))
    }

    fn versions(&self) -> watch::Receiver<u64> {
        Agent::versions(self)
    }

    async fn attach(&self, attach: Attach) -> Result<Attached, ApiError> {
        let row = self.row(&attach.target)?;
        object::check_uid(&attach.target, &attach.uid, &row)?;
        let record = self
            .ledger
            .record(&row.uid)
            .map_err(store)?
            .ok_or_else(|| object::not_found(&attach.target))?;
        let request = ConsoleRequest {
            force: attach.force,
            replay_from: attach.replay_from,
            client: attach.client,
        };
        let console =
            self.host
                .attach_console(&record, request)
                .await
                .map_err(|error| match error {
                    ConsoleError::NotRunning => ApiError::Forbidden(format!(
                        "{:?} has no console: the guest is not running (phase {})",
                        attach.target.name,
                        record.phase().as_str()
                    )),
                    ConsoleError::Busy { .. } => ApiError::AlreadyExists(error.to_string()),
                    ConsoleError::Vmm(_) => ApiError::Unavailable(error.to_string()),
                })?;
        Ok(Attached {
            uid: row.uid,
            stream: console.stream,
            offset: console.offset,
        })
    }

    async fn logs(&self, logs: Logs) -> Result<LogsPieces, ApiError> {
        self.open_logs(logs).await
    }

    async fn forward(&self, forward: Forward) -> Result<Forwarded, ApiError> {
        self.open_forward(forward).await
    }

    async fn guest_info(
        &self,
        target: &ObjectRef,
        uid: &str,
    ) -> Result<VirtualMachineInstanceGuestAgentInfo, ApiError> {
        self.ask_guest(target, uid).await
    }

    async fn usage(&self) -> Result<Vec<GuestUsage>, ApiError> {
        let figures = self.figures().await?;
        Ok(figures.guests.iter().filter_map(usage::wire).collect())
    }

    fn is_unschedulable(&self) -> bool {
        self.keeper.closed(&self.node_name()).is_some()
    }

    fn count_call(&self, call: &AnsweredCall) {
        self.metrics.count_call(call);
    }

    fn node_info(&self) -> Result<GetNodeInfoResponse, ApiError> {
        self.node_facts()
    }

    async fn warn(&self, target: &ObjectRef, reason: &str, message: &str) {
        let said = [events::warning(reason, message)];
        let written = self.write(|transaction| {
            let uid = transaction
                .object(&object::key(target))?
                .map(|row| row.uid)
                .unwrap_or_default();
            self.record_events(transaction, (target, &uid), &said, clock::now())
        });
        if let Err(error) = written {
            warn!(%error, "an event could not be recorded");
        }
    }
}

impl<H: Host> Agent<H> {
    /// What is known of the node without asking anybody.
    pub(crate) fn node_facts(&self) -> Result<GetNodeInfoResponse, ApiError> {
        let caps = self.caps();
        let figures = self.reservations.figures();
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
            boot_id: self.facts.boot_id.0.clone(),
            started_at: clock::rfc3339(self.started_at),
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
        change: match change.kind {
            agent_store::ChangeKind::Added => ChangeKind::Added,
            agent_store::ChangeKind::Modified => ChangeKind::Modified,
            agent_store::ChangeKind::Deleted => ChangeKind::Deleted,
        },
        kind,
        object: object::object(kind, &change.object)?,
    })
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

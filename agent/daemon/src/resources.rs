//! How much this node has for guests, for everybody who asks: `GetNodeInfo`, Prometheus, a control plane.

use std::collections::BTreeMap;

use agent_plan::CpuSet;
use agent_sources::ApiError;
use proto_node::controlplane;
use proto_node::node::{DedicatedCpus, NodeResources};

use crate::error::store;
use crate::reservations::CapacityFigures;
use crate::store::Store;

/// What a node has, in three views.
#[derive(Debug)]
pub(crate) struct Resources {
    /// All of it.
    pub(crate) capacity: NodeResources,
    /// What of it is for VMIs.
    pub(crate) allocatable: NodeResources,
    /// What VMIs have.
    pub(crate) used: NodeResources,
}

impl Resources {
    pub(crate) fn of(figures: &CapacityFigures) -> Self {
        let CapacityFigures {
            has,
            allocatable,
            used,
            ..
        } = figures;
        let pools = has.hugepages.values().copied().fold(0, u64::saturating_add);
        let dedicated = allocatable.dedicated.to_string();
        Self {
            capacity: NodeResources {
                memory_bytes: has.memory_bytes.saturating_sub(pools),
                cpu_millis: u64::from(has.cpus) * 1000,
                dedicated_cpus: dedicated.clone(),
                hugepages_bytes: by_page_size(&has.hugepages),
            },
            allocatable: NodeResources {
                memory_bytes: allocatable.memory_bytes,
                cpu_millis: allocatable.cpu_millis,
                dedicated_cpus: dedicated,
                hugepages_bytes: by_page_size(&allocatable.hugepages),
            },
            used: NodeResources {
                memory_bytes: used.memory_bytes,
                cpu_millis: used.cpu_millis,
                dedicated_cpus: used.dedicated.to_string(),
                hugepages_bytes: has
                    .hugepages
                    .keys()
                    .chain(used.hugepages.keys())
                    .map(|page| {
                        let taken = used.hugepages.get(page).copied().unwrap_or(0);
                        (page_size(*page), taken)
                    })
                    .collect(),
            },
        }
    }
}

/// Sizes of pages as Kubernetes writes them.
fn by_page_size(pools: &BTreeMap<u64, u64>) -> BTreeMap<String, u64> {
    let named = pools.iter().map(|(page, bytes)| (page_size(*page), *bytes));
    named.collect()
}

fn page_size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 2] = [(1 << 30, "Gi"), (1 << 20, "Mi")];
    let whole = UNITS.iter().find(|(unit, _)| bytes.is_multiple_of(*unit));
    whole.map_or_else(
        || format!("{}Ki", bytes >> 10),
        |(unit, name)| format!("{}{name}", bytes / unit),
    )
}

/// What a control plane places VMIs by.
pub(crate) fn capacity(figures: &CapacityFigures, max_vcpus: u32) -> controlplane::Capacity {
    let allocatable = &figures.allocatable;
    controlplane::Capacity {
        memory_bytes: figures.has.memory_bytes,
        cpus: figures.has.cpus,
        max_vcpus,
        allocatable_memory_bytes: allocatable.memory_bytes,
        allocatable_cpu_millis: allocatable.cpu_millis,
        dedicated_cpus: u32::try_from(allocatable.dedicated.len()).unwrap_or(u32::MAX),
        hugepages_bytes: by_page_size(&allocatable.hugepages),
    }
}

/// Who has CPUs for itself, by namespace and name.
pub(crate) fn who_has_cpus(
    stored: &Store,
    figures: &CapacityFigures,
) -> Result<Vec<DedicatedCpus>, ApiError> {
    let mut all = Vec::new();
    for (uid, cpus) in &figures.dedicated {
        // One that is just being taken away has no name any more.
        let target = stored.target_of(uid).map_err(store)?;
        let (namespace, name) = target
            .map(|target| (target.namespace, target.name))
            .unwrap_or_default();
        all.push(DedicatedCpus {
            namespace,
            name,
            uid: uid.clone(),
            vcpus: cpus.of_vcpus().to_string(),
            emulator: cpus.emulator.into_iter().collect::<CpuSet>().to_string(),
        });
    }
    all.sort_by(|one, other| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_of_pages_are_written_as_kubernetes_does() {
        for (bytes, text) in [(2 << 20, "2Mi"), (1 << 30, "1Gi"), (64 << 10, "64Ki")] {
            assert_eq!(page_size(bytes), text);
        }
    }
}

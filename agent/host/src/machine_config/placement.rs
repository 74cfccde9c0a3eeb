//! Where a guest is on the node: CPUs of its threads, NUMA nodes of its memory.

use std::collections::BTreeMap;

use agent_domain::{HugepageSize, Vmi};
use agent_plan::{CpuGrant, CpuSet};
use proto_vmm::v1;

/// vCPUs with the CPUs of the node that they were granted.
pub(super) fn pinned(cpus: v1::Cpus, grant: Option<&CpuGrant>) -> v1::Cpus {
    let all = cpus.count;
    match grant {
        None => cpus,
        Some(CpuGrant::Shared(shared)) => v1::Cpus {
            vcpu_pins: (0..all).map(|_| host(shared)).collect(),
            emulator_pin: Some(host(shared)),
            ..cpus
        },
        Some(CpuGrant::Dedicated(own)) => v1::Cpus {
            vcpu_pins: own
                .vcpus
                .iter()
                .map(|pinned| v1::HostCpus {
                    cpus: vec![pinned.cpu],
                })
                .collect(),
            emulator_pin: Some(own.emulator.map_or_else(
                || host(&own.of_vcpus()),
                |cpu| v1::HostCpus { cpus: vec![cpu] },
            )),
            ..cpus
        },
    }
}

fn host(cpus: &CpuSet) -> v1::HostCpus {
    v1::HostCpus {
        cpus: cpus.iter().collect(),
    }
}

/// The guest's NUMA nodes, if they are to be those of its CPUs: equal shares of its memory, each on its
/// node; what does not divide is the first one's. A guest of fewer huge pages than nodes has none.
pub(super) fn numa_nodes(vmi: &Vmi, grant: Option<&CpuGrant>) -> Vec<v1::NumaNode> {
    let (Some(options), Some(CpuGrant::Dedicated(own))) = (&vmi.cpu.dedicated, grant) else {
        return Vec::new();
    };
    if !options.numa_passthrough {
        return Vec::new();
    }
    let mut nodes: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
    for (index, pinned) in (0..).zip(&own.vcpus) {
        nodes.entry(pinned.numa_node).or_default().push(index);
    }
    // vCPUs that may come are in the last node: nobody knows where they will run.
    if let Some(mut last) = nodes.last_entry() {
        last.get_mut().extend(vmi.cpus.count()..most_vcpus(vmi));
    }
    let page = vmi.memory.hugepages.map_or(2 << 20, HugepageSize::bytes);
    let count = u64::try_from(nodes.len()).unwrap_or(u64::MAX).max(1);
    let share = vmi.memory_bytes / count / page * page;
    if share == 0 {
        return Vec::new();
    }
    let mut rest = vmi.memory_bytes - share * count;
    let node = |(node, vcpus)| v1::NumaNode {
        size_bytes: share + std::mem::take(&mut rest),
        vcpus,
        distances: Vec::new(),
        host_policy: v1::HostNumaPolicy::Bind.into(),
        host_nodes: vec![node],
    };
    nodes.into_iter().map(node).collect()
}

/// vCPUs that there may ever be.
fn most_vcpus(vmi: &Vmi) -> u32 {
    let per_socket = vmi.cpus.cores.saturating_mul(vmi.cpus.threads);
    vmi.cpu.max_sockets.saturating_mul(per_socket)
}

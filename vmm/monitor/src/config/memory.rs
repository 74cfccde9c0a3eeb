//! `memory` of a machine's configuration.

use std::collections::BTreeSet;
use std::io;

use proto_vmm::v1;
use vmm_machine::{CpuTopology, HostPlacement, HostPolicy, MemoryConfig, NumaNode, Pages};
use vmm_memory::{MAX_HOST_NODES, allowed_host_nodes};

use super::error::{FieldError, unknown};

const MIN_RAM_BYTES: u64 = 2 << 20;
const PAGE_BYTES: u64 = 4096;
/// A node that begins or ends within a large page would make the guest's kernel split it.
const NODE_ALIGN: u64 = 2 << 20;
/// Far more than any host has; SLIT grows with the square.
const MAX_NODES: usize = 64;
/// Distance to itself (ACPI 6.3, 5.2.17).
const LOCAL: u32 = 10;
/// Largest distance that is not "cannot be reached".
const FARTHEST: u32 = 254;

/// Checks sizes and pages.
pub(super) fn memory(wire: Option<&v1::Memory>) -> Result<MemoryConfig, FieldError> {
    let wire = wire.cloned().unwrap_or_default();
    let bytes = wire.size_bytes;
    if bytes < MIN_RAM_BYTES || !bytes.is_multiple_of(PAGE_BYTES) {
        let rule =
            format!("is {bytes}; it must be a multiple of {PAGE_BYTES} from {MIN_RAM_BYTES} up");
        return Err(FieldError::new("memory.size_bytes", rule));
    }
    let max_bytes = match wire.max_size_bytes {
        0 => bytes,
        max => max,
    };
    let pages = pages(&wire)?;
    if max_bytes < bytes || !max_bytes.is_multiple_of(PAGE_BYTES) {
        let rule = format!(
            "is {max_bytes}; it must be a multiple of {PAGE_BYTES} from the {bytes} of memory.size_bytes up"
        );
        return Err(FieldError::new("memory.max_size_bytes", rule));
    }
    for (field, value) in [("size_bytes", bytes), ("max_size_bytes", max_bytes)] {
        if !value.is_multiple_of(pages.bytes()) {
            let rule = format!(
                "is {value}, which is no multiple of the {} of memory.hugepage_bytes",
                pages.bytes()
            );
            return Err(FieldError::new(format!("memory.{field}"), rule));
        }
    }
    Ok(MemoryConfig {
        bytes,
        max_bytes,
        pages,
        prefault: wire.prefault,
    })
}

fn pages(wire: &v1::Memory) -> Result<Pages, FieldError> {
    if wire.hugepage_bytes == 0 {
        return Ok(if wire.transparent_hugepages {
            Pages::Transparent
        } else {
            Pages::Ordinary
        });
    }
    if wire.transparent_hugepages {
        let rule = "is set, but memory.hugepage_bytes asks for pages of a pool";
        return Err(FieldError::new("memory.transparent_hugepages", rule));
    }
    Pages::from_pool_of(wire.hugepage_bytes).ok_or_else(|| {
        let rule = format!(
            "is {}; allowed are 0, {} and {}",
            wire.hugepage_bytes,
            Pages::Huge2Mib.bytes(),
            Pages::Huge1Gib.bytes()
        );
        FieldError::new("memory.hugepage_bytes", rule)
    })
}

/// Checks NUMA nodes.
pub(super) fn nodes(
    wire: Option<&v1::Memory>,
    memory: &MemoryConfig,
    topology: CpuTopology,
) -> Result<Vec<NumaNode>, FieldError> {
    let wire = wire.map_or(&[][..], |memory| memory.numa_nodes.as_slice());
    if wire.is_empty() {
        return Ok(Vec::new());
    }
    if wire.len() > MAX_NODES {
        let rule = format!("has {} entries, more than {MAX_NODES}", wire.len());
        return Err(FieldError::new("memory.numa_nodes", rule));
    }
    check_sizes(wire, memory)?;
    check_vcpus(wire, topology)?;
    let mut allowed = None;
    wire.iter()
        .enumerate()
        .map(|(index, node)| {
            let path = format!("memory.numa_nodes[{index}]");
            Ok(NumaNode {
                vcpus: node.vcpus.clone(),
                memory_bytes: node.size_bytes,
                distances: distances(&path, index, &node.distances, wire.len())?,
                host: host(&path, node, &mut allowed)?,
            })
        })
        .collect()
}

fn check_sizes(wire: &[v1::NumaNode], memory: &MemoryConfig) -> Result<(), FieldError> {
    let unit = NODE_ALIGN.max(memory.pages.bytes());
    for (index, node) in wire.iter().enumerate() {
        if node.size_bytes == 0 || !node.size_bytes.is_multiple_of(unit) {
            let field = format!("memory.numa_nodes[{index}].size_bytes");
            let rule = format!(
                "is {}; it must be a positive multiple of {unit}",
                node.size_bytes
            );
            return Err(FieldError::new(field, rule));
        }
    }
    let total = wire
        .iter()
        .try_fold(0u64, |total, node| total.checked_add(node.size_bytes));
    if total != Some(memory.bytes) {
        let rule = format!(
            "have sizes that do not make the {} of memory.size_bytes",
            memory.bytes
        );
        return Err(FieldError::new("memory.numa_nodes", rule));
    }
    Ok(())
}

/// Each vCPU that there may ever be is in one node.
fn check_vcpus(wire: &[v1::NumaNode], topology: CpuTopology) -> Result<(), FieldError> {
    let mut seen = BTreeSet::new();
    for (index, node) in wire.iter().enumerate() {
        for vcpu in &node.vcpus {
            if *vcpu >= topology.max_count() || !seen.insert(*vcpu) {
                let field = format!("memory.numa_nodes[{index}].vcpus");
                let rule = format!(
                    "has {vcpu}; each of the vCPUs 0 to {} is in one node",
                    topology.max_count() - 1
                );
                return Err(FieldError::new(field, rule));
            }
        }
    }
    if let Some(missing) = (0..topology.max_count()).find(|vcpu| !seen.contains(vcpu)) {
        let rule = format!("leave out vCPU {missing}");
        return Err(FieldError::new("memory.numa_nodes", rule));
    }
    Ok(())
}

fn distances(path: &str, own: usize, wire: &[u32], nodes: usize) -> Result<Vec<u8>, FieldError> {
    let wrong = |rule: String| FieldError::new(format!("{path}.distances"), rule);
    if !wire.is_empty() && wire.len() != nodes {
        let rule = format!("has {} entries; it must have {nodes} or none", wire.len());
        return Err(wrong(rule));
    }
    let distance = |(index, distance): (usize, &u32)| {
        let fits = if index == own {
            *distance == LOCAL
        } else {
            (LOCAL + 1..=FARTHEST).contains(distance)
        };
        u8::try_from(*distance)
            .ok()
            .filter(|_| fits)
            .ok_or_else(|| {
                wrong(format!(
                    "has {distance} to node {index}; it must be {LOCAL} to itself, {} to {FARTHEST} to another",
                    LOCAL + 1
                ))
            })
    };
    wire.iter().enumerate().map(distance).collect()
}

/// What this process may use of the host's nodes, once somebody wanted to know.
type AllowedNodes = Option<Result<BTreeSet<u32>, io::ErrorKind>>;

fn host(
    path: &str,
    wire: &v1::NumaNode,
    allowed: &mut AllowedNodes,
) -> Result<Option<HostPlacement>, FieldError> {
    use v1::HostNumaPolicy as Wire;
    let field = format!("{path}.host_nodes");
    let wrong = |rule: String| Err(FieldError::new(field.as_str(), rule));
    let nodes: BTreeSet<u32> = wire.host_nodes.iter().copied().collect();
    let policy = match Wire::try_from(wire.host_policy) {
        Ok(Wire::Unspecified) if nodes.is_empty() => return Ok(None),
        Ok(Wire::Unspecified) => return wrong(format!("is set, but {path}.host_policy is not")),
        Ok(Wire::Bind) => HostPolicy::Bind,
        Ok(Wire::Interleave) => HostPolicy::Interleave,
        Ok(Wire::Preferred) if nodes.len() == 1 => HostPolicy::Preferred,
        Ok(Wire::Preferred) => {
            return wrong(format!("has {} nodes; one is preferred", nodes.len()));
        }
        Err(_) => return Err(unknown(&format!("{path}.host_policy"), wire.host_policy)),
    };
    if nodes.is_empty() {
        return wrong(format!("is empty, but {path}.host_policy is set"));
    }
    if let Some(beyond) = nodes.last().filter(|last| **last >= MAX_HOST_NODES) {
        return wrong(format!(
            "has {beyond}; the largest is {}",
            MAX_HOST_NODES - 1
        ));
    }
    let allowed = allowed.get_or_insert_with(|| allowed_host_nodes().map_err(|error| error.kind()));
    match allowed {
        Err(kind) => wrong(format!(
            "cannot be had: the host's nodes are not known ({kind})"
        )),
        Ok(allowed) => match nodes.difference(allowed).next() {
            Some(node) => wrong(format!(
                "has {node}, which the host does not have or this process may not use"
            )),
            None => Ok(Some(HostPlacement { policy, nodes })),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIB: u64 = 1 << 30;

    fn wire() -> v1::Memory {
        v1::Memory {
            size_bytes: 4 * GIB,
            numa_nodes: vec![
                v1::NumaNode {
                    size_bytes: GIB,
                    vcpus: vec![0, 2],
                    distances: vec![10, 31],
                    ..v1::NumaNode::default()
                },
                v1::NumaNode {
                    size_bytes: 3 * GIB,
                    vcpus: vec![1, 3],
                    ..v1::NumaNode::default()
                },
            ],
            ..v1::Memory::default()
        }
    }

    fn check(wire: &v1::Memory) -> Result<(MemoryConfig, Vec<NumaNode>), FieldError> {
        let topology = CpuTopology::new(2, 2, 1)
            .unwrap()
            .with_boot_sockets(1)
            .unwrap();
        let memory = memory(Some(wire))?;
        let nodes = nodes(Some(wire), &memory, topology)?;
        Ok((memory, nodes))
    }

    fn field_of(change: impl FnOnce(&mut v1::Memory)) -> String {
        let mut wire = wire();
        change(&mut wire);
        check(&wire)
            .err()
            .map_or(String::new(), |error| error.field)
    }

    #[test]
    fn what_is_left_out_is_ordinary() {
        let size_bytes = 64 << 20;
        let wire = v1::Memory {
            size_bytes,
            ..v1::Memory::default()
        };
        assert_eq!(memory(Some(&wire)), Ok(MemoryConfig::new(size_bytes)));
        assert_eq!(memory(None).unwrap_err().field, "memory.size_bytes");
    }

    #[test]
    fn nodes_are_taken_over_as_they_are() {
        let (_, nodes) = check(&wire()).unwrap();
        let sizes: Vec<u64> = nodes.iter().map(|node| node.memory_bytes).collect();
        assert_eq!(sizes, [GIB, 3 * GIB]);
        assert_eq!(nodes[0].vcpus, [0, 2]);
        assert_eq!(nodes[0].distances, [10, 31]);
        assert_eq!(nodes[1].host, None);
    }

    #[test]
    fn sizes_are_whole_pages_of_the_kind_that_is_asked_for() {
        let change = |memory: &mut v1::Memory| memory.hugepage_bytes = GIB;
        assert_eq!(field_of(change), "");
        assert_eq!(
            field_of(|memory| memory.hugepage_bytes = 4096),
            "memory.hugepage_bytes"
        );
        let small = |memory: &mut v1::Memory| {
            memory.hugepage_bytes = GIB;
            memory.size_bytes = GIB + (2 << 20);
        };
        assert_eq!(field_of(small), "memory.size_bytes");
        let max = |memory: &mut v1::Memory| {
            memory.hugepage_bytes = 2 << 20;
            memory.max_size_bytes = 4 * GIB + 4096;
        };
        assert_eq!(field_of(max), "memory.max_size_bytes");
        assert_eq!(
            field_of(|memory| memory.max_size_bytes = 1),
            "memory.max_size_bytes"
        );
        assert_eq!(field_of(|memory| memory.max_size_bytes = 5 * GIB), "");
        let both = |memory: &mut v1::Memory| {
            memory.hugepage_bytes = 2 << 20;
            memory.transparent_hugepages = true;
        };
        assert_eq!(field_of(both), "memory.transparent_hugepages");
    }

    #[test]
    fn every_wrong_field_of_a_node_is_named() {
        let node = |change: fn(&mut v1::NumaNode)| {
            field_of(move |memory| change(&mut memory.numa_nodes[1]))
                .replace("memory.numa_nodes", "N")
        };
        assert_eq!(node(|node| node.size_bytes = 4096), "N[1].size_bytes");
        assert_eq!(node(|node| node.size_bytes = GIB), "N");
        assert_eq!(node(|node| node.vcpus = vec![1, 2]), "N[1].vcpus");
        assert_eq!(node(|node| node.vcpus = vec![1, 4]), "N[1].vcpus");
        assert_eq!(node(|node| node.vcpus = vec![1]), "N");
        assert_eq!(node(|node| node.distances = vec![10]), "N[1].distances");
        assert_eq!(node(|node| node.distances = vec![10, 10]), "N[1].distances");
        assert_eq!(node(|node| node.distances = vec![20, 20]), "N[1].distances");
        assert_eq!(
            node(|node| node.distances = vec![255, 10]),
            "N[1].distances"
        );
        assert_eq!(node(|node| node.host_nodes = vec![0]), "N[1].host_nodes");
        assert_eq!(node(|node| node.host_policy = 1), "N[1].host_nodes");
        assert_eq!(node(|node| node.host_policy = 9), "N[1].host_policy");
        let preferred = |node: &mut v1::NumaNode| {
            node.host_policy = v1::HostNumaPolicy::Preferred.into();
            node.host_nodes = vec![0, 1];
        };
        assert_eq!(node(preferred), "N[1].host_nodes");
        for host_node in [MAX_HOST_NODES - 1, MAX_HOST_NODES] {
            let absent = field_of(move |memory| {
                memory.numa_nodes[0].host_policy = v1::HostNumaPolicy::Bind.into();
                memory.numa_nodes[0].host_nodes = vec![host_node];
            });
            assert_eq!(absent, "memory.numa_nodes[0].host_nodes");
        }
    }
}

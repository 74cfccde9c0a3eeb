//! NUMA: which processors and memory belong together (ACPI 6.3, 5.2.16 and 5.2.17).

use vmm_kvm::CpuTopology;
use vmm_memory::{Layout, Window};

use super::tables::{finish, table};
use crate::numa::{NumaNode, distance, ranges};

const ENABLED: u32 = 1;
/// Identifiers from here on do not fit into the entries of xAPIC processors.
const FIRST_X2APIC_ID: u32 = 255;

/// System locality information: distances, row by row.
pub(super) fn slit(nodes: &[NumaNode]) -> Vec<u8> {
    let mut table = table(*b"SLIT", 0, 1);
    table.append_slice(&(nodes.len() as u64).to_le_bytes());
    for from in 0..nodes.len() {
        let row: Vec<u8> = (0..nodes.len())
            .map(|to| distance(nodes, from, to))
            .collect();
        table.append_slice(&row);
    }
    finish(table)
}

/// System resource affinity: what of RAM and which processors are whose.
pub(super) fn srat(nodes: &[NumaNode], topology: CpuTopology, layout: &Layout) -> Vec<u8> {
    // One reserved word that must be 1, and eight reserved bytes.
    let mut table = table(*b"SRAT", 12, 3);
    table.write_u32(36, 1);
    for (domain, node) in (0u32..).zip(nodes) {
        for vcpu in &node.vcpus {
            table.append_slice(&processor(domain, topology.apic_id(*vcpu)));
        }
    }
    for (domain, range) in ranges(nodes, layout) {
        table.append_slice(&memory(domain, range));
    }
    finish(table)
}

fn processor(domain: u32, apic_id: u32) -> Vec<u8> {
    let [d0, d1, d2, d3] = domain.to_le_bytes();
    let [id, ..] = apic_id.to_le_bytes();
    let mut entry = Vec::with_capacity(24);
    if apic_id < FIRST_X2APIC_ID {
        entry.extend([0, 16, d0, id]);
        entry.extend(ENABLED.to_le_bytes());
        entry.extend([0, d1, d2, d3, 0, 0, 0, 0]);
    } else {
        entry.extend([2, 24, 0, 0, d0, d1, d2, d3]);
        entry.extend(apic_id.to_le_bytes());
        entry.extend(ENABLED.to_le_bytes());
        entry.extend([0; 8]);
    }
    entry
}

fn memory(domain: u32, range: Window) -> Vec<u8> {
    let mut entry = vec![1, 40];
    entry.extend(domain.to_le_bytes());
    entry.extend([0; 2]);
    entry.extend(range.base.to_le_bytes());
    entry.extend(range.bytes.to_le_bytes());
    entry.extend([0; 4]);
    entry.extend(ENABLED.to_le_bytes());
    entry.extend([0; 8]);
    entry
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_and_memory_have_their_node() {
        let node = |vcpus: Vec<u32>, memory_bytes| NumaNode {
            vcpus,
            memory_bytes,
            ..NumaNode::default()
        };
        let nodes = [node(vec![0, 1], 1 << 30), node(vec![2, 255], 1 << 30)];
        let layout = Layout::new(2 << 30, 40).unwrap();
        let srat = srat(&nodes, CpuTopology::new(256, 1, 1).unwrap(), &layout);
        let mut entries = srat.split_at(48).1;
        let mut found = Vec::new();
        while let [kind, length, ..] = *entries {
            let (entry, rest) = entries.split_at(usize::from(length));
            let id = match kind {
                0 => (entry[2], u64::from(entry[3])),
                1 => (entry[2], u64::from(entry[11])),
                _ => (entry[4], u64::from(entry[8])),
            };
            found.push((kind, id));
            entries = rest;
        }
        let processors = [(0, (0, 0)), (0, (0, 1)), (0, (1, 2)), (2, (1, 255))];
        assert_eq!(found[..4], processors);
        // The base's highest byte of four: 0 and 1 GiB.
        assert_eq!(found[4..], [(1, (0, 0)), (1, (1, 0x40))]);
    }

    #[test]
    fn distances_are_listed_row_by_row() {
        let mut nodes = [NumaNode::default(), NumaNode::default()];
        assert_eq!(slit(&nodes)[36..], [2, 0, 0, 0, 0, 0, 0, 0, 10, 20, 20, 10]);
        nodes[1].distances = vec![31, 10];
        assert_eq!(slit(&nodes)[44..], [10, 20, 31, 10]);
    }
}

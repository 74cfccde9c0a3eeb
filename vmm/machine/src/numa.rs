//! NUMA nodes of the guest: which vCPUs and what of RAM belong together.

use vmm_memory::{HostPlacement, Layout, Window};

const DISTANCE_LOCAL: u8 = 10;
const DISTANCE_REMOTE: u8 = 20;

/// A NUMA node of the guest.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NumaNode {
    /// vCPUs, by index, those that are not there yet included.
    pub vcpus: Vec<u32>,
    /// Its share of RAM at power-on, in bytes.
    pub memory_bytes: u64,
    /// To each node, 10 being its own (ACPI 6.3, 5.2.17). Empty: 10 to itself, 20 to all others.
    pub distances: Vec<u8>,
    /// Where its RAM lies on the host. `None`: where the host likes.
    pub host: Option<HostPlacement>,
}

/// The distance between two nodes, as configured or the usual one.
pub(crate) fn distance(nodes: &[NumaNode], from: usize, to: usize) -> u8 {
    let configured = nodes.get(from).and_then(|node| node.distances.get(to));
    let usual = if from == to {
        DISTANCE_LOCAL
    } else {
        DISTANCE_REMOTE
    };
    configured.copied().unwrap_or(usual)
}

/// The ranges of RAM of each node, by its number: RAM is given to them in their order, from address
/// 0 up.
pub(crate) fn ranges(nodes: &[NumaNode], layout: &Layout) -> Vec<(u32, Window)> {
    let dealt = layout.deal(nodes.iter().map(|node| node.memory_bytes));
    let number = |(share, range)| Some((u32::try_from(share).ok()?, range));
    dealt.into_iter().filter_map(number).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_share_ram_across_the_hole_below_4_gib() {
        let layout = Layout::new(4 << 30, 40).unwrap();
        let node = |memory_bytes| NumaNode {
            memory_bytes,
            ..NumaNode::default()
        };
        let window = |base, bytes| Window { base, bytes };
        assert_eq!(
            ranges(&[node(1 << 30), node(3 << 30)], &layout),
            [
                (0, window(0, 1 << 30)),
                (1, window(1 << 30, 1 << 30)),
                (1, window(4 << 30, 2 << 30)),
            ]
        );
    }
}

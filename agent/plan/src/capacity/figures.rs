//! What a node has for guests, who wants it, and how much of it is taken.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::cpus::{CpuLayout, CpuSet};
use crate::reservation::ResourceDemand;
use crate::time::Timestamp;

/// What a node has for VMIs, with what is reserved taken off and overcommitment put on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The node, for messages.
    pub node_name: String,
    /// Ordinary memory.
    pub memory_bytes: u64,
    /// CPU in thousandths, of the CPUs that are shared.
    pub cpu_millis: u64,
    /// Bytes of huge pages by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
    /// All CPUs of the node.
    pub layout: CpuLayout,
    /// Those of them that guests may have for themselves.
    pub dedicated: CpuSet,
}

/// What a node has, as the kernel reports it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeInventory {
    /// All memory, that of huge pages included.
    pub memory_bytes: u64,
    /// CPUs, as far as there is time for all of them.
    pub cpus: u32,
    /// All CPUs.
    pub layout: CpuLayout,
    /// Bytes of huge pages, used or not, by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
}

/// What the operator makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityRules {
    /// Memory that VMIs do not get.
    pub reserved_memory_bytes: u64,
    /// CPU that VMIs do not get, in thousandths.
    pub reserved_cpu_millis: u64,
    /// How much of the ordinary memory that is left VMIs may take; 100 is all of it.
    pub memory_overcommit_percent: u32,
    /// vCPUs to a CPU, where none is requested.
    pub cpu_allocation_ratio: u32,
    /// CPUs that guests may have for themselves. Those that share get the others.
    pub dedicated_cpus: CpuSet,
}

impl Capacity {
    /// What `rules` make of what the node has. Huge pages are never overcommitted: the kernel would kill
    /// a guest that touches one too many.
    #[must_use]
    pub fn of(node_name: String, has: NodeInventory, rules: &CapacityRules) -> Self {
        let pools = has.hugepages.values().copied().fold(0, u64::saturating_add);
        let ordinary = has.memory_bytes.saturating_sub(pools);
        let left = u128::from(ordinary.saturating_sub(rules.reserved_memory_bytes));
        let memory = left * u128::from(rules.memory_overcommit_percent) / 100;
        let dedicated = rules.dedicated_cpus.and(&has.layout.all());
        let cpu = (u64::from(has.cpus) * 1000).saturating_sub(millis_of(&dedicated));
        Self {
            node_name,
            memory_bytes: u64::try_from(memory).unwrap_or(u64::MAX),
            cpu_millis: cpu.saturating_sub(rules.reserved_cpu_millis),
            hugepages: has.hugepages,
            layout: has.layout,
            dedicated,
        }
    }
}

/// A VMI with a reservation, or one that waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestDemand {
    /// Uid of the VMI.
    pub uid: String,
    /// When it was accepted: the oldest comes first.
    pub since: Timestamp,
    /// Memory, CPUs and huge pages that it needs.
    pub demand: ResourceDemand,
    /// It has a reservation.
    pub holds: bool,
}

impl GuestDemand {
    pub(super) fn by_age(&self, other: &Self) -> Ordering {
        (self.since, &self.uid).cmp(&(other.since, &other.uid))
    }
}

/// Sum of all reservations of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// VMIs with a reservation.
    pub vmis: u32,
    /// Ordinary memory, the VMMs' own with it.
    pub memory_bytes: u64,
    /// That of the VMMs alone.
    pub overhead_bytes: u64,
    /// CPU in thousandths, of the CPUs that are shared.
    pub cpu_millis: u64,
    /// CPUs that guests have for themselves.
    pub dedicated: CpuSet,
    /// Bytes of huge pages by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
}

/// CPUs in thousandths.
pub(super) fn millis_of(cpus: &CpuSet) -> u64 {
    u64::try_from(cpus.len()).map_or(u64::MAX, |count| count.saturating_mul(1000))
}

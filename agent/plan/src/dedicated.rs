//! Which CPUs a VMI gets for itself. A function of its arguments alone.
//!
//! As the kubelet's static policy has it: one NUMA node where that is possible, whole cores before parts of
//! cores, and what is left of a core that somebody has before a core that nobody has.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::cpus::{CpuLayout, CpuSet};

/// CPUs that a VMI wants for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuDemand {
    /// One for each vCPU.
    pub vcpus: u32,
    /// One more, for the VMM's other threads.
    pub emulator: bool,
    /// vCPUs that share a core in the guest share one on the node: only cores of which nobody has a part.
    pub whole_cores: bool,
}

impl CpuDemand {
    /// How many CPUs.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.vcpus.saturating_add(u32::from(self.emulator))
    }
}

/// A CPU that a vCPU has for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PinnedCpu {
    /// Its number.
    pub cpu: u32,
    /// Its NUMA node.
    pub numa_node: u32,
}

/// CPUs that a VMI has for itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DedicatedCpus {
    /// In the order of the vCPUs.
    pub vcpus: Vec<PinnedCpu>,
    /// Of the VMM's other threads; `None`: they run where the vCPUs do.
    #[serde(default)]
    pub emulator: Option<u32>,
}

impl DedicatedCpus {
    /// Those of the vCPUs.
    #[must_use]
    pub fn of_vcpus(&self) -> CpuSet {
        self.vcpus.iter().map(|pinned| pinned.cpu).collect()
    }

    /// All of them.
    #[must_use]
    pub fn all(&self) -> CpuSet {
        let vcpus = self.vcpus.iter().map(|pinned| pinned.cpu);
        vcpus.chain(self.emulator).collect()
    }
}

/// A core with the CPUs of it that are free, ascending.
#[derive(Clone, Debug)]
struct FreeCore {
    numa_node: u32,
    is_whole: bool,
    cpus: Vec<u32>,
}

/// CPUs out of `free` for a VMI; `None` when there are too few of the kind that it wants.
#[must_use]
pub fn dedicate(layout: &CpuLayout, free: &CpuSet, demand: &CpuDemand) -> Option<DedicatedCpus> {
    let nodes = free_cores(layout, free);
    let count = |cores: &[FreeCore]| -> usize { cores.iter().map(|core| core.cpus.len()).sum() };
    // The node that is left with the fewest: large holes are kept for large guests.
    let within_one = nodes
        .values()
        .filter_map(|cores| Some((count(cores), pick(cores.clone(), demand)?)))
        .min_by_key(|(free, _)| *free);
    if let Some((_, found)) = within_one {
        return Some(found);
    }
    // The emptiest first: as few nodes as there can be.
    let mut nodes: Vec<Vec<FreeCore>> = nodes.into_values().collect();
    nodes.sort_by_key(|cores| Reverse(count(cores)));
    pick(nodes.concat(), demand)
}

/// How many cores there are in `free` of which nobody has a part.
#[must_use]
pub(crate) fn whole_cores(layout: &CpuLayout, free: &CpuSet) -> usize {
    let nodes = free_cores(layout, free);
    let cores = nodes.values().flatten();
    cores.filter(|core| core.is_whole).count()
}

/// Free cores by NUMA node, each node's by number.
fn free_cores(layout: &CpuLayout, free: &CpuSet) -> BTreeMap<u32, Vec<FreeCore>> {
    let mut cores: BTreeMap<(u32, u32), Vec<u32>> = BTreeMap::new();
    for cpu in free.iter() {
        if let Some(site) = layout.site(cpu) {
            let core = cores.entry((site.numa_node, site.core)).or_default();
            core.push(cpu);
        }
    }
    let mut nodes: BTreeMap<u32, Vec<FreeCore>> = BTreeMap::new();
    for ((numa_node, core), cpus) in cores {
        nodes.entry(numa_node).or_default().push(FreeCore {
            numa_node,
            is_whole: cpus.len() == layout.core_size(core),
            cpus,
        });
    }
    nodes
}

/// Takes what is wanted out of these cores, the first ones first.
fn pick(mut cores: Vec<FreeCore>, demand: &CpuDemand) -> Option<DedicatedCpus> {
    let wanted = usize::try_from(demand.vcpus).ok()?;
    let mut vcpus = Vec::new();
    for core in cores.iter_mut().filter(|core| core.is_whole) {
        let left = wanted - vcpus.len();
        // A part of a core that nobody has comes last, below.
        if left == 0 || (core.cpus.len() > left && !demand.whole_cores) {
            continue;
        }
        take(core, left, &mut vcpus);
    }
    if vcpus.len() < wanted && demand.whole_cores {
        return None;
    }
    // The one with the fewest first: what somebody has a part of.
    cores.sort_by_key(|core| (core.is_whole, core.cpus.len()));
    for core in &mut cores {
        let left = wanted - vcpus.len();
        take(core, left, &mut vcpus);
    }
    if vcpus.len() < wanted {
        return None;
    }
    let emulator = if demand.emulator {
        let near = vcpus.first().map(|pinned| pinned.numa_node);
        let left = cores.iter().filter(|core| !core.cpus.is_empty());
        let core = left.min_by_key(|core| {
            (
                Some(core.numa_node) != near,
                core.is_whole,
                core.cpus.len(),
                core.cpus.first().copied(),
            )
        })?;
        Some(*core.cpus.first()?)
    } else {
        None
    };
    Some(DedicatedCpus { vcpus, emulator })
}

/// Moves at most `most` CPUs from a core to a guest. What is left of it is no whole core.
fn take(core: &mut FreeCore, most: usize, vcpus: &mut Vec<PinnedCpu>) {
    let count = most.min(core.cpus.len());
    core.is_whole &= count == 0;
    let numa_node = core.numa_node;
    let taken = core.cpus.drain(..count);
    vcpus.extend(taken.map(|cpu| PinnedCpu { cpu, numa_node }));
}

#[cfg(test)]
mod tests {
    use crate::CpuSite;

    use super::*;

    /// Two NUMA nodes of four cores of two CPUs; siblings are 8 apart, as they often are.
    fn layout() -> CpuLayout {
        let site = |cpu: u32| CpuSite {
            core: cpu % 8,
            numa_node: cpu % 8 / 4,
        };
        (0..16).map(|cpu| (cpu, site(cpu))).collect()
    }

    fn demand(vcpus: u32) -> CpuDemand {
        CpuDemand {
            vcpus,
            emulator: false,
            whole_cores: false,
        }
    }

    fn set(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    fn found(free: &str, demand: CpuDemand) -> Option<(Vec<u32>, Option<u32>)> {
        let found = dedicate(&layout(), &set(free), &demand)?;
        let vcpus = found.vcpus.iter().map(|pinned| pinned.cpu).collect();
        Some((vcpus, found.emulator))
    }

    #[test]
    fn neighbours_in_the_guest_are_siblings_on_the_node() {
        assert_eq!(found("0-15", demand(4)), Some((vec![0, 8, 1, 9], None)));
    }

    #[test]
    fn the_node_that_is_left_with_the_fewest_is_taken() {
        assert_eq!(
            found("0-3,4-5,8-11,12-13", demand(2)),
            Some((vec![4, 12], None))
        );
    }

    #[test]
    fn one_cpu_comes_from_a_core_that_is_broken_already() {
        assert_eq!(found("0-3,8-10", demand(1)), Some((vec![3], None)));
        assert_eq!(found("0-3,8-10", demand(3)), Some((vec![0, 8, 3], None)));
    }

    #[test]
    fn what_no_node_has_alone_comes_from_as_few_as_can_be() {
        let free = "0-1,8-9,4-6,12-14";
        let (vcpus, _) = found(free, demand(8)).unwrap();
        assert_eq!(vcpus, [4, 12, 5, 13, 6, 14, 0, 8]);
        assert_eq!(found(free, demand(11)), None);
    }

    #[test]
    fn a_guest_with_threads_has_whole_cores_or_waits() {
        let whole = |vcpus| CpuDemand {
            whole_cores: true,
            ..demand(vcpus)
        };
        assert_eq!(found("0-3,8", whole(2)), Some((vec![0, 8], None)));
        assert_eq!(found("0-3,8", whole(4)), None);
        // Nobody shares the other half of the last core: it has none.
        assert_eq!(found("0-3", whole(2)), None);
        assert_eq!(whole_cores(&layout(), &set("0-3,8-9")), 2);
    }

    #[test]
    fn the_emulator_has_one_near_by_and_breaks_no_core_for_it_if_it_can() {
        let isolated = CpuDemand {
            emulator: true,
            ..demand(2)
        };
        assert_eq!(found("0-2,8-9", isolated), Some((vec![0, 8], Some(2))));
        assert_eq!(found("0,8,4", isolated), Some((vec![0, 8], Some(4))));
        assert_eq!(found("0,8", isolated), None);
    }

    #[test]
    fn cpus_that_the_node_does_not_have_are_given_to_nobody() {
        assert_eq!(found("15-20", demand(1)), Some((vec![15], None)));
        assert_eq!(found("15-20", demand(2)), None);
    }
}

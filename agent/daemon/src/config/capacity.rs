//! `[capacity]`: how much of the node VMIs may have.

use agent_plan::{CapacityRules, CpuSet};
use serde::Deserialize;

/// `[capacity]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Capacity {
    /// Memory that is left to the node's own programs.
    reserved_memory_bytes: u64,
    /// CPU that is left to them, in thousandths of a CPU.
    reserved_cpu_millis: u64,
    /// How much of the rest VMIs may take; above 100 guests may find none when they all want theirs.
    memory_overcommit_percent: u32,
    /// vCPUs to a CPU, for VMIs that request none. KubeVirt's `cpuAllocationRatio`.
    cpu_allocation_ratio: u32,
    /// CPUs that guests may have for themselves (`dedicatedCpuPlacement`), as Linux lists them: `2-7`.
    /// Other guests run on the other CPUs.
    dedicated_cpus: CpuSet,
}

impl Default for Capacity {
    fn default() -> Self {
        Self {
            reserved_memory_bytes: 128 << 20,
            reserved_cpu_millis: 0,
            memory_overcommit_percent: 100,
            cpu_allocation_ratio: 10,
            dedicated_cpus: CpuSet::default(),
        }
    }
}

impl Capacity {
    /// The setting that is out of range, its value and the rule.
    pub(super) fn fault(&self) -> Option<(&'static str, u32, &'static str)> {
        let percent = self.memory_overcommit_percent;
        if !(10..=10_000).contains(&percent) {
            let setting = "capacity.memory_overcommit_percent";
            return Some((setting, percent, "must be 10 to 10000"));
        }
        let ratio = self.cpu_allocation_ratio;
        let setting = "capacity.cpu_allocation_ratio";
        (!(1..=1000).contains(&ratio)).then_some((setting, ratio, "must be 1 to 1000"))
    }

    /// For the planner of capacity.
    pub(crate) fn rules(&self) -> CapacityRules {
        CapacityRules {
            reserved_memory_bytes: self.reserved_memory_bytes,
            reserved_cpu_millis: self.reserved_cpu_millis,
            memory_overcommit_percent: self.memory_overcommit_percent,
            cpu_allocation_ratio: self.cpu_allocation_ratio,
            dedicated_cpus: self.dedicated_cpus.clone(),
        }
    }

    /// CPUs that are to be set aside and are not among those that the agent may use.
    pub(crate) fn missing_cpus(&self, usable: &CpuSet) -> CpuSet {
        self.dedicated_cpus.without(usable)
    }
}

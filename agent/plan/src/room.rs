//! What one VMI takes of its node, and whether there is room for it.

use agent_domain::Vmi;
use serde::{Deserialize, Serialize};

use crate::{CpuDemand, CpuSet, DedicatedCpus};

/// The VMM itself, its page tables and its device buffers, with room to spare.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// KVM's page tables and the kernel's bookkeeping: at most 1/128 of the guest's memory.
const OVERHEAD_SHARE: u64 = 128;

/// Memory that a VMI's VMM may take beside its guest's.
#[must_use]
pub fn overhead_bytes(vmi: &Vmi) -> u64 {
    OVERHEAD_BYTES + vmi.memory_bytes / OVERHEAD_SHARE
}

/// What one VMI takes of its node. Recorded when it is granted: what a later configuration would reckon
/// changes nothing for a guest that runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// Ordinary memory, without the VMM's own.
    pub memory_bytes: u64,
    /// Ordinary memory of the VMM.
    pub overhead_bytes: u64,
    /// CPU in thousandths, of those that are shared.
    pub cpu_millis: u64,
    /// Huge pages of one size.
    #[serde(default)]
    pub hugepages: Option<HugepageClaim>,
    /// CPUs for itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dedicated: Option<CpuDemand>,
    /// Where it runs, once it was granted. `None`: anywhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus: Option<CpuGrant>,
}

/// CPUs on which a VMI runs, from its launch to its end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CpuGrant {
    /// Those that are nobody's own, which it shares with others.
    Shared(CpuSet),
    /// Its own.
    Dedicated(DedicatedCpus),
}

/// Huge pages that a VMI takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HugepageClaim {
    /// Size of a page.
    pub page_bytes: u64,
    /// Size of all pages.
    pub bytes: u64,
}

impl Claim {
    /// What an admitted VMI takes: its requests, as KubeVirt fills them in. A vCPU for which no CPU is
    /// requested takes a `cpu_allocation_ratio`th of one.
    #[must_use]
    pub fn of(vmi: &Vmi, cpu_allocation_ratio: u32) -> Self {
        let vcpus = u64::from(vmi.cpus.count()).saturating_mul(1000);
        let hugepages = vmi.memory.hugepages.map(|size| HugepageClaim {
            page_bytes: size.bytes(),
            bytes: vmi.memory_bytes,
        });
        let requested = vmi.resources.memory_request_bytes;
        let shared = || {
            let millis = vmi.resources.cpu_request_millis;
            millis.unwrap_or(vcpus / u64::from(cpu_allocation_ratio.max(1)))
        };
        let dedicated = vmi.cpu.dedicated.as_ref().map(|dedicated| CpuDemand {
            vcpus: vmi.cpus.count(),
            emulator: dedicated.isolate_emulator,
            whole_cores: vmi.cpus.threads > 1,
        });
        Self {
            memory_bytes: if hugepages.is_some() {
                0
            } else {
                requested.unwrap_or(vmi.memory_bytes)
            },
            overhead_bytes: overhead_bytes(vmi),
            cpu_millis: if dedicated.is_some() { 0 } else { shared() },
            hugepages,
            dedicated,
            cpus: None,
        }
    }

    /// CPUs that are its own.
    #[must_use]
    pub fn own_cpus(&self) -> CpuSet {
        match &self.cpus {
            Some(CpuGrant::Dedicated(cpus)) => cpus.all(),
            Some(CpuGrant::Shared(_)) | None => CpuSet::default(),
        }
    }

    /// All ordinary memory.
    #[must_use]
    pub const fn all_memory_bytes(&self) -> u64 {
        self.memory_bytes.saturating_add(self.overhead_bytes)
    }
}

/// Whether a VMI may take what it claims.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Room {
    /// It may.
    Granted(Claim),
    /// Not at present.
    Waits {
        /// What it wants and what the node has, for people.
        why: String,
    },
}

impl Default for Room {
    fn default() -> Self {
        Self::Granted(Claim::default())
    }
}

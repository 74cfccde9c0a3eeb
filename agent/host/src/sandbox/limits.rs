//! What a VMM may take.

use agent_domain::Vmi;
use agent_plan::{CpuGrant, CpuSet, Record, overhead_bytes};

/// Threads: vCPUs and a few for devices.
const TASKS: u64 = 64;

/// Limits of one VMM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Guest memory, or its limit where that is more, with the VMM's own, in bytes.
    pub(crate) memory_bytes: u64,
    /// Processes and threads.
    pub(crate) tasks: u64,
    /// Share of the CPUs, 1 to 10000: 100 for each CPU that is requested, or each vCPU.
    pub(crate) cpu_weight: u64,
    /// Microseconds of CPU time a second, when the spec limits it. No limit for a guest that has CPUs for
    /// itself: they are one.
    pub(crate) cpu_microseconds: Option<u64>,
    /// CPUs that it may use; `None`: any.
    pub(crate) cpus: Option<CpuSet>,
}

impl Limits {
    /// The limits of a VMI with what it was granted.
    pub(crate) fn of(vmi: &Vmi, record: &Record) -> Self {
        let vcpus = u64::from(vmi.cpus.count());
        let resources = &vmi.resources;
        // A limit below what the guest was promised would kill it.
        let guest = vmi
            .memory_bytes
            .max(resources.memory_limit_bytes.unwrap_or(0));
        let cpu_millis = resources.cpu_request_millis.unwrap_or(1000 * vcpus);
        Self {
            memory_bytes: guest.saturating_add(overhead_bytes(vmi)),
            tasks: TASKS + 2 * vcpus,
            cpu_weight: (cpu_millis / 10).clamp(1, 10_000),
            cpu_microseconds: resources
                .cpu_limit_millis
                .filter(|_| vmi.cpu.dedicated.is_none())
                .map(|millis| millis.saturating_mul(1000).max(1000)),
            cpus: granted(record),
        }
    }
}

/// CPUs of all threads, those of the kernel that serve them among them.
fn granted(record: &Record) -> Option<CpuSet> {
    match record.allocations.reservation.as_ref()?.cpus.as_ref()? {
        CpuGrant::Shared(cpus) => Some(cpus.clone()),
        CpuGrant::Dedicated(own) => Some(own.all()),
    }
}

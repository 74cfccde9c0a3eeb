//! What a VMM may take.

use agent_domain::Vmi;

/// The VMM itself, its page tables and its device buffers, with room to spare.
const OVERHEAD_BYTES: u64 = 64 << 20;

/// KVM's page tables and the kernel's bookkeeping: at most 1/128 of the guest's memory.
const OVERHEAD_SHARE: u64 = 128;

/// Threads: vCPUs and a few for devices.
const TASKS: u64 = 64;

/// Memory that a VMI's VMM may take beside its guest's.
#[must_use]
pub fn overhead_bytes(vmi: &Vmi) -> u64 {
    OVERHEAD_BYTES + vmi.memory_bytes / OVERHEAD_SHARE
}

/// Limits of one VMM.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Guest memory with the VMM's own, in bytes.
    pub(crate) memory_bytes: u64,
    /// Processes and threads.
    pub(crate) tasks: u64,
    /// Share of the CPUs, 1 to 10000; 100 for each vCPU.
    pub(crate) cpu_weight: u64,
    /// Microseconds of CPU time a second, when the spec limits it.
    pub(crate) cpu_microseconds: Option<u64>,
}

impl Limits {
    /// The limits of a VMI.
    pub(crate) fn of(vmi: &Vmi) -> Self {
        let needed = vmi.memory_bytes.saturating_add(overhead_bytes(vmi));
        let vcpus = u64::from(vmi.cpus.count());
        Self {
            // A limit below what the guest was promised would kill it.
            memory_bytes: vmi.resources.memory_limit_bytes.unwrap_or(0).max(needed),
            tasks: TASKS + 2 * vcpus,
            cpu_weight: (100 * vcpus).clamp(1, 10_000),
            cpu_microseconds: vmi
                .resources
                .cpu_limit_millis
                .map(|millis| millis.saturating_mul(1000).max(1000)),
        }
    }
}

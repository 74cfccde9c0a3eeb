//! Machine type, resources, memory and vCPUs, which depend on each other.

use proto_node::vmi::VirtualMachineInstanceSpec;

use super::review::Review;
use super::{cpu, machine, memory};
use crate::cpu::CpuOptions;
use crate::vmi::{CpuTopology, MemoryOptions, Resources};

/// What a guest computes with.
#[derive(Debug, PartialEq)]
pub(super) struct Compute {
    pub(super) resources: Resources,
    pub(super) cpus: CpuTopology,
    pub(super) cpu: CpuOptions,
    pub(super) memory_bytes: u64,
    pub(super) memory: MemoryOptions,
}

/// Reads it; nothing where something of it was reported.
pub(super) fn judge(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) -> Option<Compute> {
    let domain = spec.domain.as_ref()?;
    let architecture = spec.architecture.as_str();
    machine::check_type(domain, architecture, review);
    let resources = machine::resources(domain, review);
    let memory_bytes = machine::memory(domain, review);
    let memory = memory::options(domain, memory_bytes, architecture, review);
    let cpus = machine::cpus(domain, review);
    let cpu = cpus.and_then(|cpus| cpu::options(domain, cpus, &resources, review));
    Some(Compute {
        resources,
        cpus: cpus?,
        cpu: cpu?,
        memory_bytes: memory_bytes?,
        memory: memory?,
    })
}

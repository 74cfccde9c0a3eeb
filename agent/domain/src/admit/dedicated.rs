//! CPUs of the node that a guest has for itself, by KubeVirt's rules and in its words.

use proto_node::vmi::{Cpu, DomainSpec};

use super::amount::{LIMIT_CPU, LIMIT_MEMORY, REQUEST_CPU, REQUEST_MEMORY};
use super::review::Review;
use crate::cpu::DedicatedCpus;
use crate::vmi::{CpuTopology, Resources};

const DEDICATED: &str = "spec.domain.cpu.dedicatedCpuPlacement";
const ISOLATE: &str = "spec.domain.cpu.isolateEmulatorThread";
const PASSTHROUGH: &str = "spec.domain.cpu.numa.guestMappingPassthrough";
const CORES: &str = "spec.domain.cpu.cores";
const THREADS: &str = "spec.domain.cpu.threads";
const HUGEPAGES: &str = "spec.domain.memory.hugepages";

/// More threads of one core than this are on no x86 machine.
const MAX_THREADS: u32 = 2;

/// What the guest wants for itself; `None`: it shares CPUs with others.
pub(super) fn dedicated(
    domain: &DomainSpec,
    topology: CpuTopology,
    resources: &Resources,
    review: &mut Review<'_>,
) -> Option<DedicatedCpus> {
    let cpu = domain.cpu.clone().unwrap_or_default();
    let wants_numa = cpu
        .numa
        .as_ref()
        .is_some_and(|numa| numa.guest_mapping_passthrough.is_some());
    if wants_numa {
        passthrough(domain, &cpu, review);
    }
    if !cpu.dedicated_cpu_placement {
        if cpu.isolate_emulator_thread {
            let message = "IsolateEmulatorThread should be only set in combination with DedicatedCPUPlacement";
            review.invalid(ISOLATE, "true", message);
        }
        return None;
    }
    whole_cpus(resources, review);
    let given = (resources.memory_request_bytes, resources.memory_limit_bytes);
    if let (Some(request), Some(limit)) = given
        && request != limit
    {
        let message = format!("{REQUEST_MEMORY} must be equal to {LIMIT_MEMORY}");
        review.invalid(REQUEST_MEMORY, &request.to_string(), message);
    }
    counts(topology, resources, review);
    Some(DedicatedCpus {
        isolate_emulator: cpu.isolate_emulator_thread,
        numa_passthrough: wants_numa,
    })
}

/// Half a CPU is nobody's own.
fn whole_cpus(resources: &Resources, review: &mut Review<'_>) {
    for (path, what, millis) in [
        (REQUEST_CPU, "requests", resources.cpu_request_millis),
        (LIMIT_CPU, "limits", resources.cpu_limit_millis),
    ] {
        if let Some(millis) = millis.filter(|millis| !millis.is_multiple_of(1000)) {
            let message = format!("provided resources CPU {what} must be an interger");
            review.invalid(path, &format!("{millis}m"), message);
        }
    }
}

/// As many CPUs as there are vCPUs, wherever their number is given.
fn counts(topology: CpuTopology, resources: &Resources, review: &mut Review<'_>) {
    let whole = |millis: Option<u64>| {
        millis
            .filter(|millis| *millis > 0)
            .map(|millis| millis.div_ceil(1000))
    };
    let request = whole(resources.cpu_request_millis);
    let limit = whole(resources.cpu_limit_millis);
    if let (Some(request), Some(limit)) = (request, limit)
        && request != limit
    {
        let message = format!(
            "{REQUEST_CPU} or {LIMIT_CPU} must be equal when DedicatedCPUPlacement is true "
        );
        review.invalid(DEDICATED, "true", message);
    }
    let vcpus = Some(u64::from(topology.count()));
    if request.or(limit).is_some() && request != vcpus && limit != vcpus {
        let message = format!(
            "{REQUEST_CPU} or {LIMIT_CPU} must not be provided at the same time with {CORES} when \
             DedicatedCPUPlacement is true "
        );
        review.invalid(DEDICATED, "true", message);
    }
    if topology.threads > MAX_THREADS {
        let threads = topology.threads;
        let message = format!(
            "Not more than two threads must be provided at {THREADS} (got {threads}) when \
             DedicatedCPUPlacement is true"
        );
        review.invalid(DEDICATED, "true", message);
    }
}

/// The guest's nodes mirror those of CPUs and of memory, which both have to be its own.
fn passthrough(domain: &DomainSpec, cpu: &Cpu, review: &mut Review<'_>) {
    if !cpu.dedicated_cpu_placement {
        let message = format!(
            "{DEDICATED} must be set to true when NUMA topology strategy is set in {PASSTHROUGH}"
        );
        review.invalid(PASSTHROUGH, "{}", message);
    }
    let memory = domain.memory.as_ref();
    if memory.is_none_or(|memory| memory.hugepages.is_none()) {
        let message = format!(
            "{HUGEPAGES} must be requested when NUMA topology strategy is set in {PASSTHROUGH}"
        );
        review.invalid(PASSTHROUGH, "{}", message);
    }
}

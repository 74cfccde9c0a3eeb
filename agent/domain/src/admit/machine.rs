//! vCPUs, memory, resources and machine type.

use proto_node::vmi::{Cpu, DomainSpec, Memory};

use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::quantity::Quantity;
use crate::vmi::{CpuTopology, RebootPolicy, Resources};

const MIB: u64 = 1024 * 1024;
/// KubeVirt's lower bound of a memory request, and ours of guest memory.
const MIN_MEMORY_BYTES: u64 = 1_000_000;

pub(super) const REQUEST_CPU: &str = "spec.domain.resources.requests.cpu";
pub(super) const REQUEST_MEMORY: &str = "spec.domain.resources.requests.memory";
pub(super) const LIMIT_CPU: &str = "spec.domain.resources.limits.cpu";
pub(super) const LIMIT_MEMORY: &str = "spec.domain.resources.limits.memory";
const GUEST: &str = "spec.domain.memory.guest";
const PAGE_SIZE: &str = "spec.domain.memory.hugepages.pageSize";

/// The resources that a VMI may name.
const RESOURCES: &[&str] = &["cpu", "memory"];

/// Requests and limits, with KubeVirt's defaults filled in.
pub(super) fn resources(domain: &mut DomainSpec, review: &mut Review<'_>) -> Resources {
    let given = domain.resources.clone().unwrap_or_default();
    for (list, entries) in [("requests", &given.requests), ("limits", &given.limits)] {
        for name in entries
            .keys()
            .filter(|name| !RESOURCES.contains(&name.as_str()))
        {
            review.push(
                FieldError::new(
                    format!("spec.domain.resources.{list}.{name}"),
                    Rule::NotSupported,
                    "not supported by this release",
                )
                .fix("this node knows cpu and memory"),
            );
        }
    }
    let text = |entries: &std::collections::BTreeMap<String, String>, name: &str| {
        entries.get(name).cloned().unwrap_or_default()
    };
    let mut resources = Resources {
        cpu_request_millis: millis(REQUEST_CPU, &text(&given.requests, "cpu"), review),
        cpu_limit_millis: millis(LIMIT_CPU, &text(&given.limits, "cpu"), review),
        memory_request_bytes: bytes(REQUEST_MEMORY, &text(&given.requests, "memory"), review),
        memory_limit_bytes: bytes(LIMIT_MEMORY, &text(&given.limits, "memory"), review),
    };
    // KubeVirt: a limit without a request is the request too.
    for (name, request, limit) in [
        (
            "cpu",
            &mut resources.cpu_request_millis,
            resources.cpu_limit_millis,
        ),
        (
            "memory",
            &mut resources.memory_request_bytes,
            resources.memory_limit_bytes,
        ),
    ] {
        if let (None, Some(value), false) = (*request, limit, given.requests.contains_key(name)) {
            *request = Some(value);
            let requests = &mut domain.resources.get_or_insert_default().requests;
            requests.insert(name.to_owned(), text(&given.limits, name));
        }
    }
    for (name, request, limit) in [
        (
            "cpu",
            resources.cpu_request_millis,
            resources.cpu_limit_millis,
        ),
        (
            "memory",
            resources.memory_request_bytes,
            resources.memory_limit_bytes,
        ),
    ] {
        if let (Some(wants), Some(most)) = (request, limit)
            && wants > most
        {
            let path = format!("spec.domain.resources.requests.{name}");
            let (wants, most) = (text(&given.requests, name), text(&given.limits, name));
            let message = format!(
                "{path} '{wants}' is greater than spec.domain.resources.limits.{name} '{most}'"
            );
            review.invalid(&path, &wants, message);
        }
    }
    resources
}

/// Guest memory in whole MiB: `memory.guest`, else the request, else the limit, else one huge page. A
/// request that is still missing becomes the guest's memory.
pub(super) fn memory(
    domain: &mut DomainSpec,
    resources: &mut Resources,
    review: &mut Review<'_>,
) -> Option<u64> {
    let Memory {
        guest, hugepages, ..
    } = domain.memory.clone().unwrap_or_default();
    let given = |list: &std::collections::BTreeMap<String, String>| list.get("memory").cloned();
    let listed = domain.resources.clone().unwrap_or_default();
    let (text, value) = if !guest.is_empty() {
        let value = bytes(GUEST, &guest, review)?;
        (guest, value)
    } else if let Some(text) = given(&listed.requests).or_else(|| given(&listed.limits)) {
        (text, resources.memory_request_bytes?)
    } else if let Some(page) = hugepages.filter(|page| !page.page_size.is_empty()) {
        let value = bytes(PAGE_SIZE, &page.page_size, review)?;
        (page.page_size, value)
    } else {
        review.required(
            "spec.domain.memory",
            "no memory requested, at least one of 'spec.domain.memory.guest', 'spec.domain.memory.hugepages.size' or 'spec.domain.resources.requests.memory' must be set",
        );
        return None;
    };
    if let Some(caps) = review.caps()
        && value > caps.memory_bytes
    {
        let (node, has) = (&caps.node_name, caps.memory_bytes / MIB);
        // Wherever the amount was given, the object that is stored has it there.
        let message = format!(
            "{GUEST}: {text} is more than the memory of node {node:?}, which has {has}Mi: the VMI waits for room \
             (condition PodScheduled)"
        );
        review.warn(&message);
    }
    domain
        .memory
        .get_or_insert_default()
        .guest
        .clone_from(&text);
    let requests = &mut domain.resources.get_or_insert_default().requests;
    requests.entry("memory".to_owned()).or_insert(text);
    resources.memory_request_bytes.get_or_insert(value);
    Some(value.div_ceil(MIB).saturating_mul(MIB))
}

/// The topology: members left out count as 1; with all left out the CPU limit or request decides.
pub(super) fn cpus(
    domain: &mut DomainSpec,
    resources: &Resources,
    review: &mut Review<'_>,
) -> Option<CpuTopology> {
    let cpu = domain.cpu.get_or_insert_default();
    if cpu.model.is_empty() {
        "host-model".clone_into(&mut cpu.model);
    }
    if (cpu.cores, cpu.sockets, cpu.threads) == (0, 0, 0) {
        let millis = resources.cpu_limit_millis.or(resources.cpu_request_millis);
        let whole = millis.unwrap_or(1000).div_ceil(1000).max(1);
        cpu.sockets = u32::try_from(whole).unwrap_or(u32::MAX);
    }
    for member in [&mut cpu.cores, &mut cpu.sockets, &mut cpu.threads] {
        *member = (*member).max(1);
    }
    let Cpu {
        cores,
        sockets,
        threads,
        ..
    } = *cpu;
    let count = sockets
        .checked_mul(cores)
        .and_then(|count| count.checked_mul(threads));
    let most = review.max_vcpus();
    match count {
        Some(count) if count <= most => Some(CpuTopology {
            sockets,
            cores,
            threads,
        }),
        _ => {
            let product = u128::from(sockets) * u128::from(cores) * u128::from(threads);
            review.push(
                FieldError::new(
                    "spec.domain.cpu",
                    Rule::Invalid,
                    format!("a VMI may have at most {most} vCPUs on this node"),
                )
                .value(product.to_string())
                .fix("vCPUs are sockets × cores × threads")
                .beyond(Bound::Node),
            );
            None
        }
    }
}

/// Only q35 machines, as KubeVirt has it on amd64.
pub(super) fn machine_type(domain: &mut DomainSpec, review: &mut Review<'_>) {
    let machine = domain.machine.get_or_insert_default();
    if machine.r#type.is_empty() {
        "q35".clone_into(&mut machine.r#type);
    }
    let name = machine.r#type.clone();
    if !name.starts_with("q35") && !name.starts_with("pc-q35") {
        let message = format!(
            "spec.domain.machine.type is not supported: {name} (allowed values: [q35* pc-q35*])"
        );
        review.invalid("spec.domain.machine.type", &name, message);
    }
}

/// What the guest's reset does.
pub(super) fn reboot_policy(domain: &DomainSpec) -> RebootPolicy {
    if domain.reboot_policy == "Terminate" {
        RebootPolicy::Terminate
    } else {
        RebootPolicy::Reboot
    }
}

/// An amount of CPU in thousandths; nothing when absent or wrong.
fn millis(path: &str, text: &str, review: &mut Review<'_>) -> Option<u64> {
    not_negative(path, text, review)?.millis()
}

/// An amount of memory; nothing when absent or wrong.
fn bytes(path: &str, text: &str, review: &mut Review<'_>) -> Option<u64> {
    let bytes = not_negative(path, text, review)?.units()?;
    if bytes < MIN_MEMORY_BYTES {
        let message = format!("{path} '{text}': must be greater than or equal to 1M.");
        review.push(below(path, text, message));
        return None;
    }
    Some(bytes)
}

/// A quantity that is there and not below zero. Text that is no quantity was reported already.
fn not_negative(path: &str, text: &str, review: &mut Review<'_>) -> Option<Quantity> {
    let quantity = Quantity::parse(text)?;
    if quantity.is_negative() {
        let message = format!("{path} '{text}': must be greater than or equal to 0.");
        review.push(below(path, text, message));
        return None;
    }
    Some(quantity)
}

/// A quantity that is too small. KubeVirt lets any `memory.guest` in, and any limit that is not negative.
fn below(path: &str, text: &str, message: String) -> FieldError {
    let is_admitted = path == GUEST || path == LIMIT_MEMORY && !text.starts_with('-');
    let bound = if is_admitted {
        Bound::Release
    } else {
        Bound::Api
    };
    FieldError::new(path, Rule::Invalid, message)
        .value(text)
        .beyond(bound)
}

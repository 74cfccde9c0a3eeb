//! vCPUs, memory, resources and machine type.

use std::collections::BTreeMap;

use proto_node::vmi::{Cpu, DomainSpec, Memory, VirtualMachineInstanceSpec};

use super::amount::{
    GUEST, LIMIT_CPU, LIMIT_MEMORY, REQUEST_CPU, REQUEST_MEMORY, judge_bytes, judge_millis,
};
use super::purpose::{ARCHITECTURE, AdmissionPurpose};
use super::review::Review;
use crate::error::{Bound, FieldError, Rule};
use crate::vmi::{CpuTopology, Resources};

const MIB: u64 = 1024 * 1024;

const PAGE_SIZE: &str = "spec.domain.memory.hugepages.pageSize";

/// Amounts by name.
type Amounts = BTreeMap<String, String>;

/// The resources that a VMI may name.
const RESOURCES: &[&str] = &["cpu", "memory"];

/// Reads requests and limits.
pub(super) fn resources(domain: &DomainSpec, review: &mut Review<'_>) -> Resources {
    let given = domain.resources.clone().unwrap_or_default();
    for (list, entries) in [("requests", &given.requests), ("limits", &given.limits)] {
        check_names(list, entries, review);
    }
    let text = |entries: &Amounts, name: &str| entries.get(name).cloned().unwrap_or_default();
    let mut cpu = |path: &str, entries| judge_millis(path, &text(entries, "cpu"), review);
    let cpu_request_millis = cpu(REQUEST_CPU, &given.requests);
    let cpu_limit_millis = cpu(LIMIT_CPU, &given.limits);
    let mut memory = |path: &str, entries| judge_bytes(path, &text(entries, "memory"), review);
    let resources = Resources {
        cpu_request_millis,
        cpu_limit_millis,
        memory_request_bytes: memory(REQUEST_MEMORY, &given.requests),
        memory_limit_bytes: memory(LIMIT_MEMORY, &given.limits),
    };
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

fn check_names(list: &str, entries: &Amounts, review: &mut Review<'_>) {
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

/// What KubeVirt says of a VMI without memory.
pub(super) const NO_MEMORY: &str = "no memory requested, at least one of 'spec.domain.memory.guest', 'spec.domain.memory.hugepages.size' or 'spec.domain.resources.requests.memory' must be set";

/// Guest memory in whole MiB. Where none is given, none of what gives it by default is legal.
pub(super) fn memory(domain: &DomainSpec, review: &mut Review<'_>) -> Option<u64> {
    let Memory {
        guest, hugepages, ..
    } = domain.memory.clone().unwrap_or_default();
    let page = hugepages.map_or_else(String::new, |page| page.page_size);
    let (path, text) = if !guest.is_empty() {
        (GUEST, guest)
    } else if names_memory(domain) {
        // It was reported with the resources.
        return None;
    } else if !page.is_empty() {
        (PAGE_SIZE, page)
    } else {
        review.required("spec.domain.memory", NO_MEMORY);
        return None;
    };
    let value = judge_bytes(path, &text, review)?;
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
    Some(value.div_ceil(MIB).saturating_mul(MIB))
}

fn names_memory(domain: &DomainSpec) -> bool {
    let resources = domain.resources.as_ref();
    let lists = resources.map(|resources| [&resources.requests, &resources.limits]);
    let mut lists = lists.into_iter().flatten();
    lists.any(|list| list.contains_key("memory"))
}

/// Reads the topology.
pub(super) fn cpus(domain: &DomainSpec, review: &mut Review<'_>) -> Option<CpuTopology> {
    let cpu = domain.cpu.as_ref();
    let member = |read: fn(&Cpu) -> u32| cpu.map_or(1, |cpu| read(cpu).max(1));
    let topology = CpuTopology {
        sockets: member(|cpu| cpu.sockets),
        cores: member(|cpu| cpu.cores),
        threads: member(|cpu| cpu.threads),
    };
    let CpuTopology {
        sockets,
        cores,
        threads,
    } = topology;
    let product = [sockets, cores, threads]
        .map(u128::from)
        .iter()
        .product::<u128>();
    let most = review.max_vcpus();
    if product <= u128::from(most) {
        return Some(topology);
    }
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

/// The types of machines that KubeVirt has on each architecture: only q35 on amd64.
pub(super) fn check_type(domain: &DomainSpec, architecture: &str, review: &mut Review<'_>) {
    let beginnings: &[&str] = match architecture {
        "arm64" => &["virt"],
        "s390x" => &["s390-ccw-virtio"],
        _ => &["q35", "pc-q35"],
    };
    let machine = domain.machine.as_ref();
    let name = machine.map_or("", |machine| machine.r#type.as_str());
    if !beginnings
        .iter()
        .any(|beginning| name.starts_with(beginning))
    {
        let allowed: Vec<String> = beginnings.iter().map(|it| format!("{it}*")).collect();
        let message = format!(
            "spec.domain.machine.type is not supported: {name} (allowed values: [{}])",
            allowed.join(" ")
        );
        review.invalid("spec.domain.machine.type", name, message);
    }
}

/// Refuses another architecture than the node's.
pub(super) fn check_architecture(spec: &VirtualMachineInstanceSpec, review: &mut Review<'_>) {
    let (here, whose) = match review.purpose {
        AdmissionPurpose::New(caps) => (
            caps.architecture.clone(),
            format!("node {:?} is {}", caps.node_name, caps.architecture),
        ),
        AdmissionPurpose::NewAnywhere => (
            ARCHITECTURE.to_owned(),
            format!("this release runs on {ARCHITECTURE}"),
        ),
        AdmissionPurpose::Stored => return,
    };
    if spec.architecture != here {
        let error = FieldError::new("spec.architecture", Rule::Invalid, whose)
            .value(&spec.architecture)
            .fix("apply it to a node of that architecture, or leave it out")
            .beyond(Bound::Node);
        review.push(error);
    }
}

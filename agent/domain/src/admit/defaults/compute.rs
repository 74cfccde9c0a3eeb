//! Defaults of machine type, resources, memory and vCPUs.

use proto_node::vmi::{Cpu, DomainSpec};

use super::text::fill_text;
use crate::admit::amount;
use crate::instancetype::machine_type;

const CPU_MODEL: &str = "host-model";
const FEATURE_POLICY: &str = "require";

/// What is malformed fills in nothing.
pub(super) fn fill(domain: &mut DomainSpec, architecture: &str) {
    let machine = domain.machine.get_or_insert_default();
    fill_text(&mut machine.r#type, machine_type(architecture));
    fill_requests(domain);
    fill_memory(domain);
    fill_cpu(domain);
}

/// A limit without a request is the request too.
fn fill_requests(domain: &mut DomainSpec) {
    let Some(resources) = &mut domain.resources else {
        return;
    };
    for (name, is_legal) in [
        ("cpu", amount::millis as fn(&str) -> Option<u64>),
        ("memory", amount::bytes),
    ] {
        if let Some(limit) = resources.limits.get(name)
            && is_legal(limit).is_some()
        {
            let request = resources.requests.entry(name.to_owned());
            request.or_insert_with(|| limit.clone());
        }
    }
}

/// The guest has the memory that is requested for it, else one huge page; and what it has is requested.
fn fill_memory(domain: &mut DomainSpec) {
    let memory = domain.memory.as_ref();
    let guest = memory
        .map(|memory| &memory.guest)
        .filter(|text| !text.is_empty());
    let page = memory.and_then(|memory| memory.hugepages.as_ref());
    let page = page.map(|page| &page.page_size);
    let resources = domain.resources.as_ref();
    let listed = resources.and_then(|resources| {
        let requested = resources.requests.get("memory");
        requested.or_else(|| resources.limits.get("memory"))
    });
    let amount = guest.or(listed).or(page);
    let Some(text) = amount.filter(|text| amount::bytes(text).is_some()).cloned() else {
        return;
    };
    let requests = &mut domain.resources.get_or_insert_default().requests;
    requests
        .entry("memory".to_owned())
        .or_insert_with(|| text.clone());
    domain.memory.get_or_insert_default().guest = text;
}

/// Members of the topology that are left out count as 1; with all left out the CPU limit or request decides.
fn fill_cpu(domain: &mut DomainSpec) {
    let millis = domain.resources.as_ref().and_then(|resources| {
        let of = |list: &std::collections::BTreeMap<String, String>| {
            list.get("cpu").and_then(|text| amount::millis(text))
        };
        of(&resources.limits).or_else(|| of(&resources.requests))
    });
    let cpu: &mut Cpu = domain.cpu.get_or_insert_default();
    fill_text(&mut cpu.model, CPU_MODEL);
    if (cpu.cores, cpu.sockets, cpu.threads) == (0, 0, 0) {
        let whole = millis.unwrap_or(1000).div_ceil(1000);
        cpu.sockets = u32::try_from(whole).unwrap_or(u32::MAX);
    }
    for member in [&mut cpu.cores, &mut cpu.sockets, &mut cpu.threads] {
        *member = (*member).max(1);
    }
    for feature in &mut cpu.features {
        fill_text(&mut feature.policy, FEATURE_POLICY);
    }
}

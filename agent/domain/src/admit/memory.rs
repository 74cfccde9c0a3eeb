//! What guest memory is made of, and what it may grow to.

use proto_node::vmi::DomainSpec;

use super::purpose::ARCHITECTURE;
use super::review::Review;
use crate::error::{FieldError, Rule};
use crate::quantity::Quantity;
use crate::vmi::{HugepageSize, MemoryOptions};

const GUEST: &str = "spec.domain.memory.guest";
const PAGE_SIZE: &str = "spec.domain.memory.hugepages.pageSize";
const REQUEST_MEMORY: &str = "spec.domain.resources.requests.memory";
/// KubeVirt's name of the page size in messages.
const PAGE_SIZE_IN_MESSAGES: &str = "spec.domain.hugepages.size";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// KubeVirt plugs memory only into guests that have as much.
const MIN_GROWING_BYTES: u64 = GIB;

/// Judges huge pages and `maxGuest` of a guest that starts with `memory_bytes`, if that is known.
pub(super) fn options(
    domain: &DomainSpec,
    memory_bytes: Option<u64>,
    architecture: &str,
    review: &mut Review<'_>,
) -> Option<MemoryOptions> {
    // Each is judged, whatever the others say.
    let may_grow = check_max_guest(domain, architecture, review);
    let memory_bytes = memory_bytes?;
    let hugepages = match domain
        .memory
        .as_ref()
        .and_then(|memory| memory.hugepages.as_ref())
    {
        None => None,
        Some(hugepages) => Some(page_size(&hugepages.page_size, review)?),
    };
    if let Some(size) = hugepages {
        check_multiple(domain, memory_bytes, size, review)?;
    }
    Some(MemoryOptions {
        hugepages,
        max_bytes: may_grow?.unwrap_or(memory_bytes),
    })
}

fn page_size(text: &str, review: &mut Review<'_>) -> Option<HugepageSize> {
    if text.is_empty() {
        review.required(PAGE_SIZE, "the size of a page must be given");
        return None;
    }
    // Text that is no quantity was reported already.
    let size = match Quantity::parse(text)?.units() {
        Some(0x20_0000) => Some(HugepageSize::Mib2),
        Some(0x4000_0000) => Some(HugepageSize::Gib1),
        _ => None,
    };
    if size.is_none() {
        let error = FieldError::new(PAGE_SIZE, Rule::NotSupported, "no such pages on amd64");
        review.push(error.value(text).fix("huge pages are 2Mi or 1Gi"));
    }
    size
}

/// KubeVirt judges the request, and we what the guest has, too.
fn check_multiple(
    domain: &DomainSpec,
    memory_bytes: u64,
    size: HugepageSize,
    review: &mut Review<'_>,
) -> Option<()> {
    let page = domain
        .memory
        .as_ref()
        .and_then(|memory| memory.hugepages.as_ref())
        .map_or("", |hugepages| hugepages.page_size.as_str());
    let request = domain
        .resources
        .as_ref()
        .and_then(|resources| resources.requests.get("memory"));
    let guest = domain.memory.as_ref().map(|memory| &memory.guest);
    let requested = request.and_then(|text| Some((text, Quantity::parse(text)?.units()?)));
    let given = requested
        .map(|(text, bytes)| (REQUEST_MEMORY, text, bytes))
        .into_iter()
        .chain(guest.map(|text| (GUEST, text, memory_bytes)));
    for (path, text, bytes) in given {
        let message = if bytes < size.bytes() {
            format!(
                "{path} '{text}' must be equal to or larger than page size {PAGE_SIZE_IN_MESSAGES} '{page}'"
            )
        } else if bytes.is_multiple_of(size.bytes()) {
            continue;
        } else {
            format!(
                "{path} '{text}' is not a multiple of the page size {PAGE_SIZE_IN_MESSAGES} '{page}'"
            )
        };
        review.invalid(path, text, message);
        return None;
    }
    Some(())
}

/// What memory may grow to, if it may; nothing where that was reported. Rules, their order and their texts are those of
/// KubeVirt's `ValidateLiveUpdateMemory`, which has all of them at `memory.guest`.
fn check_max_guest(
    domain: &DomainSpec,
    architecture: &str,
    review: &mut Review<'_>,
) -> Option<Option<u64>> {
    let memory = domain.memory.clone().unwrap_or_default();
    if memory.max_guest.is_empty() {
        return Some(None);
    }
    let max_bytes = Quantity::parse(&memory.max_guest)?.units().unwrap_or(0);
    let guest = Quantity::parse(&memory.guest).and_then(|guest| guest.units());
    let page = memory.hugepages.map_or_else(String::new, |it| it.page_size);
    let (unit, name) = if page == "1Gi" {
        (GIB, "1Gi")
    } else {
        (2 * MIB, "2Mi")
    };
    let is_realtime = domain
        .cpu
        .as_ref()
        .is_some_and(|cpu| cpu.realtime.is_some());
    let text = match guest {
        _ if is_realtime => "Memory hotplug is not compatible with realtime VMs".to_owned(),
        _ if has_numa_of_the_node(domain) => {
            "Memory hotplug is not compatible with guest mapping passthrough".to_owned()
        }
        _ if domain.launch_security.is_some() => {
            "Memory hotplug is not compatible with encrypted VMs".to_owned()
        }
        // Text that is no quantity was reported already.
        None if !memory.guest.is_empty() => return None,
        None => "Guest memory must be configured when memory hotplug is enabled".to_owned(),
        Some(bytes) if bytes > max_bytes => {
            "Guest memory is greater than the configured maxGuest memory".to_owned()
        }
        Some(bytes) if !bytes.is_multiple_of(unit) => {
            format!("Guest memory must be {name} aligned")
        }
        Some(_) if !max_bytes.is_multiple_of(unit) => format!("MaxGuest must be {name} aligned"),
        Some(_) if architecture != ARCHITECTURE => {
            "Memory hotplug is only available for x86_64 VMs".to_owned()
        }
        Some(bytes) if bytes < MIN_GROWING_BYTES => {
            "Memory hotplug is only available for VMs with at least 1Gi of guest memory".to_owned()
        }
        Some(_) => return Some(Some(max_bytes)),
    };
    let error = FieldError::new(GUEST, Rule::Invalid, text).value(&memory.guest);
    review.push(error.fix("change it, or leave spec.domain.memory.maxGuest out"));
    None
}

/// `guestMappingPassthrough`: memory that comes later would belong to no node.
fn has_numa_of_the_node(domain: &DomainSpec) -> bool {
    let numa = domain.cpu.as_ref().and_then(|cpu| cpu.numa.as_ref());
    numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}

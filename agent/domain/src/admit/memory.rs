//! What guest memory is made of, and what it may grow to.

use proto_node::vmi::DomainSpec;

use super::review::Review;
use crate::error::{FieldError, Rule};
use crate::quantity::Quantity;
use crate::vmi::{HugepageSize, MemoryOptions};

const GUEST: &str = "spec.domain.memory.guest";
const MAX_GUEST: &str = "spec.domain.memory.maxGuest";
const PAGE_SIZE: &str = "spec.domain.memory.hugepages.pageSize";
const REQUEST_MEMORY: &str = "spec.domain.resources.requests.memory";
/// KubeVirt's name of the page size in messages.
const PAGE_SIZE_IN_MESSAGES: &str = "spec.domain.hugepages.size";

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// KubeVirt plugs memory only into guests that have as much.
const MIN_GROWING_BYTES: u64 = GIB;

/// Judges huge pages and `maxGuest` of a guest that starts with `memory_bytes`.
pub(super) fn options(
    domain: &DomainSpec,
    memory_bytes: u64,
    review: &mut Review<'_>,
) -> Option<MemoryOptions> {
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
        max_bytes: max_guest(domain, memory_bytes, hugepages, review)?,
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

/// What memory may grow to; what it starts with by default.
fn max_guest(
    domain: &DomainSpec,
    memory_bytes: u64,
    hugepages: Option<HugepageSize>,
    review: &mut Review<'_>,
) -> Option<u64> {
    let memory = domain.memory.clone().unwrap_or_default();
    if memory.max_guest.is_empty() {
        return Some(memory_bytes);
    }
    let max_bytes = Quantity::parse(&memory.max_guest)?.units().unwrap_or(0);
    let (unit, name) = match hugepages {
        Some(HugepageSize::Gib1) => (GIB, "1Gi"),
        _ => (2 * MIB, "2Mi"),
    };
    let wrong = if memory_bytes > max_bytes {
        let message = "Guest memory is greater than the configured maxGuest memory".to_owned();
        Some((GUEST, &memory.guest, message))
    } else if !memory_bytes.is_multiple_of(unit) {
        let message = format!("Guest memory must be {name} aligned");
        Some((GUEST, &memory.guest, message))
    } else if !max_bytes.is_multiple_of(unit) {
        let message = format!("MaxGuest must be {name} aligned");
        Some((MAX_GUEST, &memory.max_guest, message))
    } else if memory_bytes < MIN_GROWING_BYTES {
        let message = "Memory hotplug is only available for VMs with at least 1Gi of guest memory";
        Some((GUEST, &memory.guest, message.to_owned()))
    } else if has_numa_of_the_node(domain) {
        let message = "Memory hotplug is not compatible with guest mapping passthrough";
        Some((MAX_GUEST, &memory.max_guest, message.to_owned()))
    } else if domain.launch_security.is_some() {
        let message = "Memory hotplug is not compatible with encrypted VMs";
        Some((MAX_GUEST, &memory.max_guest, message.to_owned()))
    } else if domain
        .cpu
        .as_ref()
        .is_some_and(|cpu| cpu.realtime.is_some())
    {
        let message = "Memory hotplug is not compatible with realtime VMs";
        Some((MAX_GUEST, &memory.max_guest, message.to_owned()))
    } else {
        None
    };
    match wrong {
        None => Some(max_bytes),
        Some((path, value, message)) => {
            review.invalid(path, value, message);
            None
        }
    }
}

/// `guestMappingPassthrough`: memory that comes later would belong to no node.
fn has_numa_of_the_node(domain: &DomainSpec) -> bool {
    let numa = domain.cpu.as_ref().and_then(|cpu| cpu.numa.as_ref());
    numa.is_some_and(|numa| numa.guest_mapping_passthrough.is_some())
}

//! Why the capacity is not enough, in figures for people.

use super::figures::Capacity;
use super::taken::Taken;
use crate::dedicated::{dedicate, whole_cores};
use crate::reservation::{HugepageDemand, ResourceDemand};

/// What is wanted and what there is, one part for each thing that is short.
pub(super) fn shortage(capacity: &Capacity, taken: &Taken, demand: &ResourceDemand) -> String {
    let node = &capacity.node_name;
    let vmis = counted(taken.used.vmis);
    let mut parts = Vec::new();
    let free = taken.free_memory(capacity);
    if demand.all_memory_bytes() > free {
        let wants = if demand.memory_bytes == 0 {
            format!("{} of memory for the VMM", size(demand.overhead_bytes))
        } else if demand.memory_bytes > free {
            format!("{} of memory", size(demand.memory_bytes))
        } else {
            // The guest alone would fit.
            let (memory, overhead) = (size(demand.memory_bytes), size(demand.overhead_bytes));
            format!("{memory} of memory and {overhead} of overhead")
        };
        parts.push(format!(
            "wants {wants}; {node} has {} free of {} ({vmis}, {} of overhead counted)",
            size(free),
            size(capacity.memory_bytes),
            size(taken.used.overhead_bytes)
        ));
    }
    let free = taken.free_cpu(capacity);
    if demand.cpu_millis > free {
        parts.push(format!(
            "wants {} CPUs; {node} has {} free of {} ({vmis} counted)",
            cpus(demand.cpu_millis),
            cpus(free),
            cpus(capacity.cpu_millis)
        ));
    }
    parts.extend(places(capacity, taken, demand));
    if let Some(HugepageDemand { page_bytes, bytes }) = demand.hugepages {
        let (free, all) = taken.hugepages(capacity, page_bytes);
        if bytes > free {
            let page = size(page_bytes);
            parts.push(format!(
                "wants {} of {page} huge pages; {node} has {} free of {} ({vmis} counted); more are made by \
                 /sys/kernel/mm/hugepages/hugepages-{}kB/nr_hugepages",
                size(bytes),
                size(free),
                size(all),
                page_bytes >> 10
            ));
        }
    }
    parts.join("; ")
}

fn counted(vmis: u32) -> String {
    format!("{vmis} {}", if vmis == 1 { "VMI" } else { "VMIs" })
}

/// What is short of CPUs to run on, if anything is.
fn places(capacity: &Capacity, taken: &Taken, demand: &ResourceDemand) -> Option<String> {
    let node = &capacity.node_name;
    let Some(cpu_demand) = &demand.dedicated else {
        let none = !capacity.layout.all().is_empty() && taken.shared(capacity).is_empty();
        return none.then(|| {
            format!(
                "shares CPUs, and {node} has none to share: all are set aside (capacity.dedicated_cpus)"
            )
        });
    };
    let free = taken.free_dedicated(capacity);
    if dedicate(&capacity.layout, &free, cpu_demand).is_some() {
        return None;
    }
    let wanted = cpu_demand.count();
    let noun = if wanted == 1 { "CPU" } else { "CPUs" };
    if capacity.dedicated.is_empty() {
        return Some(format!(
            "wants {wanted} {noun} of its own; {node} sets none aside: capacity.dedicated_cpus does"
        ));
    }
    let mut text = format!(
        "wants {wanted} {noun} of its own{}; {node} has {} free of {} ({} counted)",
        if cpu_demand.whole_cores {
            ", in whole cores"
        } else {
            ""
        },
        free.len(),
        capacity.dedicated.len(),
        counted(taken.used.vmis)
    );
    if cpu_demand.whole_cores {
        let cores = whole_cores(&capacity.layout, &free);
        text.push_str(&format!(", {cores} whole cores of them"));
    }
    let roamed = taken.still_roamed(capacity);
    if roamed > 0 {
        text.push_str(&format!(
            "; {roamed} more are used until they end by guests that were started before \
             capacity.dedicated_cpus had them"
        ));
    }
    Some(text)
}

/// Bytes as people write them: whole where they are whole, else one digit after the point, never more
/// than there are.
fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki")];
    let unit = UNITS.iter().find(|(unit, _)| bytes >= *unit);
    let Some(&(unit, name)) = unit else {
        return bytes.to_string();
    };
    let tenths = u128::from(bytes) * 10 / u128::from(unit);
    if tenths.is_multiple_of(10) {
        format!("{}{name}", tenths / 10)
    } else {
        format!("{}.{}{name}", tenths / 10, tenths % 10)
    }
}

/// Thousandths as people write them: `2`, `1.5`, `0.25`.
fn cpus(millis: u64) -> String {
    let text = format!("{}.{:03}", millis / 1000, millis % 1000);
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

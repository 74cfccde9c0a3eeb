//! The second, small planner: who of the node's VMIs may take memory, CPUs and huge pages.
//!
//! What was granted once counts first, whatever the node or its configuration have become: a guest that
//! runs is never touched for want of room. What is left goes to those who wait, the oldest first. One
//! that does not fit is passed by: a guest that is too large for the node must not keep all others out.

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::{Claim, HugepageClaim, Room, Timestamp};

/// What a node has for VMIs, with what is reserved taken off and overcommitment put on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The node, for messages.
    pub node_name: String,
    /// Ordinary memory.
    pub memory_bytes: u64,
    /// CPU in thousandths.
    pub cpu_millis: u64,
    /// Bytes of huge pages by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
}

/// What a node has, as the kernel tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHas {
    /// All memory, that of huge pages included.
    pub memory_bytes: u64,
    /// CPUs.
    pub cpus: u32,
    /// Bytes of huge pages, used or not, by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
}

/// What the operator makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CapacityRules {
    /// Memory that VMIs do not get.
    pub reserved_memory_bytes: u64,
    /// CPU that VMIs do not get, in thousandths.
    pub reserved_cpu_millis: u64,
    /// How much of the ordinary memory that is left VMIs may take; 100 is all of it.
    pub memory_overcommit_percent: u32,
    /// vCPUs to a CPU, where none is requested.
    pub cpu_allocation_ratio: u32,
}

impl Capacity {
    /// What `rules` make of what the node has. Huge pages are never overcommitted: the kernel would kill
    /// a guest that touches one too many.
    #[must_use]
    pub fn of(node_name: String, has: NodeHas, rules: &CapacityRules) -> Self {
        let pools = has.hugepages.values().copied().fold(0, u64::saturating_add);
        let ordinary = has.memory_bytes.saturating_sub(pools);
        let left = u128::from(ordinary.saturating_sub(rules.reserved_memory_bytes));
        let memory = left * u128::from(rules.memory_overcommit_percent) / 100;
        Self {
            node_name,
            memory_bytes: u64::try_from(memory).unwrap_or(u64::MAX),
            cpu_millis: (u64::from(has.cpus) * 1000).saturating_sub(rules.reserved_cpu_millis),
            hugepages: has.hugepages,
        }
    }
}

/// A VMI that takes room, or wants to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tenant {
    /// Its uid.
    pub uid: String,
    /// When it was accepted: the oldest comes first.
    pub since: Timestamp,
    /// What it takes.
    pub claim: Claim,
    /// It was granted before.
    pub holds: bool,
}

impl Tenant {
    fn by_age(&self, other: &Self) -> Ordering {
        (self.since, &self.uid).cmp(&(other.since, &other.uid))
    }
}

/// Whether the tenant with `uid` has room beside all others; `None` when it is not among them.
#[must_use]
pub fn room_of(capacity: &Capacity, tenants: &[Tenant], uid: &str) -> Option<Room> {
    let asking = tenants.iter().find(|tenant| tenant.uid == uid)?;
    if asking.holds {
        return Some(Room::Granted(asking.claim.clone()));
    }
    let mut found = None;
    walk(capacity, tenants, |tenant, taken, fits| {
        if tenant.uid == uid {
            found = Some(if fits {
                Room::Granted(tenant.claim.clone())
            } else {
                Room::Waits {
                    why: shortage(capacity, taken, &tenant.claim),
                }
            });
        }
    });
    found
}

/// Uids of those that wait and have room now, the oldest first.
#[must_use]
pub fn who_fits<'a>(capacity: &Capacity, tenants: &'a [Tenant]) -> Vec<&'a str> {
    let mut all = Vec::new();
    walk(capacity, tenants, |tenant, _, fits| {
        if fits {
            all.push(tenant.uid.as_str());
        }
    });
    all
}

/// Goes through those that wait, the oldest first, with what is taken by then.
fn walk<'a>(
    capacity: &Capacity,
    tenants: &'a [Tenant],
    mut visit: impl FnMut(&'a Tenant, &Taken, bool),
) {
    let mut taken = Taken::default();
    let (holders, mut waiting): (Vec<&Tenant>, Vec<&Tenant>) =
        tenants.iter().partition(|tenant| tenant.holds);
    for tenant in holders {
        taken.add(&tenant.claim);
    }
    waiting.sort_by(|one, other| one.by_age(other));
    for tenant in waiting {
        let fits = taken.leaves_room_for(capacity, &tenant.claim);
        visit(tenant, &taken, fits);
        if fits {
            taken.add(&tenant.claim);
        }
    }
}

/// What is taken of a node.
#[derive(Debug, Default)]
struct Taken {
    vmis: u32,
    memory_bytes: u64,
    overhead_bytes: u64,
    cpu_millis: u64,
    hugepages: BTreeMap<u64, u64>,
}

impl Taken {
    fn add(&mut self, claim: &Claim) {
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        self.vmis = self.vmis.saturating_add(1);
        add(&mut self.memory_bytes, claim.all_memory_bytes());
        add(&mut self.overhead_bytes, claim.overhead_bytes);
        add(&mut self.cpu_millis, claim.cpu_millis);
        if let Some(HugepageClaim { page_bytes, bytes }) = claim.hugepages {
            add(self.hugepages.entry(page_bytes).or_default(), bytes);
        }
    }

    fn free_memory(&self, capacity: &Capacity) -> u64 {
        capacity.memory_bytes.saturating_sub(self.memory_bytes)
    }

    fn free_cpu(&self, capacity: &Capacity) -> u64 {
        capacity.cpu_millis.saturating_sub(self.cpu_millis)
    }

    /// Free and all bytes of pages of one size.
    fn hugepages(&self, capacity: &Capacity, page_bytes: u64) -> (u64, u64) {
        let all = capacity.hugepages.get(&page_bytes).copied().unwrap_or(0);
        let taken = self.hugepages.get(&page_bytes).copied().unwrap_or(0);
        (all.saturating_sub(taken), all)
    }

    fn leaves_room_for(&self, capacity: &Capacity, claim: &Claim) -> bool {
        let has_pages = claim
            .hugepages
            .is_none_or(|pages| pages.bytes <= self.hugepages(capacity, pages.page_bytes).0);
        has_pages
            && claim.all_memory_bytes() <= self.free_memory(capacity)
            && claim.cpu_millis <= self.free_cpu(capacity)
    }
}

/// What is wanted and what there is, one part for each thing that is short.
fn shortage(capacity: &Capacity, taken: &Taken, claim: &Claim) -> String {
    let node = &capacity.node_name;
    let Taken {
        vmis,
        overhead_bytes,
        ..
    } = *taken;
    let vmis = format!("{vmis} {}", if vmis == 1 { "VMI" } else { "VMIs" });
    let mut parts = Vec::new();
    let free = taken.free_memory(capacity);
    if claim.all_memory_bytes() > free {
        let wants = if claim.memory_bytes == 0 {
            format!("{} of memory for the VMM", size(claim.overhead_bytes))
        } else if claim.memory_bytes > free {
            format!("{} of memory", size(claim.memory_bytes))
        } else {
            // The guest alone would fit.
            let (memory, overhead) = (size(claim.memory_bytes), size(claim.overhead_bytes));
            format!("{memory} of memory and {overhead} of overhead")
        };
        parts.push(format!(
            "wants {wants}; {node} has {} free of {} ({vmis}, {} of overhead counted)",
            size(free),
            size(capacity.memory_bytes),
            size(overhead_bytes)
        ));
    }
    let free = taken.free_cpu(capacity);
    if claim.cpu_millis > free {
        parts.push(format!(
            "wants {} CPUs; {node} has {} free of {} ({vmis} counted)",
            cpus(claim.cpu_millis),
            cpus(free),
            cpus(capacity.cpu_millis)
        ));
    }
    if let Some(HugepageClaim { page_bytes, bytes }) = claim.hugepages {
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

#[cfg(test)]
mod tests;

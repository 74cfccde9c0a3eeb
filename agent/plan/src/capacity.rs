//! The second, small planner: who of the node's VMIs may take memory, CPUs and huge pages.
//!
//! What was granted once counts first, whatever the node or its configuration have become: a guest that
//! runs is never touched for want of room. What is left goes to those who wait, the oldest first. One
//! that does not fit is passed by: a guest that is too large for the node must not keep all others out.

mod shortage;
mod taken;

use std::cmp::Ordering;
use std::collections::BTreeMap;

use crate::{Claim, CpuLayout, CpuSet, Reservation, Timestamp};

use self::shortage::shortage;
use self::taken::Taken;

/// What a node has for VMIs, with what is reserved taken off and overcommitment put on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// The node, for messages.
    pub node_name: String,
    /// Ordinary memory.
    pub memory_bytes: u64,
    /// CPU in thousandths, of the CPUs that are shared.
    pub cpu_millis: u64,
    /// Bytes of huge pages by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
    /// All CPUs of the node.
    pub layout: CpuLayout,
    /// Those of them that guests may have for themselves.
    pub dedicated: CpuSet,
}

/// What a node has, as the kernel tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeHas {
    /// All memory, that of huge pages included.
    pub memory_bytes: u64,
    /// CPUs, as far as there is time for all of them.
    pub cpus: u32,
    /// All CPUs.
    pub layout: CpuLayout,
    /// Bytes of huge pages, used or not, by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
}

/// What the operator makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CapacityRules {
    /// Memory that VMIs do not get.
    pub reserved_memory_bytes: u64,
    /// CPU that VMIs do not get, in thousandths.
    pub reserved_cpu_millis: u64,
    /// How much of the ordinary memory that is left VMIs may take; 100 is all of it.
    pub memory_overcommit_percent: u32,
    /// vCPUs to a CPU, where none is requested.
    pub cpu_allocation_ratio: u32,
    /// CPUs that guests may have for themselves. Those that share get the others.
    pub dedicated_cpus: CpuSet,
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
        let dedicated = rules.dedicated_cpus.and(&has.layout.all());
        let cpu = (u64::from(has.cpus) * 1000).saturating_sub(millis_of(&dedicated));
        Self {
            node_name,
            memory_bytes: u64::try_from(memory).unwrap_or(u64::MAX),
            cpu_millis: cpu.saturating_sub(rules.reserved_cpu_millis),
            hugepages: has.hugepages,
            layout: has.layout,
            dedicated,
        }
    }
}

/// A VMI with a reservation, or one that waits for it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GuestClaim {
    /// Its uid.
    pub uid: String,
    /// When it was accepted: the oldest comes first.
    pub since: Timestamp,
    /// Memory, CPUs and huge pages that it needs.
    pub claim: Claim,
    /// It has a reservation.
    pub holds: bool,
}

impl GuestClaim {
    fn by_age(&self, other: &Self) -> Ordering {
        (self.since, &self.uid).cmp(&(other.since, &other.uid))
    }
}

/// Whether the guest with `uid` gets a reservation beside all others; `None` when it is not among them.
#[must_use]
pub fn reservation_of(
    capacity: &Capacity,
    guests: &[GuestClaim],
    uid: &str,
) -> Option<Reservation> {
    let asking = guests.iter().find(|guest| guest.uid == uid)?;
    if asking.holds {
        return Some(Reservation::Granted(asking.claim.clone()));
    }
    let mut found = None;
    walk(capacity, guests, |guest, taken, granted| {
        if guest.uid == uid {
            found = Some(granted.map_or_else(
                || Reservation::Waits {
                    why: shortage(capacity, taken, &guest.claim),
                },
                |claim| Reservation::Granted(claim.clone()),
            ));
        }
    });
    found
}

/// Uids of those that wait and would get a reservation now, the oldest first.
#[must_use]
pub fn uids_that_fit<'a>(capacity: &Capacity, guests: &'a [GuestClaim]) -> Vec<&'a str> {
    let mut all = Vec::new();
    walk(capacity, guests, |guest, _, granted| {
        if granted.is_some() {
            all.push(guest.uid.as_str());
        }
    });
    all
}

/// Goes through those that wait, the oldest first, with what is taken by then and what they get.
fn walk<'a>(
    capacity: &Capacity,
    guests: &'a [GuestClaim],
    mut visit: impl FnMut(&'a GuestClaim, &Taken, Option<&Claim>),
) {
    let mut taken = Taken::by_holders(capacity, guests);
    let mut waiting: Vec<&GuestClaim> = guests.iter().filter(|guest| !guest.holds).collect();
    waiting.sort_by(|one, other| one.by_age(other));
    for guest in waiting {
        let granted = taken.grant(capacity, &guest.claim);
        visit(guest, &taken, granted.as_ref());
        if let Some(claim) = granted {
            taken.add(capacity, &claim);
        }
    }
}

/// Sum of all reservations of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// VMIs with a reservation.
    pub vmis: u32,
    /// Ordinary memory, the VMMs' own with it.
    pub memory_bytes: u64,
    /// That of the VMMs alone.
    pub overhead_bytes: u64,
    /// CPU in thousandths, of the CPUs that are shared.
    pub cpu_millis: u64,
    /// CPUs that guests have for themselves.
    pub dedicated: CpuSet,
    /// Bytes of huge pages by the size of a page.
    pub hugepages: BTreeMap<u64, u64>,
}

/// Sums up all reservations.
#[must_use]
pub fn used(guests: &[GuestClaim]) -> Used {
    let mut used = Used::default();
    for guest in guests.iter().filter(|guest| guest.holds) {
        used.add(&guest.claim);
    }
    used
}

/// CPUs that a guest has for itself and that are not meant for that any more. It keeps them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Misplaced {
    /// Uid of the VMI.
    pub uid: String,
    /// Those of its CPUs that are not set aside, or are not there.
    pub cpus: CpuSet,
}

/// Guests with CPUs of their own that the node, or its configuration, does not set aside.
#[must_use]
pub fn misplaced(capacity: &Capacity, guests: &[GuestClaim]) -> Vec<Misplaced> {
    let holders = guests.iter().filter(|guest| guest.holds);
    let found = holders.map(|guest| Misplaced {
        uid: guest.uid.clone(),
        cpus: guest.claim.own_cpus().without(&capacity.dedicated),
    });
    found.filter(|found| !found.cpus.is_empty()).collect()
}

/// CPUs in thousandths.
fn millis_of(cpus: &CpuSet) -> u64 {
    u64::try_from(cpus.len()).map_or(u64::MAX, |count| count.saturating_mul(1000))
}

#[cfg(test)]
mod tests;

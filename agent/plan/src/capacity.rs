//! The second, small planner: who of the node's VMIs may take memory, CPUs and huge pages.
//!
//! What was granted once counts first, whatever the node or its configuration have become: a guest that
//! runs is never touched for want of capacity. What is left goes to those who wait, the oldest first. One
//! that does not fit is passed by: a guest that is too large for the node must not keep all others out.

mod figures;
mod shortage;
mod taken;

use self::shortage::shortage;
use self::taken::Taken;
use crate::cpus::CpuSet;
use crate::reservation::{Reservation, ResourceDemand};
pub use figures::{Capacity, CapacityRules, GuestDemand, NodeInventory, Used};

/// Whether the guest with `uid` gets a reservation beside all others; `None` when it is not among them.
#[must_use]
pub fn reservation_of(
    capacity: &Capacity,
    guests: &[GuestDemand],
    uid: &str,
) -> Option<Reservation> {
    let asking = guests.iter().find(|guest| guest.uid == uid)?;
    if asking.holds {
        return Some(Reservation::Granted(asking.demand.clone()));
    }
    let mut found = None;
    walk(capacity, guests, |guest, taken, granted| {
        if guest.uid == uid {
            found = Some(granted.map_or_else(
                || Reservation::Waits {
                    why: shortage(capacity, taken, &guest.demand),
                },
                |demand| Reservation::Granted(demand.clone()),
            ));
        }
    });
    found
}

/// Uids of those that wait and would get a reservation now, the oldest first.
#[must_use]
pub fn uids_that_fit<'a>(capacity: &Capacity, guests: &'a [GuestDemand]) -> Vec<&'a str> {
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
    guests: &'a [GuestDemand],
    mut visit: impl FnMut(&'a GuestDemand, &Taken, Option<&ResourceDemand>),
) {
    let mut taken = Taken::by_holders(capacity, guests);
    let mut waiting: Vec<&GuestDemand> = guests.iter().filter(|guest| !guest.holds).collect();
    waiting.sort_by(|one, other| one.by_age(other));
    for guest in waiting {
        let granted = taken.grant(capacity, &guest.demand);
        visit(guest, &taken, granted.as_ref());
        if let Some(demand) = granted {
            taken.add(capacity, &demand);
        }
    }
}

/// Sums up all reservations.
#[must_use]
pub fn used(guests: &[GuestDemand]) -> Used {
    let mut used = Used::default();
    for guest in guests.iter().filter(|guest| guest.holds) {
        used.add(&guest.demand);
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
pub fn misplaced(capacity: &Capacity, guests: &[GuestDemand]) -> Vec<Misplaced> {
    let holders = guests.iter().filter(|guest| guest.holds);
    let found = holders.map(|guest| Misplaced {
        uid: guest.uid.clone(),
        cpus: guest.demand.own_cpus().without(&capacity.dedicated),
    });
    found.filter(|found| !found.cpus.is_empty()).collect()
}

#[cfg(test)]
mod tests;

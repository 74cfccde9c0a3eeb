//! Reservations of the node's memory, CPUs and huge pages, and VMIs that wait for one.
//!
//! What was granted is in the records; this is the same in memory, so that no two actors reserve the same. An agent that starts knows all of it before its first actor does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_domain::Vmi;
use agent_host::{NodeFacts, huge_pages};
use agent_plan::{
    Capacity, CapacityRules, CpuGrant, CpuLayout, DedicatedCpus, GuestDemand, NodeInventory,
    Reservation, ResourceDemand, Timestamp, Used, misplaced, reservation_of, uids_that_fit, used,
};
use tracing::warn;

/// Bytes of huge pages by the size of a page. They come and go while the agent runs.
type Pools = BTreeMap<u64, u64>;

/// Reservations of the node.
#[derive(Debug)]
pub(crate) struct Reservations {
    ledger: Mutex<CapacityLedger>,
    /// Asked before the ledger is locked: the kernel may take its time, and nobody else has to wait for it.
    pools: fn() -> Pools,
}

/// Capacity of the node, the part of it for guests, and the sum of their reservations.
#[derive(Debug)]
pub(crate) struct CapacityFigures {
    pub(crate) has: NodeInventory,
    pub(crate) allocatable: Capacity,
    pub(crate) used: Used,
    /// Who has CPUs for itself, by uid.
    pub(crate) dedicated: Vec<(String, DedicatedCpus)>,
}

/// Capacity and reservations, under one lock.
#[derive(Debug)]
struct CapacityLedger {
    node_name: String,
    memory_bytes: u64,
    cpus: u32,
    layout: CpuLayout,
    rules: CapacityRules,
    guests: BTreeMap<String, GuestDemand>,
}

impl Reservations {
    /// Nothing is reserved.
    pub(crate) fn new(node_name: String, facts: &NodeFacts, rules: CapacityRules) -> Self {
        Self {
            ledger: Mutex::new(CapacityLedger {
                node_name,
                memory_bytes: facts.memory_bytes,
                cpus: facts.cpus,
                layout: facts.layout.clone(),
                rules,
                guests: BTreeMap::new(),
            }),
            pools: huge_pages,
        }
    }

    /// Capacity, and how much of it is reserved.
    pub(crate) fn figures(&self) -> CapacityFigures {
        let pools = (self.pools)();
        let ledger = self.ledger();
        let has = ledger.has(pools.clone());
        let allocatable = ledger.capacity(pools);
        let guests: Vec<GuestDemand> = ledger.guests.values().cloned().collect();
        drop(ledger);
        let holders = guests.iter().filter(|guest| guest.holds);
        let dedicated = holders.filter_map(|guest| match &guest.demand.cpus {
            Some(CpuGrant::Dedicated(cpus)) => Some((guest.uid.clone(), cpus.clone())),
            Some(CpuGrant::Shared(_)) | None => None,
        });
        CapacityFigures {
            has,
            allocatable,
            used: used(&guests),
            dedicated: dedicated.collect(),
        }
    }

    /// What a VMI would take by the rules that are in force.
    pub(crate) fn demand_of(&self, vmi: &Vmi) -> ResourceDemand {
        ResourceDemand::of(vmi, self.ledger().rules.cpu_allocation_ratio)
    }

    /// Notes a VMI that has been there before this agent.
    pub(crate) fn note(&self, guest: GuestDemand) {
        self.ledger().guests.insert(guest.uid.clone(), guest);
    }

    /// Whether a VMI may take what it needs. When it may, it has it from now on.
    pub(crate) fn ask(&self, uid: &str, since: Timestamp, demand: ResourceDemand) -> Reservation {
        let pools = (self.pools)();
        let mut ledger = self.ledger();
        let guest = ledger.guests.entry(uid.to_owned()).or_default();
        if !guest.holds {
            *guest = GuestDemand {
                uid: uid.to_owned(),
                since,
                demand,
                holds: false,
            };
        }
        let reservation = ledger.reservation_of(uid, pools);
        if let (Some(guest), Reservation::Granted(demand)) =
            (ledger.guests.get_mut(uid), &reservation)
        {
            guest.holds = true;
            guest.demand.clone_from(demand);
        }
        reservation
    }

    /// Ends a reservation. Returns the uids of VMIs that get one now.
    pub(crate) fn release(&self, uid: &str) -> Vec<String> {
        let pools = (self.pools)();
        let mut ledger = self.ledger();
        match ledger.guests.remove(uid) {
            Some(_) => ledger.uids_that_fit(pools),
            None => Vec::new(),
        }
    }

    /// Other rules. What was granted stays so. The answer: who waits, and should ask again.
    pub(crate) fn set_rules(&self, rules: CapacityRules) -> Vec<String> {
        let mut ledger = self.ledger();
        ledger.rules = rules;
        let waiting = ledger.waiting();
        drop(ledger);
        self.warn_of_misplaced();
        waiting
    }

    /// Says who has CPUs that are not set aside: the configuration may have changed while there was no agent.
    pub(crate) fn warn_of_misplaced(&self) {
        let ledger = self.ledger();
        let guests: Vec<GuestDemand> = ledger.guests.values().cloned().collect();
        let capacity = ledger.capacity(Pools::default());
        drop(ledger);
        for found in misplaced(&capacity, &guests) {
            warn!(
                uid = found.uid,
                "this guest keeps the CPUs {} for itself until it ends; capacity.dedicated_cpus does not have \
                 them, and nobody else gets them before",
                found.cpus
            );
        }
    }

    /// No holder of this lock can leave the ledger half written.
    fn ledger(&self) -> MutexGuard<'_, CapacityLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CapacityLedger {
    fn has(&self, pools: Pools) -> NodeInventory {
        NodeInventory {
            memory_bytes: self.memory_bytes,
            cpus: self.cpus,
            layout: self.layout.clone(),
            hugepages: pools,
        }
    }

    fn capacity(&self, pools: Pools) -> Capacity {
        Capacity::of(self.node_name.clone(), self.has(pools), &self.rules)
    }

    fn reservation_of(&self, uid: &str, pools: Pools) -> Reservation {
        let guests: Vec<GuestDemand> = self.guests.values().cloned().collect();
        reservation_of(&self.capacity(pools), &guests, uid).unwrap_or_default()
    }

    fn waiting(&self) -> Vec<String> {
        let waiting = self.guests.values().filter(|guest| !guest.holds);
        waiting.map(|guest| guest.uid.clone()).collect()
    }

    fn uids_that_fit(&self, pools: Pools) -> Vec<String> {
        let guests: Vec<GuestDemand> = self.guests.values().cloned().collect();
        if guests.iter().all(|guest| guest.holds) {
            return Vec::new();
        }
        let fit = uids_that_fit(&self.capacity(pools), &guests);
        fit.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests;

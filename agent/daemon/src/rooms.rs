//! Who takes room on this node, and who waits for it.
//!
//! What was granted is in the records; this is the same in memory, so that two actors never grant
//! themselves the same room. An agent that starts knows all of it before its first actor does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_domain::Vmi;
use agent_host::{NodeFacts, huge_pages};
use agent_plan::{
    Capacity, CapacityRules, Claim, CpuGrant, CpuLayout, DedicatedCpus, NodeHas, Room, Tenant,
    Timestamp, Used, misplaced, room_of, used, who_fits,
};
use tracing::warn;

/// Bytes of huge pages by the size of a page. They come and go while the agent runs.
type Pools = BTreeMap<u64, u64>;

/// The node's room.
#[derive(Debug)]
pub(crate) struct Rooms {
    book: Mutex<Book>,
    /// Asked before the book is opened: the kernel may take its time, and nobody else has to wait for it.
    pools: fn() -> Pools,
}

/// What the node has, what of it is for guests, and what they have.
#[derive(Debug)]
pub(crate) struct RoomFigures {
    pub(crate) has: NodeHas,
    pub(crate) allocatable: Capacity,
    pub(crate) used: Used,
    /// Who has CPUs for itself, by uid.
    pub(crate) dedicated: Vec<(String, DedicatedCpus)>,
}

#[derive(Debug)]
struct Book {
    node_name: String,
    memory_bytes: u64,
    cpus: u32,
    layout: CpuLayout,
    rules: CapacityRules,
    tenants: BTreeMap<String, Tenant>,
}

impl Rooms {
    /// All room is free.
    pub(crate) fn new(node_name: String, facts: &NodeFacts, rules: CapacityRules) -> Self {
        Self {
            book: Mutex::new(Book {
                node_name,
                memory_bytes: facts.memory_bytes,
                cpus: facts.cpus,
                layout: facts.layout.clone(),
                rules,
                tenants: BTreeMap::new(),
            }),
            pools: huge_pages,
        }
    }

    /// How much there is, and how much of it is taken.
    pub(crate) fn figures(&self) -> RoomFigures {
        let pools = (self.pools)();
        let book = self.book();
        let has = book.has(pools.clone());
        let allocatable = book.capacity(pools);
        let tenants: Vec<Tenant> = book.tenants.values().cloned().collect();
        drop(book);
        let holders = tenants.iter().filter(|tenant| tenant.holds);
        let dedicated = holders.filter_map(|tenant| match &tenant.claim.cpus {
            Some(CpuGrant::Dedicated(cpus)) => Some((tenant.uid.clone(), cpus.clone())),
            Some(CpuGrant::Shared(_)) | None => None,
        });
        RoomFigures {
            has,
            allocatable,
            used: used(&tenants),
            dedicated: dedicated.collect(),
        }
    }

    /// What a VMI would take by the rules that are in force.
    pub(crate) fn claim_of(&self, vmi: &Vmi) -> Claim {
        Claim::of(vmi, self.book().rules.cpu_allocation_ratio)
    }

    /// Notes a VMI that has been there before this agent.
    pub(crate) fn note(&self, tenant: Tenant) {
        self.book().tenants.insert(tenant.uid.clone(), tenant);
    }

    /// Whether a VMI may take what it claims. When it may, it has it from now on.
    pub(crate) fn ask(&self, uid: &str, since: Timestamp, claim: Claim) -> Room {
        let pools = (self.pools)();
        let mut book = self.book();
        let tenant = book.tenants.entry(uid.to_owned()).or_default();
        if !tenant.holds {
            *tenant = Tenant {
                uid: uid.to_owned(),
                since,
                claim,
                holds: false,
            };
        }
        let room = book.room_of(uid, pools);
        if let (Some(tenant), Room::Granted(claim)) = (book.tenants.get_mut(uid), &room) {
            tenant.holds = true;
            tenant.claim.clone_from(claim);
        }
        room
    }

    /// A VMI takes no room any more. The answer: whose turn it is now.
    pub(crate) fn release(&self, uid: &str) -> Vec<String> {
        let pools = (self.pools)();
        let mut book = self.book();
        match book.tenants.remove(uid) {
            Some(_) => book.who_fits(pools),
            None => Vec::new(),
        }
    }

    /// Other rules. What was granted stays so. The answer: who waits, and should ask again.
    pub(crate) fn set_rules(&self, rules: CapacityRules) -> Vec<String> {
        let mut book = self.book();
        book.rules = rules;
        let waiting = book.waiting();
        drop(book);
        self.warn_of_misplaced();
        waiting
    }

    /// Says who has CPUs that are not set aside: the configuration may have changed while there was no agent.
    pub(crate) fn warn_of_misplaced(&self) {
        let book = self.book();
        let tenants: Vec<Tenant> = book.tenants.values().cloned().collect();
        let capacity = book.capacity(Pools::default());
        drop(book);
        for found in misplaced(&capacity, &tenants) {
            warn!(
                uid = found.uid,
                "this guest keeps the CPUs {} for itself until it ends; capacity.dedicated_cpus does not have \
                 them, and nobody else gets them before",
                found.cpus
            );
        }
    }

    /// No holder of this lock can leave the book half written.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    fn has(&self, pools: Pools) -> NodeHas {
        NodeHas {
            memory_bytes: self.memory_bytes,
            cpus: self.cpus,
            layout: self.layout.clone(),
            hugepages: pools,
        }
    }

    fn capacity(&self, pools: Pools) -> Capacity {
        Capacity::of(self.node_name.clone(), self.has(pools), &self.rules)
    }

    fn room_of(&self, uid: &str, pools: Pools) -> Room {
        let tenants: Vec<Tenant> = self.tenants.values().cloned().collect();
        room_of(&self.capacity(pools), &tenants, uid).unwrap_or_default()
    }

    fn waiting(&self) -> Vec<String> {
        let waiting = self.tenants.values().filter(|tenant| !tenant.holds);
        waiting.map(|tenant| tenant.uid.clone()).collect()
    }

    fn who_fits(&self, pools: Pools) -> Vec<String> {
        let tenants: Vec<Tenant> = self.tenants.values().cloned().collect();
        if tenants.iter().all(|tenant| tenant.holds) {
            return Vec::new();
        }
        let fit = who_fits(&self.capacity(pools), &tenants);
        fit.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests;

//! Who takes room on this node, and who waits for it.
//!
//! What was granted is in the records; this is the same in memory, so that two actors never grant
//! themselves the same room. An agent that starts knows all of it before its first actor does.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use agent_domain::Vmi;
use agent_host::{NodeFacts, huge_pages};
use agent_plan::{
    Capacity, CapacityRules, Claim, NodeHas, Room, Tenant, Timestamp, room_of, who_fits,
};

/// The node's room.
#[derive(Debug)]
pub(crate) struct Rooms(Mutex<Book>);

#[derive(Debug)]
struct Book {
    node_name: String,
    memory_bytes: u64,
    cpus: u32,
    rules: CapacityRules,
    tenants: BTreeMap<String, Tenant>,
}

impl Rooms {
    /// All room is free.
    pub(crate) fn new(node_name: String, facts: &NodeFacts, rules: CapacityRules) -> Self {
        Self(Mutex::new(Book {
            node_name,
            memory_bytes: facts.memory_bytes,
            cpus: facts.cpus,
            rules,
            tenants: BTreeMap::new(),
        }))
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
        let room = book.room_of(uid);
        if let (Some(tenant), Room::Granted(_)) = (book.tenants.get_mut(uid), &room) {
            tenant.holds = true;
        }
        room
    }

    /// A VMI takes no room any more. The answer: whose turn it is now.
    pub(crate) fn release(&self, uid: &str) -> Vec<String> {
        let mut book = self.book();
        match book.tenants.remove(uid) {
            Some(_) => book.who_fits(),
            None => Vec::new(),
        }
    }

    /// Other rules. What was granted stays so. The answer: who waits, and should ask again.
    pub(crate) fn set_rules(&self, rules: CapacityRules) -> Vec<String> {
        let mut book = self.book();
        book.rules = rules;
        book.waiting()
    }

    /// No holder of this lock can leave the book half written.
    fn book(&self) -> MutexGuard<'_, Book> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Book {
    /// Huge pages come and go while the agent runs.
    fn capacity(&self) -> Capacity {
        let has = NodeHas {
            memory_bytes: self.memory_bytes,
            cpus: self.cpus,
            hugepages: huge_pages(),
        };
        Capacity::of(self.node_name.clone(), has, &self.rules)
    }

    fn room_of(&self, uid: &str) -> Room {
        let tenants: Vec<Tenant> = self.tenants.values().cloned().collect();
        room_of(&self.capacity(), &tenants, uid).unwrap_or_default()
    }

    fn waiting(&self) -> Vec<String> {
        let waiting = self.tenants.values().filter(|tenant| !tenant.holds);
        waiting.map(|tenant| tenant.uid.clone()).collect()
    }

    fn who_fits(&self) -> Vec<String> {
        let tenants: Vec<Tenant> = self.tenants.values().cloned().collect();
        if tenants.iter().all(|tenant| tenant.holds) {
            return Vec::new();
        }
        let fit = who_fits(&self.capacity(), &tenants);
        fit.into_iter().map(str::to_owned).collect()
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::BootId;

    use super::*;

    fn rooms() -> Rooms {
        let facts = NodeFacts {
            boot_id: BootId(String::new()),
            memory_bytes: 1 << 40,
            cpus: 2,
            kvm: Err(String::new()),
        };
        let rules = CapacityRules {
            reserved_memory_bytes: 0,
            reserved_cpu_millis: 0,
            memory_overcommit_percent: 100,
            cpu_allocation_ratio: 10,
        };
        Rooms::new(String::from("node1"), &facts, rules)
    }

    fn cpus(cpu_millis: u64) -> Claim {
        Claim {
            cpu_millis,
            ..Claim::default()
        }
    }

    fn is_granted(room: &Room) -> bool {
        matches!(room, Room::Granted(_))
    }

    #[test]
    fn who_waits_is_called_when_there_is_room_again_and_the_oldest_comes_first() {
        let rooms = rooms();
        assert!(is_granted(&rooms.ask("a", Timestamp(1), cpus(2000))));
        assert!(!is_granted(&rooms.ask("c", Timestamp(3), cpus(1500))));
        assert!(!is_granted(&rooms.ask("b", Timestamp(2), cpus(1500))));
        assert!(is_granted(&rooms.ask("a", Timestamp(1), cpus(2000))));
        assert_eq!(rooms.release("a"), ["b"]);
        // The younger one does not take it away from the one that was called.
        assert!(!is_granted(&rooms.ask("c", Timestamp(3), cpus(1500))));
        assert!(is_granted(&rooms.ask("b", Timestamp(2), cpus(1500))));
        assert!(rooms.release("nobody").is_empty());
        assert!(rooms.release("c").is_empty());
    }

    #[test]
    fn what_ran_before_the_agent_counts_and_other_rules_take_nothing_from_it() {
        let rooms = rooms();
        rooms.note(Tenant {
            uid: String::from("old"),
            since: Timestamp(9),
            claim: cpus(5000),
            holds: true,
        });
        assert!(is_granted(&rooms.ask(
            "old",
            Timestamp(9),
            Claim::default()
        )));
        assert!(!is_granted(&rooms.ask("new", Timestamp(1), cpus(100))));
        let mut rules = rooms.book().rules;
        rules.reserved_cpu_millis = 1000;
        assert_eq!(rooms.set_rules(rules), ["new"]);
        assert!(!is_granted(&rooms.ask("new", Timestamp(1), cpus(100))));
        assert!(is_granted(&rooms.ask(
            "old",
            Timestamp(9),
            Claim::default()
        )));
        assert_eq!(rooms.release("old"), ["new"]);
    }
}

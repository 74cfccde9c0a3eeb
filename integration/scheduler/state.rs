//! What the scheduler knows, and every decision it takes. Pure: time comes in, messages to nodes go out.

use std::collections::{BTreeMap, BTreeSet};

use proto_node::controlplane::answer::Result as Answered;
use proto_node::controlplane::lease::OnExpiry;
use proto_node::controlplane::session_response::Body;
use proto_node::controlplane::{
    Answer, Assignment, Heartbeat, HeartbeatAck, Lease, Register, Report, Withdrawal,
};
use serde::{Deserialize, Serialize};

/// On top of a lease, before its VMI is placed anew: clocks that drift, guests that have to be killed.
const MARGIN_MS: u64 = 10_000;

/// How many guests a node ends at once, and how long they may keep the next ones waiting.
const ENDS_AT_ONCE: u64 = 32;
const TURN_MS: u64 = 10_000;

/// The margin of a node with so many guests, whose leases may be over at the same moment.
fn margin_ms(guests: usize) -> u64 {
    MARGIN_MS + TURN_MS * ((guests as u64).saturating_sub(1) / ENDS_AT_ONCE)
}

/// Messages to send, each with the name of its node.
pub type Orders = Vec<(String, Body)>;

/// Everything; it outlives the scheduler.
#[derive(Default, Serialize, Deserialize)]
pub struct SchedulerState {
    /// The highest fencing token given out.
    pub generation: u64,
    pub vmis: BTreeMap<String, Vmi>,
    pub nodes: BTreeMap<String, Node>,
}

/// A VMI that is to run somewhere.
#[derive(Default, Serialize, Deserialize)]
pub struct Vmi {
    pub manifest: String,
    pub memory_mib: u64,
    pub selector: BTreeMap<String, String>,
    /// Seconds until it is stopped without this scheduler, and those of its grace period.
    pub stop_after: Option<(u32, u32)>,
    /// It stays there until its end is proved.
    pub placement: Option<Placement>,
    pub deleting: bool,
}

#[derive(Default, Serialize, Deserialize)]
pub struct Placement {
    pub node: String,
    pub token: u64,
    /// The node's boot at that time.
    pub boot_id: String,
    pub withdrawn: bool,
    /// The node has spoken under this token: what its lists do not have from then on was not on its way either.
    #[serde(default)]
    pub answered: bool,
    /// As last reported; `Unknown` while the node is away.
    pub phase: String,
    pub message: String,
}

/// A node that has registered at some time.
#[derive(Default, Serialize, Deserialize)]
pub struct Node {
    pub boot_id: String,
    pub labels: BTreeMap<String, String>,
    pub memory_mib: u64,
    /// It starts no guests, as it says itself: it is cordoned, drained or going down.
    pub unschedulable: bool,
    /// A person said that nothing of it runs any more.
    pub fenced: bool,
    pub connected: bool,
    /// When one of its heartbeats was last answered, since the start of the scheduler.
    #[serde(skip)]
    pub answered_at_ms: u64,
    #[serde(skip)]
    reported: BTreeSet<String>,
}

impl SchedulerState {
    /// A node has come. Another boot id than before proves that nothing of before runs.
    pub fn register(&mut self, register: Register, now_ms: u64) -> Orders {
        let name = register.node_name;
        let capacity = register.capacity.unwrap_or_default();
        let node = self.nodes.entry(name.clone()).or_default();
        node.boot_id.clone_from(&register.boot_id);
        node.labels = register.labels;
        node.unschedulable = register.unschedulable;
        node.memory_mib = capacity.memory_bytes >> 20;
        (node.fenced, node.connected, node.answered_at_ms) = (false, true, now_ms);
        node.reported.clear();
        self.free(|it| it.node == name && it.boot_id != register.boot_id)
    }

    /// The node is there, and starts guests or not.
    pub fn beat(&mut self, name: &str, beat: Heartbeat, now_ms: u64) -> Orders {
        let node = self.nodes.entry(name.to_owned()).or_default();
        (node.answered_at_ms, node.unschedulable) = (now_ms, beat.unschedulable);
        let number = beat.number;
        let ack = Body::HeartbeatAck(HeartbeatAck { number });
        [vec![(name.to_owned(), ack)], self.place()].concat()
    }

    /// Nobody hears the node. Its guests are not dead for that, they are unknown.
    pub fn away(&mut self, name: &str) {
        self.nodes.entry(name.to_owned()).or_default().connected = false;
        let vmis = self.vmis.values_mut();
        let places = vmis.filter_map(|vmi| vmi.placement.as_mut());
        for it in places.filter(|it| it.node == name) {
            it.phase = String::from("Unknown");
        }
    }

    /// What the node is to have; then what it was to give back, and may not have heard of.
    pub fn list(&self, node: &str) -> (Orders, Orders) {
        let (mut wanted, mut withdrawn) = (Orders::new(), Orders::new());
        for (key, vmi) in &self.vmis {
            match vmi.placement.as_ref().filter(|it| it.node == node) {
                Some(it) if it.withdrawn => withdrawn.push(withdrawal(node, key, it.token)),
                Some(_) => wanted.extend(assignment(vmi)),
                None => {}
            }
        }
        (wanted, withdrawn)
    }

    pub fn report(&mut self, node: &str, report: &Report) -> Orders {
        let key = format!("{}/{}", report.namespace, report.name);
        if let Some(known) = self.nodes.get_mut(node).filter(|_| !report.gone) {
            known.reported.insert(key.clone());
        }
        let mut is_wanted = false;
        if let Some(placement) = self.placement_on(node, &key, report.token) {
            if let Some(status) = &report.status {
                placement.phase.clone_from(&status.phase);
                placement.message.clone_from(&status.reason);
                // Its node was drained, which is the node's own work: it is to run elsewhere.
                placement.withdrawn |= status.reason == "Evicted";
            }
            placement.answered |= !report.gone;
            is_wanted = !placement.withdrawn;
            if report.gone {
                return self.ended(&key);
            }
        }
        // What is of an earlier placement, or nobody's, goes by its own token.
        if is_wanted || report.gone || report.deleting {
            return Orders::new();
        }
        vec![withdrawal(node, &key, report.token)]
    }

    /// A withdrawn VMI of which the node has heard, and that its whole list does not have, is gone.
    pub fn report_complete(&mut self, node: &str) -> Orders {
        let known = self.nodes.get_mut(node);
        let reported = known.map_or_else(BTreeSet::new, |it| std::mem::take(&mut it.reported));
        let gone = self.vmis.iter().filter(|(key, vmi)| {
            let placement = vmi.placement.as_ref();
            let withdrawn = placement.filter(|it| it.withdrawn && it.answered);
            withdrawn.is_some_and(|it| it.node == node) && !reported.contains(*key)
        });
        let gone: Vec<String> = gone.map(|(key, _)| key.clone()).collect();
        gone.iter().flat_map(|key| self.ended(key)).collect()
    }

    pub fn answer(&mut self, node: &str, answer: &Answer) -> Orders {
        let key = format!("{}/{}", answer.namespace, answer.name);
        let Some(placement) = self.placement_on(node, &key, answer.token) else {
            return Orders::new();
        };
        placement.message.clone_from(&answer.message);
        placement.answered |= answer.result() == Answered::Accepted;
        if answer.result() == Answered::Gone {
            return self.ended(&key);
        }
        Orders::new()
    }

    /// What leases have proved in the meantime.
    pub fn tick(&mut self, now_ms: u64) -> Orders {
        let over = |vmi: &Vmi| {
            let placement = vmi.placement.as_ref()?;
            let node = self.nodes.get(&placement.node)?;
            let (seconds, grace) = vmi.stop_after?;
            if node.connected {
                return None;
            }
            let guests = self.vmis.values().filter_map(|vmi| vmi.placement.as_ref());
            let guests = guests.filter(|it| it.node == placement.node).count();
            let span = (u64::from(seconds) + u64::from(grace)) * 1100 + margin_ms(guests);
            let is_over = now_ms > node.answered_at_ms + span;
            is_over.then_some(placement.token)
        };
        let over: Vec<u64> = self.vmis.values().filter_map(over).collect();
        self.free(|it| over.contains(&it.token))
    }

    /// A person vouches for it that nothing of this node runs.
    pub fn fence(&mut self, name: &str) -> Option<Orders> {
        self.nodes.get_mut(name)?.fenced = true;
        Some(self.free(|it| it.node == name))
    }

    /// Takes a VMI that is not known yet.
    pub fn apply(&mut self, key: String, vmi: Vmi) -> Orders {
        self.vmis.entry(key).or_insert(vmi);
        self.place()
    }

    pub fn delete(&mut self, key: &str) -> Option<Orders> {
        let vmi = self.vmis.get_mut(key)?;
        vmi.deleting = true;
        let placement = vmi.placement.as_mut().map(|it| {
            it.withdrawn = true;
            withdrawal(&it.node, key, it.token)
        });
        let orders: Orders = placement.into_iter().collect();
        Some([orders, self.free(|_| false)].concat())
    }

    fn placement_on(&mut self, node: &str, key: &str, token: u64) -> Option<&mut Placement> {
        let placement = self.vmis.get_mut(key)?.placement.as_mut()?;
        (placement.node == node && placement.token == token).then_some(placement)
    }

    /// A placement's end was proved. What was withdrawn runs elsewhere; what ended by itself has ended.
    fn ended(&mut self, key: &str) -> Orders {
        let vmi = self.vmis.get_mut(key);
        let Some(placement) = vmi.and_then(|vmi| vmi.placement.as_mut()) else {
            return Orders::new();
        };
        placement.phase = String::from("Gone");
        let (withdrawn, token) = (placement.withdrawn, placement.token);
        self.free(|it| withdrawn && it.token == token)
    }

    /// Takes VMIs from places where they certainly run no more, and finds them others.
    fn free(&mut self, is_over: impl Fn(&Placement) -> bool) -> Orders {
        for vmi in self.vmis.values_mut() {
            vmi.placement = vmi.placement.take().filter(|it| !is_over(it));
        }
        self.vmis
            .retain(|_, vmi| vmi.placement.is_some() || !vmi.deleting);
        self.place()
    }

    /// Places what is nowhere, each with a token of its own.
    fn place(&mut self) -> Orders {
        let homeless = self.vmis.iter().filter(|(_, vmi)| vmi.placement.is_none());
        let keys: Vec<String> = homeless.map(|(key, _)| key.clone()).collect();
        let mut orders = Orders::new();
        for key in keys {
            let place = self.vmis.get(&key).and_then(|vmi| self.choose(vmi));
            if let (Some(place), Some(vmi)) = (place, self.vmis.get_mut(&key)) {
                self.generation += 1;
                let token = self.generation;
                vmi.placement = Some(Placement { token, ..place });
                orders.extend(assignment(vmi));
            }
        }
        orders
    }

    /// The node with most memory left of those that have enough of it, and the labels.
    fn choose(&self, vmi: &Vmi) -> Option<Placement> {
        let left = |(name, node): (&String, &Node)| {
            let here = |vmi: &&Vmi| vmi.placement.as_ref().is_some_and(|it| it.node == *name);
            let guests = self.vmis.values().filter(here);
            let taken: u64 = guests.map(|vmi| vmi.memory_mib).sum();
            node.memory_mib.saturating_sub(taken)
        };
        let suits = |node: &Node| {
            let labelled = |(name, value)| node.labels.get(name) == Some(value);
            let is_open = node.connected && !node.fenced && !node.unschedulable;
            is_open && vmi.selector.iter().all(labelled)
        };
        let nodes = self.nodes.iter().filter(|it| suits(it.1));
        let most = nodes.max_by_key(|it| left(*it));
        let (name, node) = most.filter(|it| left(*it) >= vmi.memory_mib)?;
        Some(Placement {
            node: name.clone(),
            boot_id: node.boot_id.clone(),
            ..Placement::default()
        })
    }
}

fn withdrawal(node: &str, key: &str, token: u64) -> (String, Body) {
    let (namespace, name) = key.split_once('/').unwrap_or_default();
    let withdrawal = Withdrawal {
        token,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
        grace_period_seconds: None,
    };
    (node.to_owned(), Body::Withdrawal(withdrawal))
}

fn assignment(vmi: &Vmi) -> Option<(String, Body)> {
    let placement = vmi.placement.as_ref()?;
    let assignment = Assignment {
        token: placement.token,
        object: Some(vmi.manifest.parse().ok()?),
        lease: vmi.stop_after.map(|(seconds, grace)| Lease {
            duration_seconds: seconds,
            on_expiry: OnExpiry::Stop.into(),
            grace_period_seconds: grace,
        }),
    };
    Some((placement.node.clone(), Body::Assignment(assignment)))
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;

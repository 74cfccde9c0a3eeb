//! What a node has on its disk: assignments, and VMIs with their records.

use std::collections::BTreeMap;

use agent_plan::{
    Assignment, Millis, Phase, PhaseEntry, Placed, Record, StopCause, Timestamp, VmiId, order_stop,
};

/// A node's ledger. Each change of it is one transaction.
#[derive(Debug, Default)]
pub(super) struct Disk {
    pub(super) assignments: BTreeMap<String, Assignment>,
    /// The highest token seen.
    pub(super) highest: u64,
    pub(super) vmis: BTreeMap<String, Vmi>,
    /// The node is drained: it starts no guests, and ends those that it has.
    pub(super) draining: bool,
}

impl Disk {
    pub(super) fn put(&mut self, name: &str, assignment: Assignment) {
        self.highest = self.highest.max(assignment.token);
        self.assignments.insert(name.to_owned(), assignment);
    }

    pub(super) fn placed(&self, name: &str) -> Option<Placed> {
        self.vmis.get(name).map(|vmi| Placed {
            token: vmi.token,
            deleting: vmi.deletes_by.is_some(),
        })
    }
}

/// A VMI, and its guest as far as it runs.
#[derive(Debug)]
pub(super) struct Vmi {
    pub(super) token: u64,
    pub(super) record: Record,
    /// By when it is ended, by the node's clock, once it is deleted.
    pub(super) deletes_by: Option<Timestamp>,
    /// Its guest runs now; gone with the power.
    pub(super) runs: bool,
    /// In which boot it was made, or ran.
    pub(super) boot: u32,
}

impl Vmi {
    pub(super) fn new(name: &str, token: u64, boot: u32, now: Timestamp) -> Self {
        let id = VmiId {
            uid: format!("{name}-{token}"),
            namespace: String::from("default"),
            name: name.to_owned(),
        };
        Self {
            token,
            record: Record::new(id, now),
            deletes_by: None,
            runs: false,
            boot,
        }
    }

    pub(super) fn phase(&self) -> &'static str {
        self.record.phase().as_str()
    }

    pub(super) fn enter(&mut self, phase: Phase, at: Timestamp) {
        self.record.report.phases.push(PhaseEntry { phase, at });
        self.runs = phase == Phase::Running;
    }

    /// By when its guest has to have ended, if that was asked for.
    pub(super) fn ends_by(&self) -> Option<Timestamp> {
        let stop = self.record.orders.stop;
        let stop = stop.map(|stop| stop.requested_at.plus(stop.grace));
        [stop, self.deletes_by].into_iter().flatten().min()
    }

    /// Asks its guest to end, because its node is drained.
    pub(super) fn evict(&mut self, now: Timestamp, grace: Millis) {
        if self.record.orders.stop.is_some() || self.deletes_by.is_some() {
            return;
        }
        if let Ok(orders) = order_stop(&self.record, grace, StopCause::Drain, now) {
            self.record.orders = orders;
        }
    }

    /// It has ended because its node was drained.
    pub(super) fn was_evicted(&self) -> bool {
        let stop = self.record.orders.stop;
        self.record.phase().is_final() && stop.is_some_and(|stop| stop.cause == StopCause::Drain)
    }

    /// Marks it deleted; a second time only shortens.
    pub(super) fn delete(&mut self, now: Timestamp, grace: Millis) {
        let by = now.plus(grace);
        self.deletes_by = Some(self.deletes_by.map_or(by, |before| before.min(by)));
    }
}

//! What people ask of the VMI, and what they may then expect.

use agent_plan::{Millis, Order, Orders, Record, order};

use super::world::{Asked, GRACE, World};

/// A clock that was set by less than this was not set.
const TOLERANCE: Millis = Millis::from_secs(1);

impl World {
    /// Deletes the VMI when that is due. A full store refuses, and it is tried again.
    pub(super) fn delete_when_due(&mut self) {
        let is_due = self.deletes_at.is_some_and(|at| at <= self.now);
        if is_due && self.disk.object_exists && !self.store_is_full() {
            self.deletes_at = None;
            self.disk.deletion_requested_at = Some(self.wall());
            self.asked.deletion = Some(self.now);
            self.log(|| String::from("user     deletes the VMI"));
        }
    }

    /// What people ask of a guest. What does not fit its state is refused, as the agent refuses it.
    pub(super) fn requests(&mut self) {
        if !self.disk.object_exists || self.disk.deletion_requested_at.is_some() {
            return;
        }
        let asked = match self.random.below(100) {
            0..4 => Order::Pause,
            4..9 => Order::Unpause,
            9 if self.random.chance(10) => Order::Stop { grace: GRACE },
            10..13 if !self.store_is_full() => {
                self.cable_out = !self.cable_out;
                self.log(|| format!("user     wants the cable out: {}", self.cable_out));
                return;
            }
            _ => return,
        };
        let mut record = self.disk.record.clone();
        self.follow_clock(&mut record);
        let answer = order(&record, asked, self.wall());
        let is_taken = answer.is_ok() && !self.store_is_full();
        self.log(|| format!("user     {asked:?}: {is_taken}"));
        if let Ok(orders) = answer
            && is_taken
        {
            if orders.stop.is_some() {
                self.asked.stop.get_or_insert(self.now);
            }
            self.promised = orders.clone();
            self.disk.record.orders = Orders {
                // An earlier release does not know of it.
                clock: orders.clock.clone().filter(|_| !self.older),
                ..orders
            };
        }
    }

    /// As the agent does it that is there.
    pub(crate) fn follow_clock(&self, record: &mut Record) {
        if !self.older {
            record.follow_clock(self.wall(), &self.boot_time());
        }
    }

    /// Whether a guest may be ended by force now.
    pub(crate) fn may_be_ended(&self) -> bool {
        let Asked {
            deletion,
            stop,
            unhealthy,
        } = self.asked;
        let graced = [deletion, stop, unhealthy]
            .into_iter()
            .flatten()
            .any(|at| at.plus(GRACE) <= self.now.plus(TOLERANCE));
        graced || !self.disk.object_exists
    }
}

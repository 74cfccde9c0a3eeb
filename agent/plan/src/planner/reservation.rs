//! The reservation of a VMI: it starts once it has one, and keeps it until its VMM is gone. A node that is closed grants
//! none.

use super::draft::Draft;
use crate::condition::{Condition, EventKind};
use crate::dedicated::DedicatedCpus;
use crate::report::{POD_SCHEDULED, UNSCHEDULABLE};
use crate::reservation::{CpuGrant, Reservation};
use crate::time::Millis;

/// Interval between attempts without a wake-up: the node may have been given more.
const ASK_AGAIN: Millis = Millis::from_secs(30);

impl Draft<'_> {
    /// A launch of an agent that recorded no demands counts as a reservation all the same.
    pub(super) fn adopt_reservation(&mut self) {
        let record = &mut self.plan.record;
        if let (Some(_), None, Reservation::Granted(demand)) = (
            record.launches.present(),
            &record.report.end,
            &self.wanted.reservation,
        ) {
            record
                .allocations
                .reservation
                .get_or_insert_with(|| demand.clone());
        }
    }

    /// Whether the node starts guests; false when the VMI has to wait for that. Whoever opens the node wakes it.
    pub(super) fn is_schedulable(&mut self) -> bool {
        let Some(closed) = &self.wanted.closed else {
            return true;
        };
        let is_known = |it: &Condition| it.kind == POD_SCHEDULED && it.reason == closed.reason;
        if !self.plan.record.report.conditions.iter().any(is_known) {
            self.event(EventKind::Warning, "FailedScheduling", &closed.message);
        }
        self.poll_after(ASK_AGAIN);
        false
    }

    /// Takes what the VMI needs of the node; false when it has to wait for it.
    pub(super) fn reserve(&mut self) -> bool {
        let record = &mut self.plan.record;
        if record.allocations.reservation.is_some() {
            return true;
        }
        match &self.wanted.reservation {
            Reservation::Granted(demand) => {
                record.allocations.reservation = Some(demand.clone());
                if let Some(CpuGrant::Dedicated(cpus)) = &demand.cpus {
                    let message = assigned(cpus);
                    self.event(EventKind::Normal, "DedicatedCPUsAssigned", &message);
                }
                true
            }
            Reservation::Waits { why } => {
                let is_known = record
                    .report
                    .conditions
                    .iter()
                    .any(|it| it.kind == POD_SCHEDULED && it.reason == UNSCHEDULABLE);
                if !is_known {
                    self.event(EventKind::Warning, "FailedScheduling", why);
                }
                self.poll_after(ASK_AGAIN);
                false
            }
        }
    }
}

/// Which CPUs are whose; KubeVirt's status has no place for it.
fn assigned(cpus: &DedicatedCpus) -> String {
    let vcpus: Vec<String> = cpus
        .vcpus
        .iter()
        .map(|pinned| pinned.cpu.to_string())
        .collect();
    let vcpus = vcpus.join(", ");
    match cpus.emulator {
        Some(cpu) => format!(
            "vCPUs have the node's CPUs {vcpus} for themselves, the VMM's other threads CPU {cpu}"
        ),
        None => format!("vCPUs have the node's CPUs {vcpus} for themselves"),
    }
}

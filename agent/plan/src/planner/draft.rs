//! A plan in the making, and the VMM that it is about.

use crate::action::Action;
use crate::condition::{EventKind, PlanEvent};
use crate::observation::{Observed, VmmObserved};
use crate::record::{Phase, PhaseEntry, Record};
use crate::time::{Millis, Timestamp};
use crate::wanted::Wanted;

/// How long an ended or refusing VMM may take to go by itself before it is killed.
pub(super) const REAP_AFTER: Millis = Millis::from_secs(5);

/// Time to the next observation when a question could not be answered, or an effect is awaited.
pub(super) const POLL_INTERVAL: Millis = Millis::from_secs(1);

/// What to do next for one VMI, and what to say of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// In this order; the first that fails ends the plan.
    pub actions: Vec<Action>,
    /// To be stored before the first action when it differs from the record that was planned from.
    pub record: Record,
    /// To be recorded once the record is stored.
    pub events: Vec<PlanEvent>,
    /// When to look again even if nothing calls for it.
    pub wake_at: Option<Timestamp>,
    /// Deletion is done: nothing of the VMI is left on the host, its object may go.
    pub gone: bool,
}

/// The VMM of the present incarnation, when it lives.
pub(crate) fn ours<'a>(record: &Record, observed: &'a Observed) -> Option<&'a VmmObserved> {
    let launch = record.launches.present()?;
    observed.vmms.present()?.iter().find(|vmm| {
        vmm.incarnation == record.launches.incarnation()
            && launch
                .identity
                .as_ref()
                .is_none_or(|known| *known == vmm.identity)
    })
}

/// A plan in the making.
pub(crate) struct Draft<'a> {
    pub(crate) wanted: &'a Wanted,
    pub(crate) observed: &'a Observed,
    pub(crate) now: Timestamp,
    pub(crate) plan: Plan,
}

impl Draft<'_> {
    /// The guest runs, or would if nobody held it.
    pub(super) fn note_running(&mut self) {
        let now = self.now;
        let Some(launch) = self.plan.record.launches.present_mut() else {
            return;
        };
        launch.boot_intended_at.get_or_insert(now);
        let first_seen = launch.running_at.is_none();
        launch.running_at.get_or_insert(now);
        self.reach(Phase::Running);
        if first_seen {
            self.plan.record.report.failures = crate::record::StartFailures::default();
            self.event(
                EventKind::Normal,
                "Started",
                "VirtualMachineInstance started.",
            );
        }
    }

    /// Enters a phase unless it, or one after it, was entered before.
    pub(super) fn reach(&mut self, phase: Phase) {
        let record = &mut self.plan.record;
        if record
            .report
            .phases
            .last()
            .is_none_or(|last| last.phase < phase)
        {
            record.report.phases.push(PhaseEntry {
                phase,
                at: self.now,
            });
        }
    }

    pub(crate) fn event(&mut self, kind: EventKind, reason: &str, message: &str) {
        self.plan.events.push(PlanEvent {
            kind,
            reason: reason.to_owned(),
            message: message.to_owned(),
        });
    }

    pub(super) fn poll_after(&mut self, after: Millis) {
        self.wake(self.now.plus(after));
    }

    pub(super) fn wake(&mut self, at: Timestamp) {
        self.plan.wake_at = Some(
            self.plan
                .wake_at
                .map_or(at, |present| if present < at { present } else { at }),
        );
    }
}

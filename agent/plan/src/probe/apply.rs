//! What a plan makes of the results of probes.

use super::results::{ProbeResult, Unhealthy};
use crate::condition::EventKind;
use crate::observation::{MachineState, Observed};
use crate::planner::draft::{Draft, ours};
use crate::planner::finish::ending;
use crate::record::{Phase, Record};
use crate::time::Timestamp;
use crate::wanted::Wanted;

/// Since when the guest runs, if it is to be asked anything: one that is paused, that is being ended or whose VMM
/// is silent is left alone.
#[must_use]
pub fn may_be_probed(wanted: &Wanted, record: &Record, observed: &Observed) -> Option<Timestamp> {
    if record.report.end.is_some() || ending(wanted, record).is_some() {
        return None;
    }
    let machine = ours(record, observed)?.machine.present()?;
    let running_at = record.launches.present()?.running_at;
    running_at.filter(|_| machine.state == MachineState::Running)
}

/// A guest that was ended for its liveness probe has not succeeded, however it went.
pub(crate) fn of_the_unhealthy(
    record: &Record,
    (phase, reason, message): (Phase, String, String),
) -> (Phase, String, String) {
    let Some(unhealthy) = record
        .report
        .probes
        .unhealthy
        .as_ref()
        .filter(|_| phase == Phase::Succeeded)
    else {
        return (phase, reason, message);
    };
    let why = &unhealthy.why;
    (
        Phase::Failed,
        String::from("LivenessProbeFailed"),
        format!(
            "The guest was ended because its liveness probe failed ({why}). {reason}: {message}"
        ),
    )
}

impl Draft<'_> {
    /// Takes over the results of probes. A liveness result of a guest that is not seen running at this
    /// moment is ignored.
    pub(crate) fn apply_probe_results(&mut self) {
        let results = &self.wanted.probes;
        if let Some(result) = &results.readiness
            && *result != ProbeResult::None
        {
            self.plan.record.report.probes.readiness = result.clone();
        }
        let Some(ProbeResult::Failed { why }) = &results.liveness else {
            return;
        };
        if may_be_probed(self.wanted, &self.plan.record, self.observed).is_none() {
            return;
        }
        self.plan.record.report.probes.unhealthy = Some(Unhealthy {
            at: self.now,
            why: why.clone(),
        });
        self.event(
            EventKind::Normal,
            "Killing",
            "VirtualMachineInstance failed liveness probe, will be stopped",
        );
    }
}

//! Which operation is under way, as status shows it.

use super::{OperationObserved, OperationState, Progress, ReportedOperation, Work};
use crate::observation::{MachineState, Observation, Observed};
use crate::planner::draft::ours;
use crate::record::Record;
use crate::time::{Millis, Timestamp};

/// Shortest time between two reports of progress: each costs a write to disk.
pub(super) const REPORT_INTERVAL: Millis = Millis::from_secs(2);

/// The operation that was seen, as status is to show it; `before`, while only its progress changed and
/// [`REPORT_INTERVAL`] is not over.
pub(crate) fn shown(
    before: Option<&ReportedOperation>,
    observed: &Observed,
    now: Timestamp,
) -> Option<ReportedOperation> {
    let after = match &observed.operation {
        Observation::Absent => return None,
        Observation::Unknown { why, since } => ReportedOperation {
            reason: String::from(NO_ANSWER),
            since: *since,
            at: now,
            unknown: true,
            progress: Progress {
                what: why.clone(),
                ..Progress::default()
            },
        },
        Observation::Present(OperationObserved { work, state }) => match state {
            OperationState::Done => return None,
            OperationState::Running { since, progress } => {
                let mut progress = progress.clone().unwrap_or_default();
                if progress.what.is_empty() {
                    work.describe().clone_into(&mut progress.what);
                }
                let reason = match &progress.reason {
                    reason if reason.is_empty() => work.reason().to_owned(),
                    reason => reason.clone(),
                };
                ReportedOperation {
                    reason,
                    since: *since,
                    at: now,
                    unknown: false,
                    progress,
                }
            }
        },
    };
    let is_same = |before: &&ReportedOperation| {
        let what = |it: &ReportedOperation| (it.reason.clone(), it.progress.what.clone());
        let is_fresh = now.since(before.at).0 < REPORT_INTERVAL.0 && before.at <= now;
        let is_still = before.progress == after.progress;
        what(before) == what(&after) && before.unknown == after.unknown && (is_fresh || is_still)
    };
    before.filter(is_same).cloned().or(Some(after))
}

/// Reason of an operation that waits for a file system.
pub(crate) const NO_ANSWER: &str = "FileSystemNotAnswering";

/// Whether somebody still wants what an operation brings, on the way to a running guest.
pub(crate) fn is_wanted(work: Work, record: &Record, observed: &Observed) -> bool {
    if has_machine(record, observed) {
        return false;
    }
    match work {
        Work::BootFiles | Work::Disks => true,
        Work::Machine { incarnation } => {
            incarnation == record.launches.incarnation() && ours(record, observed).is_some()
        }
        Work::PowerButton { .. } => false,
    }
}

/// Whether the present VMM is known to have its machine. One that does not answer may have none yet.
pub(crate) fn has_machine(record: &Record, observed: &Observed) -> bool {
    let vmm = ours(record, observed);
    let machine = vmm.and_then(|vmm| vmm.machine.present());
    machine.is_some_and(|machine| machine.state != MachineState::Unconfigured)
}

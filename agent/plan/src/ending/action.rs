//! What follows from the outcome of one action.

use super::conclude::{conclude, count_failure};
use crate::action::{Action, Completed, Failure, FailureClass};
use crate::condition::{EventKind, PlanEvent};
use crate::images;
use crate::operation::Work;
use crate::record::{Phase, Record};
use crate::time::{Millis, Timestamp};

/// Until an action that waits for other work is tried again.
const POLL_PENDING_INTERVAL: Millis = Millis::from_secs(1);

/// Says that no vCPU runs any more.
pub(crate) const PAUSED_EVENT: &str = "VirtualMachineInstance paused.";

/// Says that vCPUs run again.
const UNPAUSED_EVENT: &str = "VirtualMachineInstance unpaused.";

/// What a record becomes by the outcome of one action; events when there is something to say.
///
/// Storing the result may be lost without harm: the next observation finds out the same.
#[must_use]
pub fn complete(
    record: &Record,
    action: &Action,
    outcome: &Result<Completed, Failure>,
    now: Timestamp,
) -> (Record, Vec<PlanEvent>) {
    let mut record = record.clone();
    let events = match outcome {
        Ok(completed) => Vec::from_iter(succeed(&mut record, action, completed, now)),
        Err(failure) => fail(&mut record, action, failure, now),
    };
    (record, events)
}

fn succeed(
    record: &mut Record,
    action: &Action,
    completed: &Completed,
    now: Timestamp,
) -> Option<PlanEvent> {
    match (action, completed) {
        (_, Completed::Begun) => {
            await_operation(record, action);
            None
        }
        (Action::StartVmm { incarnation }, Completed::Started(identity))
            if *incarnation == record.launches.incarnation() =>
        {
            if let Some(launch) = record.launches.present_mut() {
                launch.identity.get_or_insert_with(|| identity.clone());
            }
            None
        }
        (Action::PressPowerButton { .. }, _) => {
            record.report.stop.as_mut()?.pressed_at.get_or_insert(now);
            Some(normal("ShuttingDown", "Signaled Graceful Shutdown"))
        }
        (Action::PauseVmm { .. }, _) => Some(normal("Paused", PAUSED_EVENT)),
        (Action::ResumeVmm { .. }, _) => {
            record.report.unpauses_done = record.orders.unpauses;
            if let Some(stop) = &mut record.report.stop {
                stop.resumed_at.get_or_insert(now);
            }
            Some(normal("Unpaused", UNPAUSED_EVENT))
        }
        (Action::BootVmm { .. }, _) => {
            let was_held = record.launches.present()?.running_at.is_some();
            was_held.then(|| normal("Unpaused", UNPAUSED_EVENT))
        }
        (Action::StopVmm { .. } | Action::KillVmm { .. }, _) => {
            if matches!(action, Action::StopVmm { .. }) {
                note_order(record, now);
            }
            let has_ended = record.report.end.is_some();
            (!has_ended).then(|| normal("Deleted", "Signaled Deletion"))
        }
        _ => None,
    }
}

/// Notes that a VMM was ordered to end, or could not be: its time until it is killed begins.
fn note_order(record: &mut Record, now: Timestamp) {
    if let Some(end) = &mut record.report.end {
        end.ordered_at.get_or_insert(now);
    } else if let Some(stop) = &mut record.report.stop {
        stop.ordered_at.get_or_insert(now);
    }
}

fn fail(record: &mut Record, action: &Action, failure: &Failure, now: Timestamp) -> Vec<PlanEvent> {
    if matches!(action, Action::StopVmm { .. }) {
        note_order(record, now);
    }
    match action {
        Action::EnsureKernel
        | Action::EnsureDisks
        | Action::EnsureTaps
        | Action::EnsureRunDir { .. } => {
            withdraw_intent(record);
        }
        Action::StartVmm { .. } | Action::ConfigureVmm { .. } | Action::BootVmm { .. } => {}
        Action::PauseVmm { .. }
        | Action::ResumeVmm { .. }
        | Action::SetLink { .. }
        | Action::PressPowerButton { .. }
        | Action::StopVmm { .. }
        | Action::KillVmm { .. }
        | Action::CancelOperation
        | Action::Release { .. } => {
            let message = format!("{}: {}: {}", action.name(), failure.reason, failure.message);
            return vec![PlanEvent {
                kind: EventKind::Warning,
                reason: String::from("SyncFailed"),
                message,
            }];
        }
    }
    if failure.class == FailureClass::Fatal && record.report.end.is_none() {
        let (reason, message) = (&failure.reason, &failure.message);
        return vec![conclude(record, Phase::Failed, reason, message, now)];
    }
    if failure.class == FailureClass::Pending {
        return note_pending(record, failure, now);
    }
    let counted = count_failure(record, failure.clone(), now);
    images::failed(failure).unwrap_or_else(|| vec![counted])
}

/// No VMM was asked for yet under this intent, unless one was known before.
fn withdraw_intent(record: &mut Record) {
    let launch = record.launches.present();
    if launch.is_some_and(|launch| launch.identity.is_none()) {
        record.launches.give_up();
    }
}

/// The start waits for what an operation makes ready. Nothing of the actions after it was carried out.
fn await_operation(record: &mut Record, action: &Action) {
    if matches!(action.work(), Some(Work::BootFiles | Work::Disks)) {
        withdraw_intent(record);
    }
}

/// Looks again soon, and sends one event. What is worked at counts its own failures.
fn note_pending(record: &mut Record, failure: &Failure, now: Timestamp) -> Vec<PlanEvent> {
    let failures = &mut record.report.failures;
    failures.retry_at = Some(now.plus(POLL_PENDING_INTERVAL));
    // What changes besides is progress.
    let before = failures.last.as_ref().map(|last| last.reason.as_str());
    let is_new = before != Some(failure.reason.as_str());
    failures.last = Some(failure.clone());
    if !is_new {
        return Vec::new();
    }
    images::failed(failure).unwrap_or_else(|| {
        vec![PlanEvent {
            kind: EventKind::Warning,
            reason: failure.reason.clone(),
            message: failure.message.clone(),
        }]
    })
}

fn normal(reason: &str, message: &str) -> PlanEvent {
    PlanEvent {
        kind: EventKind::Normal,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VmiId;

    #[test]
    fn work_under_way_counts_no_failure_and_is_said_once() {
        let id = VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let pending = |reason: &str, message: &str| {
            Err(Failure {
                class: FailureClass::Pending,
                reason: reason.to_owned(),
                message: message.to_owned(),
            })
        };
        let record = Record::new(id, Timestamp(0));
        let action = Action::EnsureDisks;
        let missing = pending("FailedMount", "secret \"a\" not found");
        let (record, events) = complete(&record, &action, &missing, Timestamp(0));
        assert_eq!(events.first().unwrap().kind, EventKind::Warning);
        let (record, events) = complete(&record, &action, &missing, Timestamp(0));
        assert_eq!(events, []);
        let backs_off = pending("ImagePullBackOff", "Back-off pulling image \"a\": no route");
        let (record, events) = complete(&record, &action, &backs_off, Timestamp(0));
        let reasons: Vec<_> = events.iter().map(|event| event.reason.as_str()).collect();
        assert_eq!(reasons, ["BackOff", "Failed"]);
        assert_eq!(record.report.failures.count, 0);
        assert_eq!(record.report.failures.retry_at, Some(Timestamp(1000)));
        assert_eq!(
            record.report.failures.last.unwrap().reason,
            "ImagePullBackOff"
        );
    }
}

//! Concluding that a guest has ended, and counting starts that failed.

use super::ordered::NODE_SHUTDOWN;
use crate::action::Failure;
use crate::condition::{EventKind, PlanEvent};
use crate::record::{End, Phase, PhaseEntry, Record};
use crate::time::{Millis, Timestamp};

/// How many VMMs may die before their guest ran until the VMI fails.
pub(super) const MAX_VMM_DEATHS: u32 = 5;

/// The first pause between two attempts to start.
pub(super) const FIRST_BACK_OFF: Millis = Millis::from_secs(1);

/// The longest pause between two attempts to start.
pub(crate) const MAX_BACK_OFF: Millis = Millis::from_secs(300);

/// Enters the final phase, once.
pub(crate) fn conclude(
    record: &mut Record,
    phase: Phase,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> PlanEvent {
    if record.report.end.is_none() {
        record.report.end = Some(End {
            phase,
            reason: reason.to_owned(),
            message: message.to_owned(),
            at: now,
            reaping_since: None,
            ordered_at: None,
        });
        record.report.phases.push(PhaseEntry { phase, at: now });
    }
    let (kind, text) = if phase == Phase::Succeeded {
        (
            EventKind::Normal,
            "The VirtualMachineInstance was shut down.",
        )
    } else if reason == NODE_SHUTDOWN {
        (
            EventKind::Warning,
            "The VirtualMachineInstance was ended by force.",
        )
    } else if record.may_have_run() {
        (EventKind::Warning, "The VirtualMachineInstance crashed.")
    } else {
        (
            EventKind::Warning,
            "The VirtualMachineInstance was not started.",
        )
    };
    PlanEvent {
        kind,
        reason: String::from("Stopped"),
        message: format!("{text} {reason}: {message}"),
    }
}

/// A VMM was lost before its guest ran: a failed start, and the last one when there were too many.
pub(crate) fn count_vmm_death(record: &mut Record, failure: Failure, now: Timestamp) -> PlanEvent {
    record.launches.give_up();
    record.report.failures.vmm_deaths += 1;
    if record.report.failures.vmm_deaths >= MAX_VMM_DEATHS {
        let message = format!(
            "{} VMMs ended before the guest ran; the last: {}",
            MAX_VMM_DEATHS, failure.message
        );
        return conclude(record, Phase::Failed, &failure.reason, &message, now);
    }
    count_failure(record, failure, now)
}

/// Notes a failed attempt and when to try again.
pub(super) fn count_failure(record: &mut Record, failure: Failure, now: Timestamp) -> PlanEvent {
    let failures = &mut record.report.failures;
    failures.count = failures.count.saturating_add(1);
    failures.retry_at = Some(now.plus(back_off(failures.count)));
    let message = format!("{}: {}", failure.reason, failure.message);
    failures.last = Some(failure);
    PlanEvent {
        kind: EventKind::Warning,
        reason: String::from("SyncFailed"),
        message,
    }
}

/// Doubles from one second to five minutes.
pub(super) fn back_off(count: u32) -> Millis {
    let doublings = count.saturating_sub(1).min(16);
    let span = FIRST_BACK_OFF.0 << doublings;
    if span < MAX_BACK_OFF.0 {
        Millis(span)
    } else {
        MAX_BACK_OFF
    }
}

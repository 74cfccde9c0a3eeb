//! How a launch ends: what the evidence says, and what follows from it.

mod action;
mod ordered;

pub(crate) use self::action::PAUSED_EVENT;
pub use self::action::complete;
use self::ordered::NODE_SHUTDOWN;
pub(crate) use self::ordered::as_ordered;
use crate::planner::ours;
use crate::{
    End, EventKind, ExitObserved, ExitReason, Failure, Millis, Observation, Observed, Phase,
    PhaseEntry, PlanEvent, Record, Timestamp, Verdict,
};

/// How many VMMs may die before their guest ran until the VMI fails.
const MAX_VMM_DEATHS: u32 = 5;

/// The first pause between two attempts to start.
const FIRST_BACK_OFF: Millis = Millis::from_secs(1);

/// The longest pause between two attempts to start.
pub(crate) const MAX_BACK_OFF: Millis = Millis::from_secs(300);

/// State of the present launch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// There is none, or it is under way.
    Open,
    /// The evidence is missing.
    Unknown,
    /// It came to nothing, and nothing was lost.
    Nothing,
    /// A VMM was started and is gone; its guest never ran.
    DiedBeforeBoot(Failure),
    /// The guest may have run, and runs no more.
    Ended {
        phase: Phase,
        reason: String,
        message: String,
    },
}

/// Weighs the evidence. Only proof ends a VMI: another boot, an exit record, or the certain absence of
/// both process and record.
pub(crate) fn fate(record: &Record, observed: &Observed) -> Fate {
    let Some(launch) = &record.launch else {
        return Fate::Open;
    };
    let Some(boot_id) = observed.boot_id.present() else {
        return Fate::Unknown;
    };
    if *boot_id != launch.boot_id {
        return if record.may_have_run() {
            node_rebooted()
        } else {
            Fate::Nothing
        };
    }
    if observed.vmms.is_unknown() && observed.exit.present().is_none() {
        return Fate::Unknown;
    }
    let lives = ours(record, observed).is_some();
    match &observed.exit {
        Observation::Present(exit) if record.may_have_run() => ended(exit),
        Observation::Present(_) if observed.vmms.is_unknown() => Fate::Unknown,
        Observation::Present(_) if lives => Fate::Open,
        Observation::Present(exit) => Fate::DiedBeforeBoot(death(exit)),
        _ if lives => Fate::Open,
        Observation::Unknown { .. } => Fate::Unknown,
        Observation::Absent => vanished(record),
    }
}

/// The process is gone and left no record.
fn vanished(record: &Record) -> Fate {
    if record.may_have_run() {
        if record
            .stop
            .as_ref()
            .is_some_and(|stop| stop.hard_since.is_some())
        {
            return Fate::Ended {
                phase: Phase::Succeeded,
                reason: String::from("Killed"),
                message: String::from(
                    "The VirtualMachineInstance was ended by force after its grace period.",
                ),
            };
        }
        return Fate::Ended {
            phase: Phase::Failed,
            reason: String::from("VmmVanished"),
            message: String::from(
                "The guest's VMM process is gone and left no exit record; it was killed or crashed.",
            ),
        };
    }
    let known = record
        .launch
        .as_ref()
        .is_some_and(|launch| launch.identity.is_some());
    if known {
        Fate::DiedBeforeBoot(Failure {
            verdict: Verdict::Retry,
            reason: String::from("VmmVanished"),
            message: String::from(
                "The VMM process ended before the guest was booted and left no exit record.",
            ),
        })
    } else {
        Fate::Nothing
    }
}

fn node_rebooted() -> Fate {
    Fate::Ended {
        phase: Phase::Failed,
        reason: String::from("NodeRebooted"),
        message: String::from(
            "The node was restarted while the guest ran; a guest never runs twice under one uid.",
        ),
    }
}

fn death(exit: &ExitObserved) -> Failure {
    let (_, reason, message) = verdict_of(exit);
    Failure {
        verdict: Verdict::Retry,
        reason: reason.to_owned(),
        message,
    }
}

fn ended(exit: &ExitObserved) -> Fate {
    let (phase, reason, message) = verdict_of(exit);
    Fate::Ended {
        phase,
        reason: reason.to_owned(),
        message,
    }
}

/// What an exit record means for a VMI whose guest ran.
fn verdict_of(exit: &ExitObserved) -> (Phase, &'static str, String) {
    let (phase, reason, text) = match exit.reason {
        ExitReason::GuestPoweroff => (
            Phase::Succeeded,
            "GuestPoweroff",
            "The guest powered itself off",
        ),
        ExitReason::GuestReset => (
            Phase::Succeeded,
            "GuestReset",
            "The guest reset itself, which ends it here",
        ),
        ExitReason::Stopped => (
            Phase::Succeeded,
            "Stopped",
            "The guest was ended on request",
        ),
        ExitReason::TripleFault => (
            Phase::Failed,
            "TripleFault",
            "A vCPU shut down by a triple fault",
        ),
        ExitReason::GuestPanicked => (
            Phase::Failed,
            "GuestPanicked",
            "The guest's kernel panicked",
        ),
        ExitReason::KvmError => (
            Phase::Failed,
            "KvmError",
            "KVM could not go on running the guest",
        ),
        ExitReason::VmmError => (Phase::Failed, "VmmError", "The VMM failed"),
        ExitReason::ConfigureFailed => (
            Phase::Failed,
            "ConfigureFailed",
            "The machine could not be built",
        ),
        ExitReason::DebugExit => (
            Phase::Failed,
            "DebugExit",
            "The guest wrote to the debug exit port",
        ),
        ExitReason::Watchdog => (
            Phase::Failed,
            "Watchdog",
            "The guest let its watchdog run out",
        ),
        ExitReason::OomKilled => (
            Phase::Failed,
            "OOMKilled",
            "The kernel killed the guest's VMM for want of memory",
        ),
        ExitReason::Other => (
            Phase::Failed,
            "Unrecognized",
            "The guest ended for a reason that this agent does not know",
        ),
    };
    let message = if exit.detail.is_empty() {
        format!("{text}.")
    } else {
        format!("{text}: {}.", exit.detail)
    };
    (phase, reason, message)
}

/// Enters the final phase, once.
pub(crate) fn conclude(
    record: &mut Record,
    phase: Phase,
    reason: &str,
    message: &str,
    now: Timestamp,
) -> PlanEvent {
    if record.end.is_none() {
        record.end = Some(End {
            phase,
            reason: reason.to_owned(),
            message: message.to_owned(),
            at: now,
            reaping_since: None,
        });
        record.phases.push(PhaseEntry { phase, at: now });
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
    record.launch = None;
    record.failures.vmm_deaths += 1;
    if record.failures.vmm_deaths >= MAX_VMM_DEATHS {
        let message = format!(
            "{} VMMs ended before the guest ran; the last: {}",
            MAX_VMM_DEATHS, failure.message
        );
        return conclude(record, Phase::Failed, &failure.reason, &message, now);
    }
    count_failure(record, failure, now)
}

/// Notes a failed attempt and when to try again.
fn count_failure(record: &mut Record, failure: Failure, now: Timestamp) -> PlanEvent {
    let failures = &mut record.failures;
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
fn back_off(count: u32) -> Millis {
    let doublings = count.saturating_sub(1).min(16);
    let span = FIRST_BACK_OFF.0 << doublings;
    if span < MAX_BACK_OFF.0 {
        Millis(span)
    } else {
        MAX_BACK_OFF
    }
}

//! How a launch ends: what the evidence says, and what follows from it.

mod action;
pub(crate) mod conclude;
mod ordered;

pub(crate) use self::action::PAUSED_EVENT;
pub use self::action::complete;
pub(crate) use self::ordered::as_ordered;
use crate::action::{Failure, FailureClass};
use crate::observation::{ExitObserved, ExitReason, Observation, Observed};
use crate::planner::draft::ours;
use crate::record::{Phase, Record};

/// State of the present launch.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum LaunchState {
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
pub(crate) fn launch_state(record: &Record, observed: &Observed) -> LaunchState {
    let Some(launch) = record.launches.present() else {
        return LaunchState::Open;
    };
    let Some(boot_id) = observed.boot_id.present() else {
        return LaunchState::Unknown;
    };
    if *boot_id != launch.boot_id {
        return if record.may_have_run() {
            node_rebooted()
        } else {
            LaunchState::Nothing
        };
    }
    if observed.vmms.is_unknown() && observed.exit.present().is_none() {
        return LaunchState::Unknown;
    }
    let lives = ours(record, observed).is_some();
    match &observed.exit {
        Observation::Present(exit) if record.may_have_run() => ended(exit),
        Observation::Present(_) if observed.vmms.is_unknown() => LaunchState::Unknown,
        Observation::Present(_) if lives => LaunchState::Open,
        Observation::Present(exit) => LaunchState::DiedBeforeBoot(death(exit)),
        _ if lives => LaunchState::Open,
        Observation::Unknown { .. } => LaunchState::Unknown,
        Observation::Absent => vanished(record),
    }
}

/// The process is gone and left no record.
fn vanished(record: &Record) -> LaunchState {
    if record.may_have_run() {
        if record
            .report
            .stop
            .as_ref()
            .is_some_and(|stop| stop.hard_since.is_some())
        {
            return LaunchState::Ended {
                phase: Phase::Succeeded,
                reason: String::from("Killed"),
                message: String::from(
                    "The VirtualMachineInstance was ended by force after its grace period.",
                ),
            };
        }
        return LaunchState::Ended {
            phase: Phase::Failed,
            reason: String::from("VmmVanished"),
            message: String::from(
                "The guest's VMM process is gone and left no exit record; it was killed or crashed.",
            ),
        };
    }
    let known = record
        .launches
        .present()
        .is_some_and(|launch| launch.identity.is_some());
    if known {
        LaunchState::DiedBeforeBoot(Failure {
            class: FailureClass::Retry,
            reason: String::from("VmmVanished"),
            message: String::from(
                "The VMM process ended before the guest was booted and left no exit record.",
            ),
        })
    } else {
        LaunchState::Nothing
    }
}

fn node_rebooted() -> LaunchState {
    LaunchState::Ended {
        phase: Phase::Failed,
        reason: String::from("NodeRebooted"),
        message: String::from(
            "The node was restarted while the guest ran; a guest never runs twice under one uid.",
        ),
    }
}

fn death(exit: &ExitObserved) -> Failure {
    let (_, reason, message) = outcome_of(exit);
    Failure {
        class: FailureClass::Retry,
        reason: reason.to_owned(),
        message,
    }
}

fn ended(exit: &ExitObserved) -> LaunchState {
    let (phase, reason, message) = outcome_of(exit);
    LaunchState::Ended {
        phase,
        reason: reason.to_owned(),
        message,
    }
}

/// What an exit record means for a VMI whose guest ran.
fn outcome_of(exit: &ExitObserved) -> (Phase, &'static str, String) {
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

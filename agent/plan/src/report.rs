//! Conditions: what record and observation say to people.

use crate::condition::{Condition, ConditionStatus, EventKind, PlanEvent};
use crate::credentials;
use crate::images::PULLING;
use crate::observation::{
    DurableStore, Enforcement, MachineState, Observation, Observed, PauseObserved,
};
use crate::operation::Progress;
use crate::operation::shown::shown;
use crate::orders::PAUSED;
use crate::planner::draft::ours;
use crate::planner::finish::ending;
use crate::probe::results::ProbeResult;
use crate::record::Record;
use crate::reservation::Reservation;
use crate::time::Timestamp;
use crate::wanted::Wanted;

/// KubeVirt's condition of a VMI whose pod finds no node; it is there as long as it waits.
pub(crate) const POD_SCHEDULED: &str = "PodScheduled";

/// Its reason where there is no room.
pub(crate) const UNSCHEDULABLE: &str = "Unschedulable";

/// KubeVirt's condition of a VMI whose storage is being made ready; here of any operation.
const PROVISIONING: &str = "Provisioning";

/// Says that the guest is being ended on request, and until when it may do so itself.
const TERMINATING: &str = "Terminating";

/// Reason when the VMM lives and does not answer at its control socket.
const SILENT: &str = "VmmNotAnswering";

/// Condition and event of a disk or variable store that the node failed to sync; data is lost.
const DISK_SYNC_FAILED: &str = "DiskSyncFailed";

/// Says that the guest runs without limits.
const NOT_ENFORCED: &str = "ResourcesNotEnforced";

struct NewCondition {
    kind: &'static str,
    status: ConditionStatus,
    reason: String,
    message: String,
}

fn new_condition(
    kind: &'static str,
    status: ConditionStatus,
    reason: &str,
    message: &str,
) -> NewCondition {
    NewCondition {
        kind,
        status,
        reason: reason.to_owned(),
        message: message.to_owned(),
    }
}

/// Brings `record.report.conditions` up to date; a time of transition changes only with the status.
pub(crate) fn report(wanted: &Wanted, observed: &Observed, now: Timestamp, record: &mut Record) {
    let mut conditions = Vec::new();
    let own = [
        Some(ready(wanted, observed, record)),
        scheduled(wanted, record),
        synchronized(record),
        paused(observed, record),
        terminating(wanted, record),
        agent_connected(record),
        credentials::condition(record)
            .map(|(status, why)| new_condition(credentials::SYNCHRONIZED, status, "", why)),
    ];
    for it in own.into_iter().flatten() {
        let (status, reason, message) = (it.status, it.reason, it.message);
        conditions.push(condition(
            record,
            it.kind,
            (status, reason, message),
            wanted.generation,
            now,
        ));
    }
    record.report.operation = shown(record.report.operation.as_ref(), observed, now);
    conditions.extend(provisioning(wanted, record, now));
    conditions.extend(sync_failure_condition(wanted, observed, record, now));
    conditions.extend(enforcement(wanted, observed, record, now));
    for admitted in &wanted.admitted {
        let said = (
            admitted.status,
            admitted.reason.clone(),
            admitted.message.clone(),
        );
        conditions.push(condition(
            record,
            &admitted.kind,
            said,
            wanted.generation,
            now,
        ));
    }
    record.report.conditions = conditions;
}

fn condition(
    record: &Record,
    kind: &str,
    (status, reason, message): (ConditionStatus, String, String),
    observed_generation: i64,
    now: Timestamp,
) -> Condition {
    let before = record
        .report
        .conditions
        .iter()
        .find(|condition| condition.kind == kind && condition.status == status);
    let last_transition_at = before.map_or(now, |condition| condition.last_transition_at);
    Condition {
        kind: kind.to_owned(),
        status,
        reason,
        message,
        observed_generation,
        last_transition_at,
    }
}

fn ready(wanted: &Wanted, observed: &Observed, record: &Record) -> NewCondition {
    use ConditionStatus::{False, Unknown};
    let not_running = new_condition(
        "Ready",
        False,
        "GuestNotRunning",
        "Guest VM is not reported as running",
    );
    let running = record
        .launches
        .present()
        .is_some_and(|launch| launch.running_at.is_some());
    if record.report.end.is_some() || !running {
        return not_running;
    }
    if ending(wanted, record).is_some() {
        return new_condition(
            "Ready",
            False,
            "PodTerminating",
            "The VirtualMachineInstance is being ended",
        );
    }
    if let Observation::Unknown { why, .. } = &observed.vmms {
        return new_condition("Ready", Unknown, "VmmUnknown", why);
    }
    match ours(record, observed).map(|vmm| &vmm.machine) {
        Some(Observation::Present(machine)) if machine.state == MachineState::Running => {
            probed(wanted, record)
        }
        Some(Observation::Unknown { why, .. }) => new_condition("Ready", Unknown, SILENT, why),
        _ => not_running,
    }
}

/// The event when a VMM falls silent, and when it answers again.
pub(crate) fn silence(before: &Record, after: &Record) -> Option<PlanEvent> {
    let heard = |record: &Record| {
        let ready = record
            .report
            .conditions
            .iter()
            .find(|it| it.kind == "Ready")?;
        Some((ready.reason == SILENT, ready.message.clone()))
    };
    let was_silent = heard(before).is_some_and(|(silent, _)| silent);
    match heard(after)? {
        (true, why) if !was_silent => Some(PlanEvent {
            kind: EventKind::Warning,
            reason: SILENT.to_owned(),
            message: format!(
                "The guest's VMM lives and does not answer ({why}); it is left alone."
            ),
        }),
        (false, _) if was_silent && after.report.end.is_none() => Some(PlanEvent {
            kind: EventKind::Normal,
            reason: String::from("VmmAnswers"),
            message: String::from("The guest's VMM answers again."),
        }),
        _ => None,
    }
}

/// The event of a disk whose sync failed.
pub(crate) fn sync_failure_event(before: &Record, after: &Record) -> Option<PlanEvent> {
    let said = |record: &Record| {
        let condition = record
            .report
            .conditions
            .iter()
            .find(|it| it.kind == DISK_SYNC_FAILED)?;
        Some(condition.message.clone())
    };
    let message = said(after).filter(|message| said(before).as_ref() != Some(message))?;
    Some(PlanEvent {
        kind: EventKind::Warning,
        reason: DISK_SYNC_FAILED.to_owned(),
        message,
    })
}

/// `DiskSyncFailed` holds while the VMM reports it, and is kept as it was while nobody can tell: it ends
/// with a new VMM.
fn sync_failure_condition(
    wanted: &Wanted,
    observed: &Observed,
    record: &Record,
    now: Timestamp,
) -> Option<Condition> {
    let machine = ours(record, observed).and_then(|vmm| vmm.machine.present());
    let Some(machine) = machine else {
        let mut before = record.report.conditions.iter();
        return before.find(|it| it.kind == DISK_SYNC_FAILED).cloned();
    };
    let disks = record
        .allocations
        .pci
        .disks
        .iter()
        .filter_map(|(name, place)| {
            let failed = machine.sync_failures.iter().find(|it| it.is_at(*place))?;
            Some(format!("disk {name:?} ({})", failed.error))
        });
    let mut failed = machine.sync_failures.iter();
    let variables = failed.find(|it| it.store == DurableStore::Variables);
    let variables = variables.map(|it| format!("the firmware's variable store ({})", it.error));
    let (kind, stores) = match (disks.collect::<Vec<_>>(), variables) {
        (disks, None) if disks.is_empty() => return None,
        (disks, None) => ("disk", disks),
        (mut disks, Some(variables)) => {
            disks.push(variables);
            ("store", disks)
        }
    };
    let message = format!(
        "The node failed to write back data of {}: the data may be lost, and the {kind} fails every flush \
         until the guest is powered off and a new VMM starts it",
        stores.join(", ")
    );
    let said = (
        ConditionStatus::True,
        String::from("WritebackFailed"),
        message,
    );
    Some(condition(
        record,
        DISK_SYNC_FAILED,
        said,
        wanted.generation,
        now,
    ))
}

/// What is carried out for the guest, with its progress; it is there as long as that takes.
fn provisioning(wanted: &Wanted, record: &Record, now: Timestamp) -> Option<Condition> {
    let operation = record.report.operation.as_ref()?;
    let status = if operation.unknown {
        ConditionStatus::Unknown
    } else {
        ConditionStatus::True
    };
    let said = (
        status,
        operation.reason.clone(),
        progress_text(&operation.progress),
    );
    Some(condition(
        record,
        PROVISIONING,
        said,
        wanted.generation,
        now,
    ))
}

/// Such as `Pulling image "debian:12": 40 % of 120 MiB, 12 MiB/s, 6 s left`.
fn progress_text(progress: &Progress) -> String {
    let mut text = progress.what.clone();
    let percent = progress
        .done_bytes
        .saturating_mul(100)
        .checked_div(progress.total_bytes);
    if let Some(percent) = percent {
        let total = mebibytes(progress.total_bytes);
        text.push_str(&format!(": {percent} % of {total}"));
    }
    if progress.bytes_per_second > 0 {
        text.push_str(&format!(", {}/s", mebibytes(progress.bytes_per_second)));
    }
    if let Some(left) = progress.left() {
        text.push_str(&format!(", {} s left", (left.0 + 999) / 1000));
    }
    text
}

/// Bytes as people read them.
fn mebibytes(bytes: u64) -> String {
    match bytes {
        0..0x10_0000 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

/// The event when an operation begins that has a name of its own, and when one gets no answer. Pulls have theirs
/// ([`ImageEvent`](crate::ImageEvent)), however quick they are.
pub(crate) fn operation_begun(before: &Record, after: &Record) -> Option<PlanEvent> {
    let begun = after.report.operation.as_ref()?;
    let was = before.report.operation.as_ref();
    let is_new = was.is_none_or(|was| was.reason != begun.reason);
    let has_name = !matches!(begun.progress.reason.as_str(), "" | PULLING);
    (is_new && (begun.unknown || has_name)).then(|| PlanEvent {
        kind: if begun.unknown {
            EventKind::Warning
        } else {
            EventKind::Normal
        },
        reason: begun.reason.clone(),
        message: begun.progress.what.clone(),
    })
}

/// As under KubeVirt it is there while the agent in the guest answers.
fn agent_connected(record: &Record) -> Option<NewCondition> {
    let answers = record
        .report
        .guest
        .as_ref()
        .is_some_and(|guest| guest.answers);
    let is_there = answers && record.report.end.is_none();
    is_there.then(|| new_condition("AgentConnected", ConditionStatus::True, "", ""))
}

/// A guest that runs, as its readiness probe says; KubeVirt shows the reason of its pod.
fn probed(wanted: &Wanted, record: &Record) -> NewCondition {
    let not_ready =
        |why: &str| new_condition("Ready", ConditionStatus::False, "ContainersNotReady", why);
    match (&wanted.probes.readiness, &record.report.probes.readiness) {
        (None, _) | (_, ProbeResult::Succeeded) => {
            new_condition("Ready", ConditionStatus::True, "", "")
        }
        (_, ProbeResult::None) => not_ready("The readiness probe has not succeeded yet"),
        (_, ProbeResult::Failed { why }) => {
            not_ready(&format!("The readiness probe failed: {why}"))
        }
    }
}

/// Waits for the node to start guests, or for room on it.
fn scheduled(wanted: &Wanted, record: &Record) -> Option<NewCondition> {
    if record.launches.present().is_some() || record.report.end.is_some() {
        return None;
    }
    let status = ConditionStatus::False;
    if let Some(closed) = &wanted.closed {
        return Some(new_condition(
            POD_SCHEDULED,
            status,
            closed.reason,
            &closed.message,
        ));
    }
    let Reservation::Waits { why } = &wanted.reservation else {
        return None;
    };
    let waits = record.allocations.reservation.is_none();
    waits.then(|| new_condition(POD_SCHEDULED, status, UNSCHEDULABLE, why))
}

fn synchronized(record: &Record) -> Option<NewCondition> {
    let failure = record
        .report
        .failures
        .last
        .as_ref()
        .filter(|_| record.report.end.is_none())?;
    Some(new_condition(
        "Synchronized",
        ConditionStatus::False,
        &failure.reason,
        &failure.message,
    ))
}

fn paused(observed: &Observed, record: &Record) -> Option<NewCondition> {
    let machine = ours(record, observed)?.machine.present()?;
    let waits_for_its_start = machine.state == MachineState::Configured && record.orders.hold();
    if machine.state != MachineState::Paused && !waits_for_its_start {
        return None;
    }
    let by_lease = record.orders.lease_paused && !record.orders.paused;
    let (reason, message) = match &machine.pause {
        None | Some(PauseObserved::Requested) if by_lease => (
            "LeaseExpired",
            "VMI was paused, the lease of its control plane is over".to_owned(),
        ),
        None | Some(PauseObserved::Requested) => {
            ("PausedByUser", "VMI was paused by user".to_owned())
        }
        Some(PauseObserved::IoError { detail }) => (
            "PausedIOError",
            format!("VMI was paused, low-level IO error detected: {detail}"),
        ),
        Some(PauseObserved::DeviceBusy { detail }) => (
            "PausedDeviceBusy",
            format!("VMI was paused, the guest stopped a device that is busy: {detail}"),
        ),
        Some(PauseObserved::Watchdog) => (
            "PausedWatchdog",
            "VMI was paused, its watchdog ran out".to_owned(),
        ),
        Some(PauseObserved::Panicked) => (
            "PausedPanicked",
            "VMI was paused, its kernel panicked".to_owned(),
        ),
    };
    Some(new_condition(
        PAUSED,
        ConditionStatus::True,
        reason,
        &message,
    ))
}

/// The guest is being ended; until when it may do so itself is the last word.
fn terminating(wanted: &Wanted, record: &Record) -> Option<NewCondition> {
    let stop = record
        .report
        .stop
        .as_ref()
        .filter(|_| record.report.end.is_none())?;
    let (_, grace) = ending(wanted, record)?;
    let deadline = stop.since.plus(grace).rfc3339();
    let (reason, message) = if stop.hard_since.is_some() {
        (
            "Killing",
            format!("The guest is ended by force; its grace period was over at {deadline}"),
        )
    } else {
        (
            "GracePeriod",
            format!("The guest was asked to shut itself down; it is ended by force at {deadline}"),
        )
    };
    Some(new_condition(
        TERMINATING,
        ConditionStatus::True,
        reason,
        &message,
    ))
}

/// `ResourcesNotEnforced` holds while the VMM is known to run without limits, and is kept as it was
/// while nobody can tell.
fn enforcement(
    wanted: &Wanted,
    observed: &Observed,
    record: &Record,
    now: Timestamp,
) -> Option<Condition> {
    let kind = NOT_ENFORCED;
    match ours(record, observed).map(|vmm| &vmm.enforcement) {
        Some(Observation::Present(Enforcement::NotEnforced { why })) => {
            let said = (ConditionStatus::True, String::from("NoCgroup"), why.clone());
            Some(condition(record, kind, said, wanted.generation, now))
        }
        Some(Observation::Present(Enforcement::Enforced) | Observation::Absent) => None,
        Some(Observation::Unknown { .. }) | None => record
            .report
            .conditions
            .iter()
            .find(|condition| condition.kind == kind)
            .cloned(),
    }
}

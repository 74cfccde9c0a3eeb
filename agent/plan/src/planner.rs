//! [`plan()`]: one look in, one plan out.

pub(crate) mod finish;
mod firmware;
mod hold;
mod links;
mod operation;
mod reservation;

use crate::ending::{self, Fate};
use crate::{
    Action, BootId, EventKind, Launch, MachineObserved, MachineState, Millis, Observed, Phase,
    PhaseEntry, PlanEvent, Record, Timestamp, VmmObserved, Wanted,
};
use crate::{credentials, probe, report};

/// How long an ended or refusing VMM may take to go by itself before it is killed.
const REAP_AFTER: Millis = Millis::from_secs(5);

/// Time to the next look when a question could not be answered, or an effect is awaited.
const LOOK_AGAIN: Millis = Millis::from_secs(1);

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

/// Plans the next steps of one VMI. Total, and a function of its arguments alone.
///
/// Planning from an unchanged world gives no actions; planning twice from the same observation gives
/// the same actions; a final phase never changes.
#[must_use]
pub fn plan(wanted: &Wanted, record: &Record, observed: &Observed, now: Timestamp) -> Plan {
    let mut draft = Draft {
        wanted,
        observed,
        now,
        plan: Plan {
            actions: Vec::new(),
            record: record.clone(),
            events: Vec::new(),
            wake_at: None,
            gone: false,
        },
    };
    if let Some(deletion) = wanted.deletion {
        let record = &mut draft.plan.record;
        record.hear_deletion(deletion.requested_at, now);
    }
    draft.adopt();
    draft.settle();
    draft.heed_probes();
    draft.keep_reservation();
    if draft.plan.record.end.is_some() {
        draft.clear_away();
    } else if let Some((requested_at, grace)) = finish::ending(wanted, &draft.plan.record) {
        draft.end_on_request(requested_at, grace);
    } else {
        draft.bring_up();
    }
    report::report(wanted, observed, now, &mut draft.plan.record);
    draft
        .plan
        .events
        .extend(report::silence(record, &draft.plan.record));
    draft
        .plan
        .events
        .extend(credentials::changed(record, &draft.plan.record));
    draft
        .plan
        .events
        .extend(report::lost_data(record, &draft.plan.record));
    draft
        .plan
        .events
        .extend(report::operation_begun(record, &draft.plan.record));
    draft.plan
}

/// The VMM of the present incarnation, when it lives.
pub(crate) fn ours<'a>(record: &Record, observed: &'a Observed) -> Option<&'a VmmObserved> {
    let launch = record.launch.as_ref()?;
    observed.vmms.present()?.iter().find(|vmm| {
        vmm.incarnation == record.incarnation
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
    /// Takes notice of a VMM that runs: who it is, and how far it has come.
    fn adopt(&mut self) {
        if self.plan.record.end.is_some() {
            return;
        }
        self.adopt_newer();
        let Some(vmm) = ours(&self.plan.record, self.observed) else {
            return;
        };
        let state = vmm.machine.present().map(|machine| machine.state);
        if let Some(machine) = vmm.machine.present() {
            links::note(&mut self.plan.record, machine);
        }
        let identity = vmm.identity.clone();
        if let Some(launch) = &mut self.plan.record.launch {
            launch.identity.get_or_insert(identity);
        }
        self.reach(Phase::Scheduled);
        if matches!(state, Some(MachineState::Running | MachineState::Paused)) {
            self.note_running();
        }
    }

    /// The guest runs, or would if nobody held it.
    fn note_running(&mut self) {
        let now = self.now;
        let Some(launch) = &mut self.plan.record.launch else {
            return;
        };
        launch.boot_intended_at.get_or_insert(now);
        let first_seen = launch.running_at.is_none();
        launch.running_at.get_or_insert(now);
        self.reach(Phase::Running);
        if first_seen {
            self.plan.record.failures = crate::StartFailures::default();
            self.event(
                EventKind::Normal,
                "Started",
                "VirtualMachineInstance started.",
            );
        }
    }

    /// A VMM of a later incarnation than the record knows is evidence that the record is the older
    /// of the two (a ledger restored from a copy). It is believed, not killed.
    fn adopt_newer(&mut self) {
        let known = self.plan.record.incarnation;
        let newest = self
            .observed
            .vmms
            .present()
            .and_then(|vmms| vmms.iter().max_by_key(|vmm| vmm.incarnation));
        let Some(newest) = newest.filter(|vmm| vmm.incarnation > known) else {
            return;
        };
        self.plan.record.incarnation = newest.incarnation;
        self.plan.record.launch = Some(Launch {
            boot_id: newest.identity.boot_id.clone(),
            intended_at: self.now,
            identity: Some(newest.identity.clone()),
            boot_intended_at: None,
            running_at: None,
        });
    }

    /// Finds out whether the present launch has come to an end, or to nothing.
    fn settle(&mut self) {
        if self.plan.record.end.is_some() {
            return;
        }
        match ending::fate(&self.plan.record, self.observed) {
            Fate::Open => {}
            Fate::Unknown => self.look_again(LOOK_AGAIN),
            Fate::Nothing => self.plan.record.launch = None,
            Fate::DiedBeforeBoot(failure) => {
                let event = ending::count_vmm_death(&mut self.plan.record, failure, self.now);
                self.plan.events.push(event);
            }
            Fate::Ended {
                phase,
                reason,
                message,
            } => {
                let (phase, reason, message) =
                    probe::of_the_unhealthy(&self.plan.record, (phase, reason, message));
                let (phase, reason, message) =
                    ending::as_ordered(&self.plan.record, (phase, reason, message));
                let event =
                    ending::conclude(&mut self.plan.record, phase, &reason, &message, self.now);
                self.plan.events.push(event);
            }
        }
    }

    /// On the way to a running guest.
    fn bring_up(&mut self) {
        self.plan.record.stop = None;
        if !self.kill_strays() {
            return;
        }
        if self.waits_for_operation() {
            return;
        }
        if let Some(retry_at) = self.plan.record.failures.retry_at
            && self.now < retry_at
            && self
                .plan
                .record
                .launch
                .as_ref()
                .is_none_or(|launch| launch.running_at.is_none())
        {
            // The clock may have been set back since: never wait longer than the longest back-off.
            let latest = self.now.plus(ending::MAX_BACK_OFF);
            self.wake(if retry_at < latest { retry_at } else { latest });
            self.plan.record.failures.retry_at =
                Some(if retry_at < latest { retry_at } else { latest });
            return;
        }
        if let Some(vmm) = ours(&self.plan.record, self.observed) {
            self.advance(vmm.machine.present());
        } else if self.plan.record.launch.is_none() {
            self.start();
        } else {
            self.look_again(LOOK_AGAIN);
        }
    }

    /// The next step for a VMM that lives.
    fn advance(&mut self, machine: Option<&MachineObserved>) {
        let incarnation = self.plan.record.incarnation;
        let Some(machine) = machine else {
            self.look_again(LOOK_AGAIN);
            return;
        };
        match machine.state {
            MachineState::Unconfigured => {
                // Does nothing but after an agent that did not record places.
                self.plan.record.pci.complete(&self.wanted.pci);
                self.prepare();
                self.plan.actions.push(Action::EnsureTaps);
                self.plan.actions.push(Action::ConfigureVmm { incarnation });
            }
            MachineState::Configured if self.plan.record.orders.hold() => self.keep_unstarted(),
            MachineState::Configured => {
                if let Some(launch) = &mut self.plan.record.launch {
                    launch.boot_intended_at.get_or_insert(self.now);
                }
                self.plan.actions.push(Action::BootVmm { incarnation });
            }
            MachineState::Running => {
                self.keep_links(incarnation, machine);
                self.keep_running(incarnation);
                self.watch_firmware(machine.resets);
            }
            MachineState::Paused => {
                self.keep_links(incarnation, machine);
                self.keep_paused(incarnation, machine.pause.as_ref());
            }
            MachineState::Exited => self.look_again(LOOK_AGAIN),
        }
    }

    /// A new incarnation. Needs proof that no VMM of this uid lives.
    fn start(&mut self) {
        let (true, Some(boot_id)) = (
            self.observed.vmms.is_absent(),
            self.observed.boot_id.present(),
        ) else {
            self.look_again(LOOK_AGAIN);
            return;
        };
        if !self.is_let_in() || !self.take_room() {
            return;
        }
        self.reach(Phase::Scheduling);
        let boot_id: BootId = boot_id.clone();
        let record = &mut self.plan.record;
        record.incarnation += 1;
        record.links_down = None;
        record.pci.complete(&self.wanted.pci);
        let incarnation = record.incarnation;
        record.launch = Some(Launch {
            boot_id,
            intended_at: self.now,
            identity: None,
            boot_intended_at: None,
            running_at: None,
        });
        self.prepare();
        self.plan.actions.extend([
            Action::EnsureTaps,
            Action::EnsureRunDir { incarnation },
            Action::StartVmm { incarnation },
            Action::ConfigureVmm { incarnation },
        ]);
    }

    /// VMMs that were seen and are not the present one never ran a guest: a guest that ran would
    /// have made its incarnation the last. The same goes for one that has written its exit record
    /// before its guest ran. True when there are none.
    fn kill_strays(&mut self) -> bool {
        let ours = ours(&self.plan.record, self.observed)
            .filter(|_| self.observed.exit.present().is_none())
            .map(|vmm| vmm.identity.clone());
        let strays: Vec<Action> = self
            .observed
            .vmms
            .present()
            .into_iter()
            .flatten()
            .filter(|vmm| Some(&vmm.identity) != ours.as_ref())
            .map(|vmm| Action::KillVmm {
                incarnation: vmm.incarnation,
                identity: vmm.identity.clone(),
            })
            .collect();
        if strays.is_empty() {
            return true;
        }
        self.plan.actions.extend(strays);
        self.look_again(LOOK_AGAIN);
        false
    }

    /// Enters a phase unless it, or one after it, was entered before.
    fn reach(&mut self, phase: Phase) {
        let record = &mut self.plan.record;
        if record.phases.last().is_none_or(|last| last.phase < phase) {
            record.phases.push(PhaseEntry {
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

    fn look_again(&mut self, after: Millis) {
        self.wake(self.now.plus(after));
    }

    fn wake(&mut self, at: Timestamp) {
        self.plan.wake_at = Some(
            self.plan
                .wake_at
                .map_or(at, |present| if present < at { present } else { at }),
        );
    }
}

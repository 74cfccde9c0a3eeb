//! Bringing a VMI up: what is there of it is adopted, and what is missing comes next.

use super::draft::{Draft, POLL_INTERVAL, ours};
use super::links;
use crate::action::Action;
use crate::ending::conclude::{MAX_BACK_OFF, conclude, count_vmm_death};
use crate::ending::{self, LaunchState};
use crate::identity::BootId;
use crate::observation::{MachineObserved, MachineState};
use crate::probe;
use crate::record::{Launch, Phase};

impl Draft<'_> {
    /// Takes notice of a VMM that runs: who it is, and how far it has come.
    pub(super) fn adopt(&mut self) {
        if self.plan.record.report.end.is_some() {
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
        if let Some(launch) = self.plan.record.launches.present_mut() {
            launch.identity.get_or_insert(identity);
        }
        self.reach(Phase::Scheduled);
        if matches!(state, Some(MachineState::Running | MachineState::Paused)) {
            self.note_running();
        }
    }

    /// A VMM of a later incarnation than the record knows is evidence that the record is the older
    /// of the two (a ledger restored from a copy). It is believed, not killed.
    pub(super) fn adopt_newer(&mut self) {
        let known = self.plan.record.launches.incarnation();
        let newest = self
            .observed
            .vmms
            .present()
            .and_then(|vmms| vmms.iter().max_by_key(|vmm| vmm.incarnation));
        let Some(newest) = newest.filter(|vmm| vmm.incarnation > known) else {
            return;
        };
        let launch = Launch {
            boot_id: newest.identity.boot_id.clone(),
            intended_at: self.now,
            identity: Some(newest.identity.clone()),
            boot_intended_at: None,
            running_at: None,
        };
        let launches = &mut self.plan.record.launches;
        launches.begin(newest.incarnation, launch);
    }

    /// Finds out whether the present launch has come to an end, or to nothing.
    pub(super) fn settle(&mut self) {
        if self.plan.record.report.end.is_some() {
            return;
        }
        match ending::launch_state(&self.plan.record, self.observed) {
            LaunchState::Open => {}
            LaunchState::Unknown => self.poll_after(POLL_INTERVAL),
            LaunchState::Nothing => self.plan.record.launches.give_up(),
            LaunchState::DiedBeforeBoot(failure) => {
                let event = count_vmm_death(&mut self.plan.record, failure, self.now);
                self.plan.events.push(event);
            }
            LaunchState::Ended {
                phase,
                reason,
                message,
            } => {
                let (phase, reason, message) =
                    probe::of_the_unhealthy(&self.plan.record, (phase, reason, message));
                let (phase, reason, message) =
                    ending::as_ordered(&self.plan.record, (phase, reason, message));
                let event = conclude(&mut self.plan.record, phase, &reason, &message, self.now);
                self.plan.events.push(event);
            }
        }
    }

    /// On the way to a running guest.
    pub(super) fn bring_up(&mut self) {
        self.plan.record.report.stop = None;
        if !self.kill_strays() {
            return;
        }
        if self.waits_for_operation() {
            return;
        }
        if let Some(retry_at) = self.plan.record.report.failures.retry_at
            && self.now < retry_at
            && self
                .plan
                .record
                .launches
                .present()
                .is_none_or(|launch| launch.running_at.is_none())
        {
            // The clock may have been set back since: never wait longer than the longest back-off.
            let latest = self.now.plus(MAX_BACK_OFF);
            self.wake(if retry_at < latest { retry_at } else { latest });
            self.plan.record.report.failures.retry_at =
                Some(if retry_at < latest { retry_at } else { latest });
            return;
        }
        if let Some(vmm) = ours(&self.plan.record, self.observed) {
            self.advance(vmm.machine.present());
        } else if self.plan.record.launches.present().is_none() {
            self.start();
        } else {
            self.poll_after(POLL_INTERVAL);
        }
    }

    /// The next step for a VMM that lives.
    pub(super) fn advance(&mut self, machine: Option<&MachineObserved>) {
        let incarnation = self.plan.record.launches.incarnation();
        let Some(machine) = machine else {
            self.poll_after(POLL_INTERVAL);
            return;
        };
        match machine.state {
            MachineState::Unconfigured => {
                // Does nothing but after an agent that did not record places.
                self.plan.record.allocations.pci.complete(&self.wanted.pci);
                self.prepare();
                self.plan.actions.push(Action::EnsureTaps);
                self.plan.actions.push(Action::ConfigureVmm { incarnation });
            }
            MachineState::Configured if self.plan.record.orders.hold() => self.keep_unstarted(),
            MachineState::Configured => {
                if let Some(launch) = self.plan.record.launches.present_mut() {
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
            MachineState::Exited => self.poll_after(POLL_INTERVAL),
        }
    }

    /// A new incarnation. Needs proof that no VMM of this uid lives.
    pub(super) fn start(&mut self) {
        let (true, Some(boot_id)) = (
            self.observed.vmms.is_absent(),
            self.observed.boot_id.present(),
        ) else {
            self.poll_after(POLL_INTERVAL);
            return;
        };
        if !self.is_schedulable() || !self.reserve() {
            return;
        }
        self.reach(Phase::Scheduling);
        let boot_id: BootId = boot_id.clone();
        let record = &mut self.plan.record;
        record.report.links_down = None;
        record.allocations.pci.complete(&self.wanted.pci);
        let incarnation = record.launches.incarnation() + 1;
        let launch = Launch {
            boot_id,
            intended_at: self.now,
            identity: None,
            boot_intended_at: None,
            running_at: None,
        };
        record.launches.begin(incarnation, launch);
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
    pub(super) fn kill_strays(&mut self) -> bool {
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
        self.poll_after(POLL_INTERVAL);
        false
    }
}

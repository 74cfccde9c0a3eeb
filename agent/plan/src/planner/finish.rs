//! The end of a VMI: asked for, awaited, forced, and what is cleared away after it.

use std::collections::BTreeSet;

use super::draft::{Draft, POLL_INTERVAL, REAP_AFTER, ours};
use crate::action::{Action, Holding};
use crate::ending;
use crate::ending::conclude::conclude;
use crate::observation::{MachineState, Observation, PauseObserved, VmmObserved};
use crate::record::{Phase, Record, StopProgress};
use crate::time::{Millis, Timestamp};
use crate::wanted::Wanted;

/// When the end was asked for, by deletion, by an order to stop or by a failed liveness probe, and how long
/// the guest has from then on: the grace period begins with the earliest request and ends with the earliest deadline.
pub(crate) fn ending(wanted: &Wanted, record: &Record) -> Option<(Timestamp, Millis)> {
    let deletion = wanted.deletion.map(|asked| {
        let noted = record
            .report
            .deletion
            .filter(|noted| noted.requested_at == asked.requested_at);
        (
            noted.map_or(asked.requested_at, |noted| noted.since),
            asked.grace,
        )
    });
    let stop = record
        .orders
        .stop
        .map(|stop| (stop.requested_at, stop.grace));
    let unhealthy = record.report.probes.unhealthy.as_ref();
    let unhealthy = unhealthy.map(|unhealthy| (unhealthy.at, wanted.probes.grace));
    let all = [stop, deletion, unhealthy];
    let begun = all.iter().flatten().map(|(at, _)| *at).min()?;
    let until =
        |(at, grace): &(Timestamp, Millis)| Millis(at.since(begun).0.saturating_add(grace.0));
    Some((begun, all.iter().flatten().map(until).min()?))
}

/// Whether a VMM that should have ended since then gets the signal. It has its time from when it was ordered to end; one that was
/// not yet, because its turn has not come or the agent was stopped while it waited for that, is ordered first if it takes orders.
fn is_time_to_kill(
    now: Timestamp,
    (since, ordered_at): (Timestamp, Option<Timestamp>),
    takes_orders: bool,
) -> bool {
    if ordered_at.is_none() && takes_orders {
        return false;
    }
    let begun = ordered_at.filter(|at| *at <= now);
    now >= begun.map_or(since, |at| since.max(at)).plus(REAP_AFTER)
}

impl Draft<'_> {
    /// An end was asked for and the guest has not ended yet.
    pub(super) fn end_on_request(&mut self, requested_at: Timestamp, grace: Millis) {
        if !self.kill_strays() {
            return;
        }
        let Some(vmm) = ours(&self.plan.record, self.observed) else {
            self.end_operation(false);
            if self.plan.record.launches.present().is_none() && self.observed.vmms.is_absent() {
                self.conclude_unstarted();
            } else {
                self.poll_after(POLL_INTERVAL);
            }
            return;
        };
        let stop = self.stop_progress(requested_at);
        let deadline = stop.since.plus(grace);
        let presses = self.end_operation(self.now < deadline);
        match vmm.machine.present().map(|machine| machine.state) {
            Some(MachineState::Exited) => self.poll_after(POLL_INTERVAL),
            Some(MachineState::Running) if self.now < deadline => {
                if stop.pressed_at.is_none() && !presses {
                    self.press(vmm.incarnation);
                }
                self.wake(deadline);
            }
            Some(MachineState::Paused) if self.now < deadline => {
                if !presses {
                    self.let_shut_down(vmm, &stop);
                }
                self.wake(deadline);
            }
            None if self.now < deadline => {
                self.poll_after(POLL_INTERVAL);
                self.wake(deadline);
            }
            _ => self.stop_hard(vmm),
        }
    }

    /// There is no guest to end.
    fn conclude_unstarted(&mut self) {
        let (reason, message) = if self.wanted.deletion.is_some() {
            (
                "Deleted",
                "The VirtualMachineInstance was deleted before it ran.",
            )
        } else {
            (
                "Stopped",
                "The VirtualMachineInstance was stopped before it ran.",
            )
        };
        let record = &mut self.plan.record;
        let end = (Phase::Failed, reason.to_owned(), message.to_owned());
        let (phase, reason, message) = ending::as_ordered(record, end);
        let event = conclude(record, phase, &reason, &message, self.now);
        self.plan.events.push(event);
        self.clear_away();
    }

    /// A paused guest cannot heed the button: it goes on, so that its grace period is worth
    /// something. One whose disk failed gets one more try; one whose kernel is dead gets none.
    fn let_shut_down(&mut self, vmm: &VmmObserved, stop: &StopProgress) {
        let incarnation = vmm.incarnation;
        let pause = vmm
            .machine
            .present()
            .and_then(|machine| machine.pause.as_ref());
        let may_go_on = match pause {
            None | Some(PauseObserved::Requested) => true,
            Some(PauseObserved::IoError { .. }) => stop.resumed_at.is_none(),
            // It goes on by itself, and cannot before.
            Some(PauseObserved::DeviceBusy { .. }) => false,
            Some(PauseObserved::Watchdog | PauseObserved::Panicked) => false,
        };
        if stop.pressed_at.is_none() {
            self.press(incarnation);
        }
        if may_go_on {
            self.plan.actions.push(Action::ResumeVmm { incarnation });
        }
        self.poll_after(POLL_INTERVAL);
    }

    /// Where the ending on request stands; begins it when it has not begun.
    fn stop_progress(&mut self, requested_at: Timestamp) -> StopProgress {
        let now = self.now;
        let begun = if requested_at < now {
            requested_at
        } else {
            now
        };
        let stop = self.plan.record.report.stop.get_or_insert(StopProgress {
            since: begun,
            pressed_at: None,
            hard_since: None,
            ordered_at: None,
            resumed_at: None,
        });
        // The clock was set back: the grace period begins again rather than never to end.
        if stop.since > now {
            stop.since = now;
        }
        stop.clone()
    }

    fn press(&mut self, incarnation: u64) {
        self.plan
            .actions
            .push(Action::PressPowerButton { incarnation });
        self.poll_after(POLL_INTERVAL);
    }

    /// Ends the guest without its consent: by the control socket first, then by a signal.
    fn stop_hard(&mut self, vmm: &VmmObserved) {
        let now = self.now;
        let mut ordered_at = None;
        let since = self.plan.record.report.stop.as_mut().map_or(now, |stop| {
            let since = *stop.hard_since.get_or_insert(now);
            stop.hard_since = Some(if since > now { now } else { since });
            ordered_at = stop.ordered_at;
            since
        });
        if is_time_to_kill(now, (since, ordered_at), !vmm.machine.is_unknown()) {
            self.plan.actions.push(Action::KillVmm {
                incarnation: vmm.incarnation,
                identity: vmm.identity.clone(),
            });
        } else if !vmm.machine.is_unknown() {
            self.plan.actions.push(Action::StopVmm {
                incarnation: vmm.incarnation,
                reason: String::from("GracePeriodOver"),
            });
        }
        self.poll_after(POLL_INTERVAL);
    }

    /// The VMI is in a final phase: no VMM may stay, and what only a VMM needs is released. What a
    /// user may still want to see (console log, exit record, disks) stays until deletion.
    pub(super) fn clear_away(&mut self) {
        let is_cancelled = |action: &Action| *action == Action::CancelOperation;
        if !self.plan.actions.iter().any(is_cancelled) {
            self.end_operation(false);
        }
        match &self.observed.vmms {
            Observation::Unknown { .. } => self.poll_after(POLL_INTERVAL),
            Observation::Present(vmms) => self.reap(vmms),
            Observation::Absent => {
                self.plan.record.allocations.reservation = None;
                self.release();
            }
        }
    }

    fn reap(&mut self, vmms: &[VmmObserved]) {
        let now = self.now;
        let Some(end) = &mut self.plan.record.report.end else {
            return;
        };
        let since = *end.reaping_since.get_or_insert(now);
        if since > now {
            end.reaping_since = Some(now);
        }
        let ordered_at = end.ordered_at;
        for vmm in vmms {
            let state = vmm.machine.present().map(|machine| machine.state);
            let takes_orders = state.is_some_and(|state| state != MachineState::Exited);
            if is_time_to_kill(now, (since, ordered_at), takes_orders) {
                self.plan.actions.push(Action::KillVmm {
                    incarnation: vmm.incarnation,
                    identity: vmm.identity.clone(),
                });
            } else if takes_orders {
                let reason = String::from("VmiEnded");
                self.plan.actions.push(Action::StopVmm {
                    incarnation: vmm.incarnation,
                    reason,
                });
            }
        }
        self.poll_after(POLL_INTERVAL);
    }

    fn release(&mut self) {
        let deleting = self.wanted.deletion.is_some();
        let holdings: BTreeSet<Holding> = match &self.observed.holdings {
            Observation::Unknown { .. } => {
                self.poll_after(POLL_INTERVAL);
                return;
            }
            Observation::Absent => BTreeSet::new(),
            Observation::Present(holdings) => holdings
                .iter()
                .copied()
                .filter(|holding| deleting || matches!(holding, Holding::Taps | Holding::Sandbox))
                .collect(),
        };
        if holdings.is_empty() {
            self.plan.gone = deleting;
            return;
        }
        self.plan.actions.push(Action::Release {
            incarnation: self.plan.record.launches.incarnation(),
            holdings,
        });
        self.poll_after(POLL_INTERVAL);
    }
}

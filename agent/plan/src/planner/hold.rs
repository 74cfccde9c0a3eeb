//! Holding a guest and letting it go on, as its orders say.

use super::draft::Draft;
use crate::action::Action;
use crate::condition::EventKind;
use crate::ending;
use crate::observation::PauseObserved;

impl Draft<'_> {
    /// The machine is built and waits for its first instruction. From here on it is the user's: it
    /// counts as one that may have run, and is paused.
    pub(super) fn keep_unstarted(&mut self) {
        let record = &mut self.plan.record;
        // A pause has overtaken every unpause before it.
        record.report.unpauses_done = record.orders.unpauses;
        let launch = record.launches.present();
        let first_seen = launch.is_some_and(|launch| launch.running_at.is_none());
        self.note_running();
        if first_seen {
            self.event(EventKind::Normal, "Paused", ending::PAUSED_EVENT);
        }
    }

    /// The vCPUs run.
    pub(super) fn keep_running(&mut self, incarnation: u64) {
        let record = &mut self.plan.record;
        // An unpause that finds the guest running, or that a later pause has overtaken, is done.
        record.report.unpauses_done = record.orders.unpauses;
        if record.orders.hold() {
            self.plan.actions.push(Action::PauseVmm { incarnation });
        }
    }

    /// The vCPUs are held. A pause that was asked for and is wanted no more is undone, for as long as
    /// that takes; one that came of itself is undone once for each unpause, because what caused it may
    /// be there still.
    pub(super) fn keep_paused(&mut self, incarnation: u64, pause: Option<&PauseObserved>) {
        let record = &mut self.plan.record;
        if record.orders.hold() {
            record.report.unpauses_done = record.orders.unpauses;
            return;
        }
        let was_requested = matches!(pause, None | Some(PauseObserved::Requested));
        if was_requested || record.orders.unpauses > record.report.unpauses_done {
            self.plan.actions.push(Action::ResumeVmm { incarnation });
        }
    }
}

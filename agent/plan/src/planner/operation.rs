//! The operation that is under way: waited for while it is wanted, cancelled when it is not.

use super::draft::{Draft, POLL_INTERVAL};
use crate::action::Action;
use crate::observation::Observation;
use crate::operation::shown::{has_machine, is_wanted};
use crate::operation::{OperationObserved, OperationState, Work};

impl Draft<'_> {
    /// Whether an operation on the way to a running guest has to end first. One that nobody wants any more is cancelled.
    pub(super) fn waits_for_operation(&mut self) -> bool {
        let record = &self.plan.record;
        let is_awaited = match &self.observed.operation {
            Observation::Absent => return false,
            Observation::Present(OperationObserved { work, state }) => match state {
                OperationState::Done => return false,
                OperationState::Running { .. } => is_wanted(*work, record, self.observed),
            },
            // Nobody can tell when it ends; it is not begun a second time meanwhile.
            Observation::Unknown { .. } => !has_machine(record, self.observed),
        };
        if is_awaited || self.observed.vmms.is_unknown() {
            self.poll_after(POLL_INTERVAL);
            return true;
        }
        self.plan.actions.push(Action::CancelOperation);
        false
    }

    /// Prepares boot files and disks, but for those that a finished operation has just prepared.
    pub(super) fn prepare(&mut self) {
        let done = self.done();
        if !matches!(done, Some(Work::BootFiles | Work::Disks)) {
            self.plan.actions.push(Action::EnsureKernel);
        }
        if done != Some(Work::Disks) {
            self.plan.actions.push(Action::EnsureDisks);
        }
    }

    /// The operation that ended last, with success.
    fn done(&self) -> Option<Work> {
        let operation = self.observed.operation.present()?;
        (operation.state == OperationState::Done).then_some(operation.work)
    }

    /// The guest is being ended: whatever is under way for it ends, but for the press of its power button, which
    /// the guest may still heed (`may_press`). Returns whether a press is under way.
    pub(super) fn end_operation(&mut self, may_press: bool) -> bool {
        let incarnation = self.plan.record.launches.incarnation();
        match &self.observed.operation {
            Observation::Absent => false,
            Observation::Present(OperationObserved { work, state }) => match state {
                OperationState::Done => false,
                OperationState::Running { .. }
                    if may_press && *work == (Work::PowerButton { incarnation }) =>
                {
                    true
                }
                OperationState::Running { .. } => {
                    self.plan.actions.push(Action::CancelOperation);
                    false
                }
            },
            Observation::Unknown { .. } => {
                self.plan.actions.push(Action::CancelOperation);
                false
            }
        }
    }
}

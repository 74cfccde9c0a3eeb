//! Operations: what may take more than a moment is carried out in a task beside the actor, which looks and plans
//! meanwhile. The actor has one at a time; dropping it cancels it.

use std::time::Instant;

use agent_host::WorkSeen;
use agent_plan::{
    Action, Completed, Failure, FailureClass, Observation, OperationObserved, OperationState,
    Timestamp, Work,
};
use tokio::task::JoinHandle;

use crate::traces::Moment;

/// The outcome of an action.
pub(super) type Outcome = Result<Completed, Failure>;

/// The operation of one VMI.
#[derive(Default)]
pub(super) struct Operations {
    pub(super) running: Option<Running>,
    /// The last, when it succeeded and nothing was done since.
    done: Option<Work>,
}

/// An action under way. Dropping it ends its task.
pub(super) struct Running {
    pub(super) action: Action,
    pub(super) since: Timestamp,
    pub(super) begun: Instant,
    pub(super) traced: Option<Moment>,
    pub(super) task: JoinHandle<Outcome>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Operations {
    /// The operation as the plan sees it.
    pub(super) fn observe(&self, seen: WorkSeen, now: Timestamp) -> Observation<OperationObserved> {
        if let Some((work, running)) = self.under_way() {
            if let Some((why, span)) = seen.silent {
                let millis = i64::try_from(span.as_millis()).unwrap_or(i64::MAX);
                let since = Timestamp(now.0.saturating_sub(millis));
                return Observation::Unknown { why, since };
            }
            let state = OperationState::Running {
                since: running.since,
                progress: seen.progress,
            };
            return Observation::Present(OperationObserved { work, state });
        }
        match self.done {
            Some(work) => Observation::Present(OperationObserved {
                work,
                state: OperationState::Done,
            }),
            None => Observation::Absent,
        }
    }

    fn under_way(&self) -> Option<(Work, &Running)> {
        let running = self.running.as_ref()?;
        Some((running.action.work()?, running))
    }

    /// The operation that has ended, with its outcome.
    pub(super) async fn ended(&mut self) -> Option<(Running, Outcome)> {
        let is_over = |running: &mut Running| running.task.is_finished();
        let mut running = self.running.take_if(is_over)?;
        let outcome = joined((&mut running.task).await);
        self.done = outcome.as_ref().ok().and_then(|_| running.action.work());
        Some((running, outcome))
    }

    /// Ends what is under way.
    pub(super) fn cancel(&mut self) {
        *self = Self::default();
    }

    /// Something is done by the plan, which has made use of what was done before.
    pub(super) const fn make_use(&mut self) {
        self.done = None;
    }
}

/// A task that panicked has done who knows what; looking tells.
pub(super) fn joined(ended: Result<Outcome, tokio::task::JoinError>) -> Outcome {
    ended.unwrap_or_else(|error| {
        Err(Failure {
            class: FailureClass::Retry,
            reason: String::from("AgentFailed"),
            message: format!("the agent failed at it: {error}"),
        })
    })
}

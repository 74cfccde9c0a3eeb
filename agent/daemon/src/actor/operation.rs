//! Operations: what may take more than a moment is carried out in a task beside the actor, which looks and plans
//! meanwhile. The actor has one at a time; dropping it cancels it.

use std::time::{Duration, Instant};

use agent_domain::Vmi;
use agent_host::{Host, WorkSeen};
use agent_plan::{
    Action, Completed, Failure, Observation, OperationObserved, OperationState, Record, Timestamp,
    Verdict, Work,
};
use proto_node::vmi::VirtualMachineInstance;
use tokio::task::JoinHandle;

use super::Actor;
use crate::traces::Moment;
use crate::{given, hooks};

/// How long the actor waits before an action is an operation: most are over by then, and the plan goes on at once.
const MOMENT: Duration = Duration::from_millis(250);

/// What came of an action.
pub(super) type Outcome = Result<Completed, Failure>;

/// The operation of one VMI.
#[derive(Default)]
pub(super) struct Operations {
    running: Option<Running>,
    /// The last, when it succeeded and nothing was done since.
    done: Option<Work>,
}

/// An action under way. Dropping it ends its task.
pub(super) struct Running {
    pub(super) action: Action,
    since: Timestamp,
    pub(super) begun: Instant,
    pub(super) traced: Option<Moment>,
    task: JoinHandle<Outcome>,
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

    /// The operation that has ended, with what came of it.
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

impl<H: Host> Actor<H> {
    /// Carries out an action that may take more than a moment: asks hooks, reads what the VMI is given, and does it. When
    /// it is not over after a moment it is an operation, and the actor is woken at its end.
    pub(super) async fn begin(
        &mut self,
        action: &Action,
        (object, vmi): (&VirtualMachineInstance, &Vmi),
        record: &Record,
        now: Timestamp,
    ) -> Outcome {
        let (agent, wake) = (self.agent.clone(), self.wake.clone());
        let (object, vmi, record) = (object.clone(), vmi.clone(), record.clone());
        let (begun, traced) = (Instant::now(), self.start.mark());
        let carried_out = action.clone();
        let mut task = tokio::spawn(async move {
            let node_hooks = agent.hooks();
            let asked = hooks::before(&carried_out, &node_hooks, &object, &vmi).await;
            let given = asked.and_then(|vmi| given::with_data(&agent, &carried_out, &object, vmi));
            let asked = match given {
                Ok(vmi) => hooks::before_iso(&carried_out, &node_hooks, &object, vmi).await,
                Err(failure) => Err(failure),
            };
            let outcome = match asked {
                Ok(vmi) => agent.host.execute(&carried_out, &vmi, &record).await,
                Err(failure) => Err(failure),
            };
            wake.notify_one();
            outcome
        });
        if let Ok(joined_in_time) = tokio::time::timeout(MOMENT, &mut task).await {
            return joined(joined_in_time);
        }
        self.operations.running = Some(Running {
            action: action.clone(),
            since: now,
            begun,
            traced,
            task,
        });
        Ok(Completed::Begun)
    }
}

/// A task that panicked has done who knows what; looking tells.
fn joined(ended: Result<Outcome, tokio::task::JoinError>) -> Outcome {
    ended.unwrap_or_else(|error| {
        Err(Failure {
            verdict: Verdict::Retry,
            reason: String::from("AgentFailed"),
            message: format!("the agent failed at it: {error}"),
        })
    })
}

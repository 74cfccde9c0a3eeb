//! Operations of the simulated agent: some actions take their time, and some get no answer from a file system.

use agent_plan::{
    Action, Completed, Failure, Millis, Observation, OperationObserved, OperationState, Timestamp,
    Work,
};

use super::world::World;

/// What the agent carries out beside its rounds. It is lost when the agent is killed.
#[derive(Default)]
pub(crate) struct Operations {
    running: Option<Running>,
    done: Option<Work>,
}

struct Running {
    action: Action,
    since: Timestamp,
    ends: Timestamp,
    /// Its file system does not answer before that.
    is_silent: bool,
}

impl Operations {
    /// As the plan sees it.
    pub(crate) fn observe(&self) -> Observation<OperationObserved> {
        let observed = |work, state| Observation::Present(OperationObserved { work, state });
        match (&self.running, self.done) {
            (Some(running), _) if running.is_silent => Observation::Unknown {
                why: String::from("no answer"),
                since: running.since,
            },
            (Some(running), _) => {
                let state = OperationState::Running {
                    since: running.since,
                    progress: None,
                };
                let work = running.action.work();
                work.map_or(Observation::Absent, |work| observed(work, state))
            }
            (None, Some(work)) => observed(work, OperationState::Done),
            (None, None) => Observation::Absent,
        }
    }

    /// Carries out an action, or begins to.
    pub(crate) fn execute(
        &mut self,
        world: &mut World,
        action: &Action,
        faults: bool,
    ) -> Result<Completed, Failure> {
        self.done = None;
        if *action == Action::CancelOperation {
            if let Some(running) = self.running.take() {
                world.tally_cancelled();
                // What was sent was sent.
                if faults && matches!(running.action, Action::ConfigureVmm { .. }) {
                    world.do_later(&running.action);
                }
            }
            return Ok(Completed::Done);
        }
        if action.work().is_none() || !world.random.chance(if faults { 25 } else { 5 }) {
            return world.execute(action, faults);
        }
        if self.running.is_some() {
            world
                .murders
                .push(String::from("two operations of one VMI at a time"));
        }
        let span = i64::try_from(world.random.below(20_000)).unwrap_or(0);
        let is_silent = faults && world.random.chance(30);
        world.log(|| format!("agent    {} takes {span} ms", action.name()));
        world.tally_begun();
        self.running = Some(Running {
            action: action.clone(),
            since: world.wall(),
            ends: world.now.plus(Millis(span)),
            is_silent,
        });
        Ok(Completed::Begun)
    }

    /// The operation that has ended by now.
    pub(crate) fn ended(
        &mut self,
        world: &mut World,
        faults: bool,
    ) -> Option<(Action, Result<Completed, Failure>)> {
        let is_over = |running: &mut Running| {
            // A dead file system comes back with the calm.
            running.ends <= world.now && !(running.is_silent && faults)
        };
        let running = self.running.take_if(is_over)?;
        let outcome = world.execute(&running.action, faults);
        self.done = outcome.as_ref().ok().and_then(|_| running.action.work());
        Some((running.action, outcome))
    }
}

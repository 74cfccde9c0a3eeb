//! What follows from a run strategy: one table, over everything that it depends on.

use agent_domain::RunStrategy;

/// The machine's VMI.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Guest {
    /// There is none.
    Absent,
    /// It has not ended.
    Live,
    /// The guest shut itself down, or was asked to.
    Succeeded,
    /// It crashed, was killed, or never ran.
    Failed,
}

/// The request that is the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Request {
    /// A start.
    Start {
        /// The guest waits for an unpause.
        paused: bool,
    },
    /// A stop of the VMI that is there.
    Stop,
}

/// Everything that a step depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Situation {
    /// What the machine's spec asks for.
    pub strategy: RunStrategy,
    /// State of the machine's VMI.
    pub guest: Guest,
    /// It is being deleted.
    pub is_going: bool,
    /// The next request.
    pub request: Option<Request>,
    /// The strategy that was in force when a VMI was last seen.
    pub recorded: Option<RunStrategy>,
}

/// What to do about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Nothing.
    Rest,
    /// Make a VMI.
    Start {
        /// Its guest waits for an unpause.
        paused: bool,
    },
    /// Delete the VMI.
    Stop,
    /// Have the machine be started once its VMI is gone, and delete that.
    StopAndRerun,
    /// Have the machine always run: somebody started a halted one.
    TurnOn,
}

/// What a situation calls for.
#[must_use]
pub fn step(of: Situation) -> Step {
    let asked = match of.request {
        Some(Request::Start { paused }) => Some(paused),
        _ => None,
    };
    let is_asked_to_stop = of.request == Some(Request::Stop);
    let start = Step::Start {
        paused: asked.unwrap_or(false),
    };
    match (of.strategy, of.guest) {
        (RunStrategy::Always, Guest::Absent) => start,
        (RunStrategy::Always, Guest::Live)
        | (RunStrategy::Manual, Guest::Live | Guest::Succeeded | Guest::Failed)
            if is_asked_to_stop =>
        {
            Step::Stop
        }
        (RunStrategy::Always, Guest::Succeeded | Guest::Failed) => Step::Stop,
        (RunStrategy::RerunOnFailure, Guest::Absent) => {
            if asked.is_some() || of.recorded != Some(RunStrategy::RerunOnFailure) {
                start
            } else {
                Step::Rest
            }
        }
        (RunStrategy::RerunOnFailure, Guest::Failed) if !is_asked_to_stop && !of.is_going => {
            Step::StopAndRerun
        }
        (RunStrategy::RerunOnFailure, Guest::Live) if !is_asked_to_stop => Step::Rest,
        (RunStrategy::RerunOnFailure, _) => Step::Stop,
        (RunStrategy::Manual, Guest::Absent) if asked.is_some() => start,
        // The start that a restart or a failure left over is no request to turn a machine on that was halted meanwhile.
        (RunStrategy::Halted, Guest::Absent) if asked == Some(true) => Step::TurnOn,
        (RunStrategy::Halted, Guest::Live | Guest::Succeeded | Guest::Failed) => Step::Stop,
        (RunStrategy::Once, Guest::Absent) if of.recorded != Some(RunStrategy::Once) => start,
        (RunStrategy::Always, Guest::Live)
        | (RunStrategy::Manual | RunStrategy::Once, _)
        | (RunStrategy::Halted, Guest::Absent) => Step::Rest,
    }
}

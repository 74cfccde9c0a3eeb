//! Run strategies in words of their own: which starts and which ends of VMIs somebody wants, and how a machine ends up. It
//! knows what people and guests did, and of the machine no more than the strategy that its status records.

use agent_domain::RunStrategy;
use agent_objects::{MachineRequest, Object};

use RunStrategy::{Always, Halted, Manual, Once, RerunOnFailure};

/// How a machine is once nothing happens any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Due {
    /// Its guest runs.
    Running,
    /// It has the very VMI that it has now.
    Kept(String),
    /// It has no VMI.
    Gone,
    /// It depends on which of two changes the controller saw.
    Unknown,
}

/// What is known of a machine.
#[derive(Debug, Default)]
pub struct Model {
    strategy: Option<RunStrategy>,
    /// Somebody asked for a start that has not come yet.
    is_asked: bool,
    /// The strategy is new since a VMI was last made.
    is_new: bool,
    /// The guest failed, and nobody wanted it to end.
    has_failed: bool,
    /// Somebody wanted the present guest to end, or it is to end by an earlier strategy.
    is_ending: bool,
    /// A start has to come, by a request or by a strategy that is new.
    owes_start: bool,
    /// A start has to come because the guest failed.
    owes_rerun: bool,
    /// The last that somebody asked for is a stop.
    is_stopped: bool,
}

fn has_ended(phase: &str) -> bool {
    matches!(phase, "Succeeded" | "Failed")
}

fn phase(vmi: &Object) -> &str {
    vmi.text(&["status", "phase"])
}

impl Model {
    pub fn new(strategy: RunStrategy) -> Self {
        Self {
            strategy: Some(strategy),
            is_new: true,
            owes_start: matches!(strategy, RerunOnFailure | Once),
            ..Self::default()
        }
    }

    pub fn strategy(&self) -> RunStrategy {
        self.strategy.expect("is set by `new`")
    }

    /// A VMI is made.
    ///
    /// # Errors
    /// Nobody asked for it.
    pub fn start(&mut self) -> Result<(), Self> {
        let strategy = self.strategy;
        let before = std::mem::take(self);
        self.strategy = strategy;
        let is_wanted = match before.strategy() {
            Always => true,
            RerunOnFailure => before.is_asked || before.is_new || before.has_failed,
            Manual => before.is_asked,
            Once => before.is_new,
            Halted => false,
        };
        if is_wanted { Ok(()) } else { Err(before) }
    }

    /// Whether the controller may delete a VMI of this phase.
    pub fn may_remove(&self, phase: &str) -> bool {
        self.is_ending
            || match self.strategy() {
                Halted => true,
                Always | RerunOnFailure => has_ended(phase),
                Manual | Once => false,
            }
    }

    /// Somebody asked for something, and it fits. `vmi` is the one that there was.
    pub fn request(&mut self, request: MachineRequest, vmi: Option<&Object>) {
        match request {
            MachineRequest::Start { .. } => {
                let is_over = |vmi: &Object| has_ended(phase(vmi)) || vmi.is_deleted();
                self.is_asked = true;
                self.is_stopped = false;
                // One that has not been looked at yet is the answer.
                self.owes_start |= vmi.is_none_or(is_over);
                if self.strategy() == Halted {
                    // One that is to start paused is turned on by the controller.
                    self.strategy = Some(Always);
                    self.is_ending = true;
                } else if vmi.is_some_and(is_over) {
                    self.is_ending = true;
                }
            }
            MachineRequest::Restart { .. } => {
                self.is_asked = true;
                self.is_stopped = false;
                self.is_ending = true;
                self.owes_start = true;
            }
            MachineRequest::Stop { .. } => {
                let strategy = match self.strategy() {
                    Always | Once => Halted,
                    other => other,
                };
                *self = Self {
                    strategy: Some(strategy),
                    is_new: self.is_new,
                    is_ending: true,
                    is_stopped: true,
                    ..Self::default()
                };
            }
        }
    }

    /// The user changes the strategy of a machine whose status records that of its last VMI.
    pub fn switch(&mut self, to: RunStrategy, vmi: Option<&Object>, recorded: &str) {
        let from = self.strategy();
        self.strategy = Some(to);
        if from == to {
            return;
        }
        self.is_new = true;
        // The controller may have seen what followed from the strategy before.
        let has_ended = vmi.is_some_and(|vmi| has_ended(phase(vmi)));
        self.is_ending |= from == Halted || (has_ended && matches!(from, Always | RerunOnFailure));
        // A request may be void by now, or may have been carried out.
        self.owes_rerun = false;
        self.is_stopped = false;
        let starts_once = matches!(to, RerunOnFailure | Once);
        self.owes_start = starts_once && vmi.is_none() && recorded != to.as_str();
    }

    /// Somebody deletes the VMI beneath the machine.
    pub fn delete_vmi(&mut self) {
        self.is_ending = true;
        self.owes_rerun = false;
    }

    /// The guest ends by itself.
    pub fn guest_ends(&mut self, how: &str) {
        self.has_failed = how == "Failed" && !self.is_ending;
        self.owes_rerun = self.has_failed && self.strategy() == RerunOnFailure;
    }

    /// How the machine ends up, if it has this VMI, and guests go on from here.
    pub fn due(&self, vmi: Option<&Object>) -> Due {
        let stays = vmi.filter(|vmi| !vmi.is_deleted() && !self.is_ending);
        let strategy = self.strategy();
        if strategy == Halted {
            return Due::Gone;
        }
        if let Some(vmi) = stays {
            return match (strategy, phase(vmi)) {
                (Always | RerunOnFailure, "Failed") | (Always, "Succeeded") => Due::Running,
                (RerunOnFailure, "Succeeded") => Due::Gone,
                _ => Due::Kept(vmi.metadata.uid.clone()),
            };
        }
        let is_going = vmi.is_none_or(Object::is_deleted);
        let may_start = self.is_asked || self.is_new || self.has_failed;
        if strategy == Always || self.owes_start || self.owes_rerun {
            Due::Running
        } else if self.is_stopped || (is_going && !may_start) {
            Due::Gone
        } else {
            Due::Unknown
        }
    }
}

//! What must hold after every step, and what must hold in the end.

use agent_plan::{MachineState, PauseObserved, Phase};

use super::agent::Agent;
use super::world::World;

/// Watches one run.
#[derive(Default)]
pub(crate) struct Watcher {
    ended: Option<(Phase, String)>,
}

impl Watcher {
    /// Checks what must hold at any time.
    pub(crate) fn check(&mut self, world: &World, agent: &Agent) -> Result<(), String> {
        let able = world.processes.iter().filter(|process| {
            matches!(
                process.state,
                MachineState::Configured | MachineState::Running | MachineState::Paused
            )
        });
        if able.count() > 1 {
            return Err(String::from(
                "two VMMs may run vCPUs or hold the disks at the same time",
            ));
        }
        if world.booted.len() > 1 {
            return Err(format!(
                "the guest was booted by incarnations {:?} of one uid",
                world.booted
            ));
        }
        if let Some(murder) = world.murders.first() {
            return Err(murder.clone());
        }
        if let Some(plan) = &agent.last
            && plan.gone
            && !world.processes.is_empty()
        {
            return Err(String::from("the object went while a VMM lived"));
        }
        if !world.processes.is_empty()
            && world.disk.object_exists
            && world.disk.record.room.is_none()
        {
            return Err(String::from("a VMM lives and has no room on the node"));
        }
        if world.intrusion {
            return Err(String::from("a VMM was started on a cordoned node"));
        }
        self.check_phase(world)
    }

    fn check_phase(&mut self, world: &World) -> Result<(), String> {
        let record = &world.disk.record;
        let running = world
            .processes
            .iter()
            .any(|process| matches!(process.state, MachineState::Running | MachineState::Paused));
        if record.phase().is_final() && running {
            return Err(format!(
                "the phase is {} and the guest runs",
                record.phase().as_str()
            ));
        }
        let may_be_held = world.starts_paused;
        if record.phase() == Phase::Running && world.booted.is_empty() && !may_be_held {
            return Err(String::from(
                "the phase is Running and no guest was ever booted",
            ));
        }
        let ended = record
            .end
            .as_ref()
            .map(|end| (end.phase, end.reason.clone()));
        if let Some(before) = &self.ended
            && ended.as_ref() != Some(before)
        {
            return Err(format!("the end changed from {before:?} to {ended:?}"));
        }
        self.ended = ended;
        Ok(())
    }

    /// In a settled world a guest is held exactly when that was asked for last, or when its disk failed
    /// and nobody has told it to go on since.
    fn check_held(&self, world: &World) -> Result<(), String> {
        let record = &world.disk.record;
        for process in &world.processes {
            let is_held = process.state != MachineState::Running;
            let suffers = matches!(process.pause, Some(PauseObserved::IoError { .. }));
            if is_held != record.orders.hold() && !suffers {
                return Err(format!(
                    "the guest is {:?}, and was asked to be {}",
                    process.state,
                    if record.orders.hold() {
                        "paused"
                    } else {
                        "unpaused"
                    },
                ));
            }
            if record.unpauses_done != record.orders.unpauses {
                return Err(String::from("an unpause was never carried out"));
            }
        }
        Ok(())
    }

    /// Checks what must hold once nothing went wrong for long enough.
    pub(crate) fn check_settled(&self, world: &World, agent: &Agent) -> Result<(), String> {
        let record = &world.disk.record;
        if world.disk.deletion_requested_at.is_some() {
            if world.disk.object_exists {
                return Err(format!(
                    "deletion never ended; the phase is {}",
                    record.phase().as_str()
                ));
            }
            if !world.holdings.is_empty() || !world.processes.is_empty() {
                return Err(format!(
                    "left behind: {:?}, {} VMMs",
                    world.holdings,
                    world.processes.len()
                ));
            }
            return Ok(());
        }
        if !matches!(
            record.phase(),
            Phase::Running | Phase::Succeeded | Phase::Failed
        ) {
            return Err(format!("the VMI is still {}", record.phase().as_str()));
        }
        if record.phase().is_final() && !world.processes.is_empty() {
            return Err(String::from("the VMI ended and its VMM stayed"));
        }
        self.check_held(world)?;
        match &agent.last {
            Some(plan) if !plan.actions.is_empty() => {
                Err(format!("never at rest: {:?}", plan.actions))
            }
            _ => Ok(()),
        }
    }
}

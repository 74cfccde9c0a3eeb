//! What must hold after every step, and what must hold in the end.

use agent_plan::{ConditionStatus, MachineState, Orders, PauseObserved, Phase};

use super::agent::Agent;
use super::world::World;

/// Watches one run.
#[derive(Default)]
pub(crate) struct Watcher {
    ended: Option<(Phase, String)>,
    incarnation: u64,
}

/// In a settled world the condition `ResourcesNotEnforced` says whether a guest runs without limits.
fn check_limits(world: &World) -> Result<(), String> {
    let conditions = world.disk.record.report.conditions.iter();
    let is_reported = conditions
        .clone()
        .any(|it| it.kind == "ResourcesNotEnforced");
    let is_so = world.processes.iter().any(|process| !process.enforced);
    if !world.processes.is_empty() && is_reported != is_so {
        return Err(format!(
            "the VMM is without limits: {is_so}, and the condition says so: {is_reported}"
        ));
    }
    Ok(())
}

/// In a settled world the link of a guest's NIC is as it is wanted.
fn check_cables(world: &World) -> Result<(), String> {
    let is_on = |state| matches!(state, MachineState::Running | MachineState::Paused);
    let mut on = world.processes.iter().filter(|it| is_on(it.state));
    if on.any(|process| process.links_down.is_empty() == world.cable_out) {
        return Err(format!("the cable is to be out: {}", world.cable_out));
    }
    Ok(())
}

/// A guest whose VMM is silent is reported as neither ready nor ended.
fn check_silence(agent: &Agent) -> Result<(), String> {
    let Some((plan, observed)) = &agent.last else {
        return Ok(());
    };
    let record = &plan.record;
    let launch = record.launches.present();
    let is_awaited = launch.is_some_and(|launch| launch.running_at.is_some())
        && record.report.end.is_none()
        && record.orders.stop.is_none()
        && record.report.deletion.is_none()
        && record.report.stop.is_none()
        && record.report.probes.unhealthy.is_none();
    let vmms = observed.vmms.present().map_or(&[][..], Vec::as_slice);
    let is_silent = vmms
        .iter()
        .any(|vmm| vmm.incarnation == record.launches.incarnation() && vmm.machine.is_unknown());
    let ready = record
        .report
        .conditions
        .iter()
        .find(|it| it.kind == "Ready");
    let is_reported = ready
        .is_some_and(|it| it.status == ConditionStatus::Unknown && it.reason == "VmmNotAnswering");
    if is_awaited && is_silent && !is_reported {
        return Err(format!("a silent VMM is not reported: {ready:?}"));
    }
    Ok(())
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
        if let Some((plan, _)) = &agent.last
            && plan.gone
            && !world.processes.is_empty()
        {
            return Err(String::from("the object went while a VMM lived"));
        }
        if !world.processes.is_empty()
            && world.disk.object_exists
            && world.disk.record.allocations.reservation.is_none()
        {
            return Err(String::from(
                "a VMM lives and has no reservation on the node",
            ));
        }
        if world.intrusion {
            return Err(String::from("a VMM was started on a cordoned node"));
        }
        self.check_store(world)?;
        check_silence(agent)?;
        self.check_phase(world)
    }

    /// Whatever was stored or promised is still there.
    fn check_store(&mut self, world: &World) -> Result<(), String> {
        let record = &world.disk.record;
        let before = std::mem::replace(&mut self.incarnation, record.launches.incarnation());
        if record.launches.incarnation() < before {
            return Err(format!(
                "incarnation {before} was stored, and {} is there",
                record.launches.incarnation()
            ));
        }
        let said = |orders: &Orders| {
            let grace = orders.stop.map(|stop| stop.grace);
            (orders.paused, orders.unpauses, grace)
        };
        if said(&record.orders) != said(&world.promised) {
            return Err(format!(
                "{:?} was accepted, and {:?} is there",
                world.promised, record.orders
            ));
        }
        Ok(())
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
            .report
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
    /// and nobody has resumed it since.
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
            if record.report.unpauses_done != record.orders.unpauses {
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
        check_limits(world)?;
        check_cables(world)?;
        self.check_held(world)?;
        match &agent.last {
            Some((plan, _)) if !plan.actions.is_empty() => {
                Err(format!("never at rest: {:?}", plan.actions))
            }
            _ => Ok(()),
        }
    }
}

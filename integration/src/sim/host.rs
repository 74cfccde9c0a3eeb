//! The simulated host: observing and executing, faithfully and otherwise.

use std::collections::BTreeSet;

use agent_domain::PciAddress;
use agent_plan::{
    Action, Completed, Enforcement, ExitReason, Failure, FailureClass, Holding, MachineObserved,
    MachineState, Millis, Observation, Observed, PauseObserved, VmmObserved,
};

use super::world::{Late, World};

fn failure(reason: &str) -> Failure {
    Failure {
        class: FailureClass::Retry,
        reason: reason.to_owned(),
        message: String::from("simulated"),
    }
}

impl World {
    /// One look. With faults, facets may be unknown; a facet is never wrong.
    pub(crate) fn observe(&mut self, incarnation: u64, faults: bool) -> Observed {
        // While an effect on the VMM is still under way, nobody can tell.
        let pending = self
            .late
            .iter()
            .any(|late| matches!(late.action, Action::StartVmm { .. }));
        let vmms = if pending || self.unlucky(faults) {
            self.unknown()
        } else if self.processes.is_empty() {
            Observation::Absent
        } else {
            Observation::Present(self.seen_processes())
        };
        let exit = if self.unlucky(faults) {
            self.unknown()
        } else {
            self.exits
                .get(&incarnation)
                .map_or(Observation::Absent, |exit| {
                    Observation::Present(exit.clone())
                })
        };
        let holdings = if self.unlucky(faults) {
            self.unknown()
        } else if self.holdings.is_empty() {
            Observation::Absent
        } else {
            Observation::Present(self.holdings.clone())
        };
        let boot_id = if self.unlucky(faults) {
            self.unknown()
        } else {
            Observation::Present(self.boot_id())
        };
        Observed {
            boot_id,
            vmms,
            exit,
            holdings,
            stands_still: Observation::Absent,
            operation: Observation::Absent,
        }
    }

    const fn unlucky(&mut self, faults: bool) -> bool {
        faults && self.random.chance(10)
    }

    fn seen_processes(&self) -> Vec<VmmObserved> {
        self.processes
            .iter()
            .map(|process| VmmObserved {
                incarnation: process.incarnation,
                identity: process.identity.clone(),
                machine: if process.answers {
                    Observation::Present(MachineObserved {
                        state: process.state,
                        resets: 0,
                        pause: process.pause.clone(),
                        sync_failures: Vec::new(),
                        links_down: Some(process.links_down.clone()),
                    })
                } else {
                    self.unknown()
                },
                enforcement: Observation::Present(if process.enforced {
                    Enforcement::Enforced
                } else {
                    Enforcement::NotEnforced {
                        why: String::from("no cgroup"),
                    }
                }),
            })
            .collect()
    }

    /// Executes an action as a bad day would have it.
    pub(crate) fn execute(&mut self, action: &Action, faults: bool) -> Result<Completed, Failure> {
        if !faults {
            return self.carry_out(action);
        }
        match self.random.below(20) {
            0 => Err(failure("Lost")),
            1 => {
                // Done, but the answer is lost.
                drop(self.carry_out(action));
                Err(failure("NoAnswer"))
            }
            2 => {
                self.do_later(action);
                Err(failure("TimedOut"))
            }
            3 => {
                self.do_later(action);
                self.carry_out(action)
            }
            _ => self.carry_out(action),
        }
    }

    pub(crate) fn do_later(&mut self, action: &Action) {
        let after = i64::try_from(self.random.below(4000)).unwrap_or(0);
        self.late.push(Late {
            due: self.now.plus(Millis(after)),
            action: action.clone(),
        });
    }

    /// Carries out an action as an honest host does. Any action may come twice and late.
    pub(crate) fn carry_out(&mut self, action: &Action) -> Result<Completed, Failure> {
        self.effects += 1;
        self.log(|| format!("host     {action:?}"));
        let writes = matches!(
            action,
            Action::EnsureKernel
                | Action::EnsureDisks
                | Action::EnsureRunDir { .. }
                | Action::StartVmm { .. }
        );
        if writes && self.disk_is_full() {
            return Err(failure("NoSpace"));
        }
        match action {
            Action::EnsureKernel => Ok(Completed::Done),
            Action::EnsureDisks => self.hold(Holding::Disks),
            Action::EnsureTaps => self.hold(Holding::Taps),
            Action::EnsureRunDir { incarnation } => {
                self.fence(*incarnation)?;
                self.hold(Holding::RunDir)
            }
            Action::StartVmm { incarnation } => self.start(*incarnation),
            Action::ConfigureVmm { incarnation } => {
                self.fence(*incarnation)?;
                self.change(
                    *incarnation,
                    MachineState::Unconfigured,
                    MachineState::Configured,
                )
            }
            Action::BootVmm { incarnation } => {
                self.fence(*incarnation)?;
                self.change(
                    *incarnation,
                    MachineState::Configured,
                    MachineState::Running,
                )
            }
            Action::PauseVmm { incarnation } => {
                self.hold_guest(*incarnation, Some(PauseObserved::Requested))
            }
            Action::ResumeVmm { incarnation } => self.hold_guest(*incarnation, None),
            Action::SetLink {
                incarnation,
                nic,
                up,
            } => self.set_link(*incarnation, *nic, *up),
            Action::PressPowerButton { incarnation } => self.press(*incarnation),
            Action::StopVmm { incarnation, .. } => self.stop(*incarnation),
            Action::KillVmm { identity, .. } => {
                if let Some(index) = self
                    .processes
                    .iter()
                    .position(|process| process.identity == *identity)
                {
                    let process = self.processes.remove(index);
                    self.note_end(process.incarnation, process.state);
                }
                Ok(Completed::Done)
            }
            Action::CancelOperation => Ok(Completed::Done),
            Action::Release {
                incarnation,
                holdings,
            } => self.release(*incarnation, holdings),
        }
    }

    fn hold(&mut self, holding: Holding) -> Result<Completed, Failure> {
        if self.gone {
            return Err(failure("Gone"));
        }
        self.holdings.insert(holding);
        Ok(Completed::Done)
    }

    fn fence(&mut self, incarnation: u64) -> Result<(), Failure> {
        if incarnation < self.fence {
            return Err(failure("Fenced"));
        }
        self.fence = incarnation;
        Ok(())
    }

    fn start(&mut self, incarnation: u64) -> Result<Completed, Failure> {
        self.fence(incarnation)?;
        if let Some(process) = self
            .processes
            .iter()
            .find(|process| process.incarnation == incarnation)
        {
            return Ok(Completed::Started(process.identity.clone()));
        }
        if self.started.contains(&incarnation) || self.gone {
            return Err(failure("Fenced"));
        }
        Ok(Completed::Started(self.start_process(incarnation)))
    }

    fn change(
        &mut self,
        incarnation: u64,
        from: MachineState,
        to: MachineState,
    ) -> Result<Completed, Failure> {
        let Some(process) = self
            .processes
            .iter_mut()
            .find(|process| process.incarnation == incarnation)
        else {
            return Err(failure("VmmNotThere"));
        };
        if !process.answers {
            return Err(failure("VmmNotAnswering"));
        }
        if process.state == from {
            process.state = to;
        } else if process.state < to {
            return Err(failure("WrongState"));
        }
        if to == MachineState::Running {
            self.booted.insert(incarnation);
        }
        Ok(Completed::Done)
    }

    /// Holds a guest, or lets it go on. One that is held already keeps the reason of it.
    fn hold_guest(
        &mut self,
        incarnation: u64,
        pause: Option<PauseObserved>,
    ) -> Result<Completed, Failure> {
        let process = self
            .processes
            .iter_mut()
            .find(|process| process.incarnation == incarnation)
            .ok_or_else(|| failure("VmmNotThere"))?;
        if !process.answers {
            return Err(failure("VmmNotAnswering"));
        }
        match (process.state, pause) {
            (MachineState::Paused, Some(_)) | (MachineState::Running, None) => {}
            (MachineState::Running, pause) => {
                process.state = MachineState::Paused;
                process.pause = pause;
            }
            (MachineState::Paused, None) => {
                process.state = MachineState::Running;
                process.pause = None;
            }
            _ => return Err(failure("WrongState")),
        }
        Ok(Completed::Done)
    }

    fn set_link(
        &mut self,
        incarnation: u64,
        nic: PciAddress,
        up: bool,
    ) -> Result<Completed, Failure> {
        let mut living = self.processes.iter_mut();
        let process = living.find(|process| process.incarnation == incarnation && process.answers);
        let process = process.ok_or_else(|| failure("VmmNotAnswering"))?;
        if up {
            process.links_down.remove(&nic);
        } else {
            process.links_down.insert(nic);
        }
        Ok(Completed::Done)
    }

    fn press(&mut self, incarnation: u64) -> Result<Completed, Failure> {
        let (heeds, at) = (self.heeds_the_button(), self.now.plus(Millis(3000)));
        let running = self.processes.iter_mut().find(|process| {
            process.incarnation == incarnation
                && matches!(process.state, MachineState::Running | MachineState::Paused)
        });
        match running {
            Some(process) if process.answers => {
                if heeds {
                    process.powering_off_at.get_or_insert(at);
                }
                Ok(Completed::Done)
            }
            _ => Err(failure("VmmNotAnswering")),
        }
    }

    fn stop(&mut self, incarnation: u64) -> Result<Completed, Failure> {
        let at = self.now.plus(Millis(200));
        let Some(process) = self
            .processes
            .iter_mut()
            .find(|process| process.incarnation == incarnation)
        else {
            return Ok(Completed::Done);
        };
        if !process.answers {
            return Err(failure("VmmNotAnswering"));
        }
        let state = std::mem::replace(&mut process.state, MachineState::Exited);
        process.exits_at.get_or_insert(at);
        self.note_end(incarnation, state);
        self.leave_record(incarnation, ExitReason::Stopped);
        Ok(Completed::Done)
    }

    /// Remembers a guest that ran and was ended by force before anybody had the right to.
    fn note_end(&mut self, incarnation: u64, state: MachineState) {
        if matches!(state, MachineState::Running | MachineState::Paused) && !self.may_be_ended() {
            self.murders.push(format!(
                "the guest of incarnation {incarnation} was ended without being asked for"
            ));
        }
    }

    fn release(
        &mut self,
        incarnation: u64,
        holdings: &BTreeSet<Holding>,
    ) -> Result<Completed, Failure> {
        if incarnation < self.fence {
            return Err(failure("Fenced"));
        }
        self.holdings.retain(|holding| !holdings.contains(holding));
        Ok(Completed::Done)
    }
}

//! What the machine thread does when it is asked.

use super::{EventLoop, Flow};
use crate::disks::Disks;
use crate::durable::SyncFailure;
use crate::memory_log::{HeldMemory, MemoryVisitor};
use crate::request::{Request, RequestError, Saver};
use crate::snapshot::error::SnapshotError;
use crate::status::{Change, EndReason, MachineState, PauseReason};

impl EventLoop {
    pub(super) fn on_request(&mut self, ticket: u64, request: Request) -> Flow {
        if let Request::Stop { reason } = request {
            self.observer.answered(ticket, Ok(()));
            return self.end(EndReason::Stopped, reason);
        }
        let state = self.board.read().state;
        if let (Request::Reset, MachineState::Running | MachineState::Paused) = (&request, state) {
            return self.on_reset_request(ticket);
        }
        let result = self.carry_out(&request, state);
        self.observer.answered(ticket, result);
        Flow::Continue
    }

    fn carry_out(&mut self, request: &Request, state: MachineState) -> Result<(), RequestError> {
        use MachineState::{Configured, Paused, Running};
        let wrong = |request| Err(RequestError::WrongState { request, state });
        match (request, state) {
            (Request::Boot, Configured) => self.boot().map_err(RequestError::Host),
            (Request::Boot | Request::Resume, Running) | (Request::Boot, Paused) => Ok(()),
            (Request::Pause, Paused) => {
                self.keep_paused();
                Ok(())
            }
            (Request::PowerButton | Request::SoftReboot, Running | Paused) => {
                self.is_to_reboot = *request == Request::SoftReboot;
                self.machine.press_power_button();
                Ok(())
            }
            (Request::Pause, Running) => self
                .pause(PauseReason::Requested)
                .map_err(RequestError::Host),
            (Request::Resume, Paused) => self
                .quiesce_before_resume()
                .and_then(|()| self.resume())
                .map_err(RequestError::Host),
            (Request::GrowDisk { disk }, Configured | Running | Paused) => {
                Ok(self.work_on_disks(|disks| disks.grow(*disk))?)
            }
            (Request::SetDiskLimits { disk, limits }, Configured | Running | Paused) => {
                Ok(self.machine.disks().set_limits(*disk, *limits)?)
            }
            (Request::ChangeNic { nic, change }, Configured | Running | Paused) => {
                Ok(self.machine.nics().change(*nic, *change)?)
            }
            (Request::Boot, _) => wrong("Boot"),
            (Request::PowerButton, _) => wrong("PowerButton"),
            (Request::SoftReboot, _) => wrong("SoftReboot"),
            (Request::Reset, _) => wrong("Reset"),
            (Request::Pause, _) => wrong("Pause"),
            (Request::Resume, _) => wrong("Resume"),
            (Request::GrowDisk { .. }, _) => wrong("GrowDisk"),
            (Request::SetDiskLimits { .. }, _) => wrong("SetDiskLimits"),
            (Request::ChangeNic { .. }, _) => wrong("ChangeNic"),
            (Request::Stop { .. }, _) => wrong("Stop"),
        }
    }

    pub(super) fn on_save(&mut self, ticket: u64, saver: Saver) -> Flow {
        // The guest has no other trace of them: what it asked for last would be lost on its way.
        if let Flow::Ended = self.settle_guest_events() {
            return Flow::Ended;
        }
        let result = self.save(saver);
        self.observer.answered(ticket, result);
        Flow::Continue
    }

    fn save(&mut self, saver: Saver) -> Result<(), RequestError> {
        self.expect_held("Save")?;
        // Before the state is taken: what was answered as written has to be there when RAM is restored, and
        // a sync that fails is part of the state.
        self.work_on_disks(Disks::sync)?;
        let snapshot = self.machine.save()?;
        let saved = saver(&snapshot, self.machine.ram());
        saved.map_err(|error| SnapshotError::Ram(error).into())
    }

    /// Does work that may sync disks, and reports those whose sync fails.
    fn work_on_disks<T>(&mut self, work: impl FnOnce(&Disks) -> T) -> T {
        let before = self.machine.disks().sync_failures();
        let done = work(self.machine.disks());
        for failure in self.machine.disks().sync_failures() {
            if !before.contains(&failure) {
                let SyncFailure { store, errno } = failure;
                self.notify(Change::SyncFailed { store, errno });
            }
        }
        done
    }

    pub(super) fn visit_memory(&mut self, visitor: MemoryVisitor) -> Result<(), RequestError> {
        self.expect_held("VisitMemory")?;
        visitor(&HeldMemory::new(self.machine.vm())).map_err(RequestError::Memory)
    }

    /// A guest that waits for its next start has none of the former's state, and one that waits for a
    /// device may get some of it yet.
    fn expect_held(&self, request: &'static str) -> Result<(), RequestError> {
        let state = self.board.read().state;
        let is_waiting = self.restart.is_some() || self.quiesce_due.is_some();
        if state == MachineState::Paused && !is_waiting {
            return Ok(());
        }
        Err(RequestError::WrongState { request, state })
    }
}

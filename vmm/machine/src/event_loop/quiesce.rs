//! How the machine thread waits for a device that the guest has stopped.
//!
//! A guest that takes a device's right to access memory, or resets the bus that it is on, may use the
//! memory that the device was given for something else by its next instruction. So it does not get to that
//! before the host is done with what the device had in flight.

use std::time::{Duration, Instant};

use super::{EventLoop, Flow};
use crate::build::error::BuildError;
use crate::chain::chain;
use crate::pci::address::PciAddress;
use crate::status::{Change, EndReason, MachineState, PauseReason};

/// When a device, which has its own patience, did not come to rest, it is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Holds the guest until all devices are at rest. One that is paused or starts over is held already.
    pub(super) fn on_await_quiesce(&mut self) -> Flow {
        if self.board.read().state == MachineState::Running && self.restart.is_none() {
            return self.await_quiesce();
        }
        Flow::Continue
    }

    /// Tries to bring all devices to rest, and lets the guest go on if they are.
    pub(super) fn await_quiesce(&mut self) -> Flow {
        match self.machine.hold() {
            Ok(()) => {
                let gone_on = self.resume_when_quiesced();
                self.flow_after(gone_on)
            }
            Err(BuildError::Quiesce { address, .. }) => {
                self.quiesce_due = Some(Instant::now() + RETRY_INTERVAL);
                self.pause_for_device(address);
                Flow::Continue
            }
            Err(error) => self.end(EndReason::HostFailed, chain(&error)),
        }
    }

    fn resume_when_quiesced(&mut self) -> Result<(), BuildError> {
        self.quiesce_due = None;
        match self.board.read().pause_reason {
            Some(PauseReason::DeviceBusy { .. }) => self.resume(),
            _ => self.run_if_it_may(),
        }
    }

    fn pause_for_device(&mut self, device: PciAddress) {
        if self.board.read().state != MachineState::Running {
            return;
        }
        self.board.update(|status| {
            status.state = MachineState::Paused;
            status.pause_reason = Some(PauseReason::DeviceBusy { device });
        });
        self.notify(Change::Paused);
    }

    /// A pause that somebody asks for outlasts that for a device.
    pub(super) fn keep_paused(&self) {
        self.board.update(|status| {
            if let Some(PauseReason::DeviceBusy { .. }) = status.pause_reason {
                status.pause_reason = Some(PauseReason::Requested);
            }
        });
    }

    /// Has a guest that somebody resumes be at rest before it goes on.
    pub(super) fn quiesce_before_resume(&mut self) -> Result<(), BuildError> {
        if self.quiesce_due.is_some() {
            self.machine.hold()?;
            self.quiesce_due = None;
        }
        Ok(())
    }
}

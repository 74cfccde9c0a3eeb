//! What the machine thread does about events of the guest.

use super::{EventLoop, Flow};
use crate::backoff::ResetDecision;
use crate::config::RebootPolicy;
use crate::guest_event::{GuestEvent, ResetSource};
use crate::pci::address::PciAddress;
use crate::request::Message;
use crate::status::{Change, EndReason, MachineState, PauseReason};

impl EventLoop {
    /// While no vCPU runs: events of the guest that was are of no concern to the one that will be. What
    /// became of a disk is.
    pub(super) fn drop_stale_events(&mut self) {
        let events = self.take_guest_events();
        let kept = events.into_iter().filter(|event| match event {
            GuestEvent::SyncFailed { .. } => true,
            GuestEvent::PowerOff
            | GuestEvent::Reset(_)
            | GuestEvent::Panicked
            | GuestEvent::PanicDevice(_)
            | GuestEvent::Watchdog(_)
            | GuestEvent::IoStopped { .. }
            | GuestEvent::AwaitQuiesce
            | GuestEvent::DebugExit(_)
            | GuestEvent::VcpuFailed(_)
            | GuestEvent::HostFailure(_) => false,
        });
        self.waiting.extend(kept.map(Message::Guest));
    }

    /// Does now what events ask for that are still in the queue, ahead of requests that came before them.
    pub(super) fn settle_guest_events(&mut self) -> Flow {
        for event in self.take_guest_events() {
            if let Flow::Ended = self.on_guest_event(event) {
                return Flow::Ended;
            }
        }
        Flow::Continue
    }

    /// All that are in the queue; requests among them wait for their turn.
    fn take_guest_events(&mut self) -> Vec<GuestEvent> {
        let mut events = Vec::new();
        while let Ok(message) = self.messages.try_recv() {
            match message {
                Message::Guest(event) => events.push(event),
                other => self.waiting.push_back(other),
            }
        }
        events
    }

    pub(super) fn on_guest_event(&mut self, event: GuestEvent) -> Flow {
        match event {
            GuestEvent::PowerOff if self.is_to_reboot => {
                self.on_guest_reset(ResetSource::SoftReboot)
            }
            GuestEvent::PowerOff => self.end(EndReason::PoweredOff, "ACPI S5".to_owned()),
            GuestEvent::Panicked => self.on_panic("by Hyper-V's crash registers"),
            GuestEvent::PanicDevice(panic) => self.on_panic_device(panic),
            GuestEvent::Watchdog(action) => self.on_watchdog(action),
            GuestEvent::DebugExit(value) => self.end(EndReason::DebugExit, value.to_string()),
            GuestEvent::VcpuFailed(detail) => self.end(EndReason::KvmFailed, detail),
            GuestEvent::HostFailure(detail) => self.end(EndReason::HostFailed, detail),
            GuestEvent::Reset(source) => self.on_guest_reset(source),
            GuestEvent::IoStopped { disk, errno } => self.on_io_stopped(disk, errno),
            GuestEvent::SyncFailed { store, errno } => {
                self.notify(Change::SyncFailed { store, errno });
                Flow::Continue
            }
            GuestEvent::AwaitQuiesce => self.on_await_quiesce(),
        }
    }

    /// Pauses the guest until somebody has seen to the host and resumes it.
    fn on_io_stopped(&mut self, disk: PciAddress, errno: i32) -> Flow {
        let reason = PauseReason::IoError { disk, errno };
        let state = self.board.read().state;
        let result = match state {
            // Somebody may have resumed the guest, and what was held tried again, since this was sent.
            MachineState::Running if !self.machine.disks().is_one_stopped() => self.run_if_it_may(),
            MachineState::Running => self.pause(reason),
            MachineState::Paused => {
                self.board
                    .update(|status| status.pause_reason = Some(reason));
                Ok(())
            }
            MachineState::Building | MachineState::Configured | MachineState::Ended => Ok(()),
        };
        self.flow_after(result)
    }

    pub(super) fn on_guest_reset(&mut self, source: ResetSource) -> Flow {
        let is_fault = source == ResetSource::TripleFault;
        let reason = match source {
            ResetSource::TripleFault => EndReason::TripleFault,
            ResetSource::Watchdog => EndReason::Watchdog,
            ResetSource::Panic => EndReason::Panicked,
            ResetSource::ResetRegister
            | ResetSource::KeyboardController
            | ResetSource::Hypercall
            | ResetSource::SoftReboot => EndReason::Reset,
        };
        if self.reboot_policy == RebootPolicy::End {
            return self.end(reason, source.to_string());
        }
        match self.backoff.on_reset(self.started.elapsed(), is_fault) {
            ResetDecision::Hopeless => self.end(
                reason,
                format!("{source}, again and again right after start"),
            ),
            ResetDecision::After(delay) => self.reset_by_guest(source, delay),
        }
    }
}

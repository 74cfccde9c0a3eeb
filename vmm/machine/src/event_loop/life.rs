//! What the machine thread does when the guest's watchdog runs out, or its kernel gives up.

use vmm_devices::{Panic, WatchdogAction};

use super::{EventLoop, Flow};
use crate::build::error::BuildError;
use crate::chain::chain;
use crate::config::PanicPolicy;
use crate::guest_event::ResetSource;
use crate::status::{Change, EndReason, MachineState, PauseReason};

impl EventLoop {
    pub(super) fn on_watchdog(&mut self, action: WatchdogAction) -> Flow {
        self.board.update(|status| status.watchdog_expirations += 1);
        self.notify(Change::WatchdogExpired(action));
        match action {
            WatchdogAction::PowerOff => {
                self.end(EndReason::Watchdog, "the watchdog ran out".to_owned())
            }
            WatchdogAction::Reset => self.on_guest_reset(ResetSource::Watchdog),
            WatchdogAction::Pause => self.pause_for(PauseReason::Watchdog),
            WatchdogAction::Shutdown => {
                self.machine.press_power_button();
                self.go_on()
            }
            WatchdogAction::None => self.go_on(),
        }
    }

    /// The guest wrote to a panic device.
    pub(super) fn on_panic_device(&mut self, panic: Panic) -> Flow {
        match panic {
            Panic::Panicked => self.on_panic("by the panic device"),
            Panic::CrashLoaded => {
                self.board.update(|status| status.panics += 1);
                self.notify(Change::CrashLoaded);
                self.go_on()
            }
            Panic::Shutdown => self.end(EndReason::PoweredOff, "by the panic device".to_owned()),
        }
    }

    /// The guest's kernel gave up; `how` goes into the exit record, as "by the panic device".
    pub(super) fn on_panic(&mut self, how: &str) -> Flow {
        self.board.update(|status| status.panics += 1);
        match self.machine.parts.config.life.on_panic {
            PanicPolicy::End => self.end(EndReason::Panicked, format!("reported {how}")),
            PanicPolicy::Pause => {
                self.notify(Change::Panicked);
                self.pause_for(PauseReason::Panicked)
            }
            PanicPolicy::Restart => {
                self.notify(Change::Panicked);
                self.on_guest_reset(ResetSource::Panic)
            }
        }
    }

    /// Pauses the guest, or says why it stays paused.
    fn pause_for(&mut self, reason: PauseReason) -> Flow {
        let result = if self.board.read().state == MachineState::Running {
            self.pause(reason)
        } else {
            self.board
                .update(|status| status.pause_reason = Some(reason));
            Ok(())
        };
        self.flow_after(result)
    }

    /// Lets the vCPUs back in, which every event of the guest keeps out.
    fn go_on(&mut self) -> Flow {
        let result = self.run_if_it_may();
        self.flow_after(result)
    }

    pub(super) fn flow_after(&mut self, result: Result<(), BuildError>) -> Flow {
        match result {
            Ok(()) => Flow::Continue,
            Err(error) => self.end(EndReason::HostFailed, chain(&error)),
        }
    }
}

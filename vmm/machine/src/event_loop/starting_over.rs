//! How the machine thread brings a guest back to power-on.

use std::time::{Duration, Instant};

use super::restart::Restart;
use super::{EventLoop, Flow};
use crate::build::error::BuildError;
use crate::chain::chain;
use crate::guest_event::ResetSource;
use crate::request::RequestError;
use crate::status::{Change, EndReason, LastReset};

/// When a device, which has its own patience, did not come to rest, it is tried again after this time.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);

impl EventLoop {
    /// Resets on request. If a device does not come to rest, the caller gets the error and the guest goes on.
    pub(super) fn on_reset_request(&mut self, ticket: u64) -> Flow {
        if let Err(error) = self.hold_or_resume() {
            self.observer
                .answered(ticket, Err(RequestError::Host(error)));
            return Flow::Continue;
        }
        let started = self.start_over(None, Duration::ZERO);
        let flow = match &started {
            Ok(()) => Flow::Continue,
            // The guest is stopped, and cannot be started again.
            Err(error) => self.end(EndReason::HostFailed, chain(error)),
        };
        self.observer
            .answered(ticket, started.map_err(RequestError::Host));
        flow
    }

    /// Resets by the guest's own doing. A device that does not come to rest is waited for: the guest has
    /// begun to start over, so it cannot go on meanwhile, and nothing that it has would be lost by that.
    pub(super) fn reset_by_guest(&mut self, source: ResetSource, delay: Duration) -> Flow {
        match self.machine.hold() {
            Ok(()) => {
                let started = self.start_over(Some(source), delay);
                self.flow_after(started)
            }
            Err(BuildError::Quiesce { address, .. }) => {
                self.drop_stale_events();
                let waited = self.restart.replace(Restart {
                    at: Instant::now() + RETRY_INTERVAL,
                    unfinished: Some((source, delay)),
                });
                if waited.is_none() {
                    self.notify(Change::ResetWaits(address));
                }
                Flow::Continue
            }
            Err(error) => self.end(EndReason::HostFailed, chain(&error)),
        }
    }

    /// The time has come for a guest that is held between two starts.
    pub(super) fn restart(&mut self) -> Flow {
        match self.restart.and_then(|restart| restart.unfinished) {
            Some((source, delay)) => self.reset_by_guest(source, delay),
            None => {
                let started = self.run_after_reset();
                self.flow_after(started)
            }
        }
    }

    /// Brings a machine that holds still back to power-on; it runs again after `delay`, or once it is
    /// resumed.
    fn start_over(
        &mut self,
        source: Option<ResetSource>,
        delay: Duration,
    ) -> Result<(), BuildError> {
        self.drop_stale_events();
        self.machine.reset()?;
        self.is_to_reboot = false;
        self.board.update(|status| {
            status.resets += 1;
            status.last_reset = source.map_or(LastReset::Requested, LastReset::Guest);
        });
        self.notify(Change::Reset(source));
        self.restart = Some(Restart {
            at: Instant::now() + delay,
            unfinished: None,
        });
        if delay.is_zero() {
            self.run_after_reset()?;
        }
        Ok(())
    }

    fn run_after_reset(&mut self) -> Result<(), BuildError> {
        self.restart = None;
        self.started = Instant::now();
        self.run_if_it_may()
    }
}

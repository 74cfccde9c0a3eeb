//! virtio-balloon (VIRTIO 1.2, 5.5): memory that the guest does without goes back to the host.
//!
//! Pages leave by holes in the memfd that is guest memory. They read as zero afterwards, and cost
//! something again once they are touched: nothing has to be done for a page that leaves the balloon,
//! so `VIRTIO_BALLOON_F_MUST_TELL_HOST` is not offered. Free page hints (which serve migration) are
//! not offered, either.
//!
//! A balloon has nothing in flight between two of its turns: no ring, no thread and no buffer of its own. All
//! that a turn does to guest memory (numbers that are read, holes that are made, used buffers that are written) is done
//! when the turn ends, and it runs under the lock of the function, which a vCPU needs to write the status. So a reset, be
//! it of the device, of its bus or of the machine, comes before a turn or after it, waits for one at most, which is bounded
//! (a thousand calls of the host and one request), and no page is given back after the status reads 0. Requests
//! that later turns would have served are forgotten with the queues. That is why the device is always idle
//! ([`VirtioDevice::is_idle`]).

mod config;
mod control;
mod state;
mod stats;
mod work;

#[cfg(test)]
mod tests;

use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use vmm_sys::event;
use vmm_sys::timer::Timer;

pub use self::config::{BALLOON_PAGE_BYTES, BalloonConfig};
pub use self::control::{BalloonControl, BalloonSize, BalloonTargetError, StatsReport};
use self::state::BalloonState;
pub use self::stats::{BalloonStats, Stat};
use self::work::Active;
use super::device::{ActivateError, ActiveContext, DeviceEvent, DeviceKind, VirtioDevice};
use super::fault::DeviceFault;
use super::queue::VirtQueue;
use crate::event::EventSource;
use crate::state::{DeviceState, Payload, Payloads, StateError};

/// PCI class as QEMU has it: none of its own.
const KIND: DeviceKind = DeviceKind {
    id: 5,
    class: 0x00_ff00,
};

/// Inflation, deflation, statistics, and two numbers for reports. Linux wants room for 32 ranges in
/// the last.
const QUEUE_SIZES: [u16; 5] = [128; 5];

/// Tokens of the event sources: requests, and the timer of statistics.
const WORK: u64 = 0;
const TIMER: u64 = 1;

/// A balloon cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BalloonError {
    /// The first target is out of range.
    #[error("the target cannot be")]
    Target(#[from] BalloonTargetError),
    /// The state that it is to be made of.
    #[error("the balloon's state cannot be used")]
    State(#[from] StateError),
    /// The host has no descriptor left.
    #[error("the host has no descriptors left")]
    Descriptors(#[source] io::Error),
}

/// A balloon.
pub struct BalloonDevice {
    config: BalloonConfig,
    control: Arc<BalloonControl>,
    timer: Timer,
    /// The buffer for statistics that was held when the balloon was saved, until it is activated.
    restored: Option<u16>,
    active: Option<Active>,
}

impl BalloonDevice {
    /// A balloon in a guest with `ram_bytes` of memory.
    ///
    /// # Errors
    /// The target is larger than memory, or the host has no descriptor left.
    pub fn new(config: &BalloonConfig, ram_bytes: u64) -> Result<Self, BalloonError> {
        let device = Self::empty(config, ram_bytes)?;
        device.control.set_target(config.target_bytes)?;
        Ok(device)
    }

    /// A balloon made of the state that is among `payloads`, whose target counts, not the configured
    /// one.
    ///
    /// # Errors
    /// The state is not that of such a balloon, or the host has no descriptor left.
    pub fn restored(
        config: &BalloonConfig,
        ram_bytes: u64,
        payloads: &mut Payloads,
    ) -> Result<Self, BalloonError> {
        let mut device = Self::empty(config, ram_bytes)?;
        let state: BalloonState = payloads.take()?;
        device.restored = state.load(&device.control)?;
        Ok(device)
    }

    fn empty(config: &BalloonConfig, ram_bytes: u64) -> Result<Self, BalloonError> {
        let control = BalloonControl::new(ram_bytes).map_err(BalloonError::Descriptors)?;
        Ok(Self {
            config: *config,
            control: Arc::new(control),
            timer: Timer::new().map_err(BalloonError::Descriptors)?,
            restored: None,
            active: None,
        })
    }

    /// The handle by which the balloon is asked while its guest runs.
    pub fn control(&self) -> Arc<BalloonControl> {
        Arc::clone(&self.control)
    }

    /// Sets the time of the next question.
    fn wind_up(&self) {
        let interval = self.config.stats_interval;
        let asks = self.active.as_ref().is_some_and(Active::has_stats_queue);
        if asks && !interval.is_zero() {
            // Without a timer statistics come on request only; none is known to fail.
            self.timer.set(interval).unwrap_or_default();
        }
    }
}

impl VirtioDevice for BalloonDevice {
    fn kind(&self) -> DeviceKind {
        KIND
    }

    fn queue_sizes(&self) -> &[u16] {
        &QUEUE_SIZES
    }

    fn features(&self) -> u64 {
        self.config.features()
    }

    fn config(&self) -> Vec<u8> {
        config::image(self.control.target_pages(), self.control.actual_pages())
    }

    fn config_generation(&self) -> u8 {
        self.control.generation()
    }

    fn write_config(&mut self, offset: u64, data: &[u8]) {
        if let (config::ACTUAL_OFFSET, Ok(pages)) = (offset, data.try_into()) {
            self.control.set_actual_pages(u32::from_le_bytes(pages));
        }
    }

    fn activate(&mut self, context: ActiveContext) -> Result<(), ActivateError> {
        let size = context
            .queues
            .get(work::STATS_QUEUE)
            .map_or(0, VirtQueue::size);
        let held = self.restored.take().filter(|head| *head < size);
        self.active = Some(Active::new(context, held));
        self.wind_up();
        Ok(())
    }

    fn reset(&mut self) {
        self.active = None;
        self.restored = None;
        self.control.forget_driver();
        // A timer that fires all the same finds no driver to ask.
        self.timer.clear().unwrap_or_default();
    }

    fn queues(&self) -> Vec<&VirtQueue> {
        match &self.active {
            Some(active) => active.queues().iter().collect(),
            None => Vec::new(),
        }
    }

    fn save(&self) -> Option<Payload> {
        let held = self.active.as_ref().and_then(Active::held);
        Some(BalloonState::new(&self.control, held).to_payload())
    }

    fn event_sources(&self) -> Vec<EventSource> {
        let source = |token, fd| EventSource { token, fd };
        vec![
            source(WORK, self.control.event().as_raw_fd()),
            source(TIMER, self.timer.as_raw_fd()),
        ]
    }

    fn handle(&mut self, event: DeviceEvent) -> Result<(), DeviceFault> {
        let Some(active) = &mut self.active else {
            return Ok(());
        };
        match event {
            DeviceEvent::Kick(queue) => active.serve(queue, &self.control),
            DeviceEvent::Source(WORK) => {
                event::clear(self.control.event());
                let pending = self.control.take_pending();
                if pending.target {
                    active.announce_config();
                }
                if pending.stats {
                    active.ask_for_stats()?;
                }
                Ok(())
            }
            DeviceEvent::Source(_) => {
                // A timer that stays readable does no harm: it is polled for edges.
                self.timer.clear().unwrap_or_default();
                active.ask_for_stats()?;
                self.wind_up();
                Ok(())
            }
        }
    }
}

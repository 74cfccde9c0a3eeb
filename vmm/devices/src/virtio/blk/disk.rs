//! What requests work on: the image, its limits and its syncs.

use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_sys::timer::Timer;

use super::backend::Backend;
use super::config::Geometry;
use super::control::BlkControl;
use super::engine::Engine;
use super::error_policy::ErrorPolicies;
use super::flight::Abandoned;
use super::image_sync::{ImageSync, RingOutcome};
use super::limits::{Cost, DiskLimits, Limiter};
use super::request::{ID_BYTES, Shape};
use super::state::HeldChain;
use crate::notice::NoticeSink;

/// The least time between two checks of the limits: what was earned meanwhile is not lost.
const LEAST_WAIT: Duration = Duration::from_micros(500);

/// What requests work on.
pub(super) struct Disk {
    pub(super) backend: Backend,
    pub(super) engine: Engine,
    pub(super) geometry: Geometry,
    pub(super) id: [u8; ID_BYTES],
    pub(super) control: Arc<BlkControl>,
    pub(super) limiter: Limiter,
    pub(super) timer: Timer,
    /// The limits' clock starts here.
    pub(super) made: Instant,
    pub(super) errors: ErrorPolicies,
    pub(super) notices: NoticeSink,
    pub(super) sync: ImageSync,
    /// Requests that were held when the disk was saved, until it is activated.
    pub(super) restored: Vec<HeldChain>,
    /// What the disk had in flight when it was reset, until the host is done with it.
    pub(super) abandoned: Option<Abandoned>,
}

impl Disk {
    pub(super) fn shape(&self) -> Shape {
        Shape {
            geometry: self.geometry,
            sectors: self.control.sectors(),
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// Whether the limits let a request pass; if not, the timer is set.
    pub(super) fn admit(&mut self, cost: Cost) -> bool {
        if !self.limiter.is_on {
            return true;
        }
        let now_ns = self.now_ns();
        match self.limiter.admit(cost, now_ns) {
            Ok(()) => true,
            Err(wait_ns) => {
                let wait = Duration::from_nanos(wait_ns).max(LEAST_WAIT);
                // A timer that cannot be set must not hold the disk up for ever.
                self.timer.set(wait).is_err()
            }
        }
    }

    pub(super) fn set_limits(&mut self, limits: DiskLimits) {
        self.limiter = Limiter::new(limits, self.now_ns());
    }

    /// Takes note of requests that have ended and of which nobody wants an answer any more. True when
    /// none is left.
    pub(super) fn reap_abandoned(&mut self) -> bool {
        // A sync that failed is remembered all the same.
        while let Some(ended) = self.next_outcome() {
            if let (RingOutcome::Request(done), Some(abandoned)) = (ended, &self.abandoned) {
                abandoned.note_ended(done.slot);
            }
        }
        let is_done = self.engine.in_flight() == 0;
        if is_done {
            self.abandoned = None;
        }
        is_done
    }

    /// Waits for them, at most until `deadline`.
    pub(super) fn wait_for_abandoned(&mut self, deadline: Instant) {
        while !self.reap_abandoned() && self.engine.wait_until(deadline) {}
    }
}

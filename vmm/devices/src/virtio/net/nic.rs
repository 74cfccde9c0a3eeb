//! What all queues of a NIC share while its driver is ready or not.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use vmm_sys::timer::Timer;

use super::backend::NetCounters;
use super::control::NetControl;
use super::filter::{Address, Filter};
use super::host::Host;
use super::limits::{Limiter, NetLimits};
use super::vhost::Vhost;

/// The least time between two checks of the limits: what was earned meanwhile is not lost.
const LEAST_WAIT_NS: u64 = 500_000;
/// A host that takes no more frames is tried again after this time.
const BUSY_NS: u64 = 1_000_000;

/// Which way frames go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    ToGuest,
    FromGuest,
}

/// What all queues of a NIC share.
pub(super) struct Nic {
    pub(super) control: Arc<NetControl>,
    pub(super) counters: Arc<NetCounters>,
    /// Its address now.
    pub(super) mac: Address,
    pub(super) filter: Filter,
    /// Settings of the host's tap.
    pub(super) host: Host,
    /// The kernel, where it serves the queues of frames by itself.
    pub(super) vhost: Option<Vhost>,
    to_guest: Limiter,
    from_guest: Limiter,
    pub(super) timer: Timer,
    /// When the timer is to fire, if it is.
    due_ns: Option<u64>,
    /// The limits' clock starts here.
    made: Instant,
}

impl Nic {
    pub(super) fn new(mac: Address, link_up: bool, limits: NetLimits) -> io::Result<Self> {
        let mut nic = Self {
            control: Arc::new(NetControl::new(link_up)?),
            counters: Arc::default(),
            mac,
            filter: Filter::new(false),
            host: Host::default(),
            vhost: None,
            to_guest: Limiter::default(),
            from_guest: Limiter::default(),
            timer: Timer::new()?,
            due_ns: None,
            made: Instant::now(),
        };
        nic.set_limits(limits);
        Ok(nic)
    }

    pub(super) fn set_limits(&mut self, limits: NetLimits) {
        let now_ns = self.now_ns();
        self.to_guest = Limiter::new(limits.receive_bytes, limits.receive_frames, now_ns);
        self.from_guest = Limiter::new(limits.transmit_bytes, limits.transmit_frames, now_ns);
    }

    /// Whether the limits let a frame pass; if not, the timer is set.
    pub(super) fn admits(&mut self, direction: Direction) -> bool {
        if !self.limiter(direction).is_on() {
            return true;
        }
        let now_ns = self.now_ns();
        match self.limiter(direction).wait_ns(now_ns) {
            0 => true,
            wait_ns => !self.call_in(wait_ns.max(LEAST_WAIT_NS)),
        }
    }

    /// A frame of `bytes` bytes has passed.
    pub(super) fn charge(&mut self, direction: Direction, bytes: u64) {
        self.limiter(direction).take(bytes);
    }

    /// The host is busy: has the device called in a while.
    pub(super) fn call_later(&mut self) -> bool {
        self.call_in(BUSY_NS)
    }

    /// The timer has fired.
    pub(super) fn on_timer(&mut self) {
        self.due_ns = None;
        // A timer that stays readable does no harm: it is polled for edges.
        self.timer.clear().unwrap_or_default();
    }

    /// Sets the timer, unless it fires earlier anyway. False when it cannot be set: then nothing must
    /// wait for it.
    fn call_in(&mut self, wait_ns: u64) -> bool {
        let due_ns = self.now_ns().saturating_add(wait_ns);
        if self.due_ns.is_some_and(|due| due <= due_ns) {
            return true;
        }
        let is_set = self.timer.set(Duration::from_nanos(wait_ns)).is_ok();
        self.due_ns = is_set.then_some(due_ns);
        is_set
    }

    fn limiter(&mut self, direction: Direction) -> &mut Limiter {
        match direction {
            Direction::ToGuest => &mut self.to_guest,
            Direction::FromGuest => &mut self.from_guest,
        }
    }

    fn now_ns(&self) -> u64 {
        u64::try_from(self.made.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

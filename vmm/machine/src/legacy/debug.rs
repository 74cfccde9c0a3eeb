//! Debug I/O ports, only there when asked for.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::time::{ClockId, clock_gettime};
use vmm_devices::BusDevice;

use crate::clock_time::nanoseconds;
use crate::events::GuestEvents;
use crate::guest_event::GuestEvent;
use crate::port_device::PortDevice;

/// The first write is timed.
pub(crate) const TIMESTAMP_PORT: u16 = 0x0d02;
/// A write ends the guest.
pub(crate) const DEBUG_EXIT_PORT: u16 = 0x0d04;

/// Times the guest's first write, in `CLOCK_MONOTONIC` nanoseconds; 0 before.
pub(crate) struct Timestamp {
    first_ns: Arc<AtomicU64>,
}

impl Timestamp {
    pub(crate) fn new(first_ns: Arc<AtomicU64>) -> Self {
        Self { first_ns }
    }
}

impl PortDevice for Timestamp {}

impl BusDevice for Timestamp {
    fn read(&mut self, _: u64, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn write(&mut self, _: u64, _: &[u8]) {
        if self.first_ns.load(Ordering::Relaxed) == 0 {
            let now = clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(1, nanoseconds);
            self.first_ns.store(now.max(1), Ordering::Relaxed);
        }
    }
}

/// Ends the guest with what it writes.
pub(crate) struct DebugExit {
    events: GuestEvents,
}

impl DebugExit {
    pub(crate) fn new(events: GuestEvents) -> Self {
        Self { events }
    }
}

impl PortDevice for DebugExit {}

impl BusDevice for DebugExit {
    fn read(&mut self, _: u64, data: &mut [u8]) {
        data.fill(0xff);
    }

    fn write(&mut self, _: u64, data: &[u8]) {
        let mut value = [0; 4];
        for (to, from) in value.iter_mut().zip(data) {
            *to = *from;
        }
        self.events
            .post(GuestEvent::DebugExit(u32::from_le_bytes(value)));
    }
}

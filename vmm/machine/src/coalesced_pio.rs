//! Coalesced writes to `CONFIG_ADDRESS` (port 0xcf8), the address port of PCI configuration space.
//!
//! While a guest enumerates PCI it accesses configuration space about a thousand times, each time by a
//! write to `CONFIG_ADDRESS` and an access to `CONFIG_DATA`. The address matters only at the access to the
//! data, which causes an exit: until then KVM keeps the write (`vmm_kvm::CoalescedPio`). After every exit,
//! whatever its reason, the vCPU thread first drains the ring of all vCPUs' writes. A paused machine has
//! therefore drained it, and the ring is no part of a snapshot.
//!
//! Port 0xcf9 within `CONFIG_ADDRESS` is the reset register, and KVM cannot register one without the other.
//! For a guest that writes to 0xcf9 and then causes no exit, the machine thread polls the ring ten times a
//! second while writes are coalesced. Coalescing ends when the ring stayed empty for two seconds: guests
//! enumerate PCI only when they start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vmm_kvm::{CoalescedPio as Ring, KvmError, Vcpu, Vm};

use crate::io_ports::Buses;
use crate::pci::config_io_ports::CONFIG_PORT;

/// Ports of `CONFIG_ADDRESS`, which is four bytes wide.
const ADDRESS_PORTS: u16 = 4;
/// Poll interval, and with it the longest delay of a write to the reset register.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Coalescing ends after this many polls that found the ring unused.
const MOST_IDLE_POLLS: u32 = 20;

/// The coalesced writes of a machine.
pub(crate) struct CoalescedPio {
    /// `None` where the host cannot coalesce: all writes cause exits.
    ring: Option<Ring>,
    /// Entries were drained since the last poll.
    was_used: AtomicBool,
    schedule: Mutex<PollSchedule>,
}

#[derive(Default)]
struct PollSchedule {
    /// Time of the next poll; `None` while writes cause exits.
    due: Option<Instant>,
    idle_polls: u32,
}

impl CoalescedPio {
    /// Maps the ring. Writes cause exits until [`Self::begin`].
    pub(crate) fn new(vm: &Arc<Vm>, vcpu: Option<&Vcpu>) -> Result<Self, KvmError> {
        let ring = vcpu.map(|vcpu| Ring::new(vm, vcpu)).transpose()?.flatten();
        Ok(Self {
            ring,
            was_used: AtomicBool::new(false),
            schedule: Mutex::default(),
        })
    }

    fn schedule(&self) -> MutexGuard<'_, PollSchedule> {
        // Each holder leaves both fields consistent, so a poisoned lock is still good.
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts coalescing. Called before the machine runs.
    pub(crate) fn begin(&self) {
        let Some(ring) = &self.ring else {
            return;
        };
        let mut schedule = self.schedule();
        let is_on = schedule.due.is_some() || ring.register(CONFIG_PORT, ADDRESS_PORTS).is_ok();
        if is_on {
            schedule.due = Some(Instant::now() + POLL_INTERVAL);
            schedule.idle_polls = 0;
        }
    }

    /// Applies the writes in the ring. Called after every vCPU exit, before the exit is handled.
    pub(crate) fn drain(&self, buses: &Buses) {
        if let Some(ring) = &self.ring
            && ring.drain(|port, value| buses.port_write(port, value)) > 0
        {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// When [`Self::poll`] has to be called next; `None` while writes cause exits.
    pub(crate) fn poll_due(&self) -> Option<Instant> {
        self.schedule().due
    }

    /// Applies the writes in the ring, on the machine thread. Ends coalescing when the ring stayed unused.
    pub(crate) fn poll(&self, buses: &Buses) {
        let Some(ring) = &self.ring else {
            return;
        };
        self.drain(buses);
        let mut schedule = self.schedule();
        if self.was_used.swap(false, Ordering::Relaxed) {
            schedule.idle_polls = 0;
        }
        schedule.idle_polls += 1;
        let is_over = schedule.idle_polls > MOST_IDLE_POLLS;
        // When KVM refuses to unregister, polling goes on.
        schedule.due = if is_over && ring.unregister(CONFIG_PORT, ADDRESS_PORTS).is_ok() {
            None
        } else {
            Some(Instant::now() + POLL_INTERVAL)
        };
        drop(schedule);
        // Entries that were added before the ports were unregistered.
        self.drain(buses);
    }
}

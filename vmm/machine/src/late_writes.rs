//! Writes to the address port of PCI configuration space, which guests need not wait for.
//!
//! A guest that looks for its devices accesses configuration space a thousand times, each time by a
//! write of the address and an access to the data. The former means nothing until the latter, which is
//! an exit: KVM keeps it until then (`vmm_kvm::LateWrites`). Every vCPU that comes out of the guest,
//! whatever for, first carries out what was written before, by whichever vCPU. So all is carried out
//! when a machine holds still, and nothing of it is state of its own.
//!
//! The second byte of the address port is the reset register, and KVM does not tell them apart. A guest
//! that writes there and then never comes out is noticed by the owner, who looks ten times a second
//! as long as writes are late. That ends when there were none for a while: guests look for devices as
//! they start.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use vmm_kvm::{KvmError, LateWrites as Ring, Vcpu, Vm};

use crate::chipset::CONFIG_PORT;
use crate::ports::Buses;

/// Ports of the address, four bytes wide.
const ADDRESS_PORTS: u16 = 4;
/// How long a write to the reset register may stay unnoticed.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);
/// After so many looks without a write in between, writes are exits again.
const MOST_IDLE_LOOKS: u32 = 20;

/// The late writes of a machine.
pub(crate) struct LateWrites {
    /// `None` where the host cannot do it: all writes are exits.
    ring: Option<Ring>,
    /// Since the last look.
    was_used: AtomicBool,
    watch: Mutex<Watch>,
}

#[derive(Default)]
struct Watch {
    /// When the owner looks next; `None` while writes are exits.
    due: Option<Instant>,
    idle_looks: u32,
}

impl LateWrites {
    /// Writes are exits at first.
    pub(crate) fn new(vm: &Arc<Vm>, vcpu: Option<&Vcpu>) -> Result<Self, KvmError> {
        let ring = vcpu.map(|vcpu| Ring::new(vm, vcpu)).transpose()?.flatten();
        Ok(Self {
            ring,
            was_used: AtomicBool::new(false),
            watch: Mutex::default(),
        })
    }

    fn watch(&self) -> MutexGuard<'_, Watch> {
        // Whole whatever happened to another holder.
        self.watch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets writes be late from now on. The machine is about to run.
    pub(crate) fn begin(&self) {
        let Some(ring) = &self.ring else {
            return;
        };
        let mut watch = self.watch();
        let is_on = watch.due.is_some() || ring.begin(CONFIG_PORT, ADDRESS_PORTS).is_ok();
        if is_on {
            watch.due = Some(Instant::now() + LOOK_INTERVAL);
            watch.idle_looks = 0;
        }
    }

    /// Carries out what was written. To be called before anything that a vCPU comes out for is.
    pub(crate) fn carry_out(&self, buses: &Buses) {
        if let Some(ring) = &self.ring
            && ring.carry_out(|port, value| buses.port_write(port, value)) > 0
        {
            self.was_used.store(true, Ordering::Relaxed);
        }
    }

    /// When [`Self::look`] is due next, if ever.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.watch().due
    }

    /// For the owner: carries out what was written. Writes are exits again once there are none.
    pub(crate) fn look(&self, buses: &Buses) {
        let Some(ring) = &self.ring else {
            return;
        };
        self.carry_out(buses);
        let mut watch = self.watch();
        if self.was_used.swap(false, Ordering::Relaxed) {
            watch.idle_looks = 0;
        }
        watch.idle_looks += 1;
        let is_over = watch.idle_looks > MOST_IDLE_LOOKS;
        // Should the kernel refuse, the owner goes on looking.
        watch.due = if is_over && ring.end(CONFIG_PORT, ADDRESS_PORTS).is_ok() {
            None
        } else {
            Some(Instant::now() + LOOK_INTERVAL)
        };
        drop(watch);
        // What came before they were.
        self.carry_out(buses);
    }
}

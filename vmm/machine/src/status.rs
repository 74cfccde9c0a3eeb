//! The status of a machine, which can be read at any time.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use nix::time::{ClockId, clock_gettime};
use vmm_devices::WatchdogAction;
use vmm_devices::virtio::balloon::{BalloonControl, BalloonSize};

use crate::clock_time::nanoseconds;
use crate::disks::Disks;
use crate::durable::{DurableStore, SyncFailure};
use crate::guest_event::ResetSource;
use crate::nics::Nics;
use crate::pci::address::PciAddress;
use crate::route_failures::RouteFailures;
use crate::timeline::Timeline;

/// States of a machine. They follow each other downwards; `Paused` and `Running` alternate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MachineState {
    /// Being built.
    #[default]
    Building,
    /// Built; no guest instruction has run.
    Configured,
    /// vCPUs run.
    Running,
    /// vCPUs are held and devices are still.
    Paused,
    /// The guest ended.
    Ended,
}

/// Why a guest ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndReason {
    /// ACPI S5.
    PoweredOff,
    /// It reset itself, and [`crate::RebootPolicy::End`] says that this ends it.
    Reset,
    /// It only faults, or may not start again after a fault.
    TripleFault,
    /// Its kernel gave up.
    Panicked,
    /// KVM cannot run it any more.
    KvmFailed,
    /// It was asked to stop.
    Stopped,
    /// Something failed on the host's side.
    HostFailed,
    /// It wrote to the debug exit port.
    DebugExit,
    /// It let its watchdog run out, and that ends it.
    Watchdog,
}

/// How a guest ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Reason of the end, as a kind.
    pub reason: EndReason,
    /// For people.
    pub detail: String,
}

/// Why a machine is paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PauseReason {
    /// It was asked for.
    Requested,
    /// The host failed a disk's request, and the disk's policy is to wait.
    IoError {
        /// PCI address of the disk.
        disk: PciAddress,
        /// The host's error number.
        errno: i32,
    },
    /// The guest has stopped a device, and the host still works on what the device asked for. It goes on
    /// by itself once that is done.
    DeviceBusy {
        /// PCI address of the device.
        device: PciAddress,
    },
    /// The guest let its watchdog run out.
    Watchdog,
    /// The guest's kernel gave up.
    Panicked,
}

/// How a guest came to start over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LastReset {
    /// It never did.
    #[default]
    Never,
    /// It was asked for.
    Requested,
    /// By the guest's own doing.
    Guest(ResetSource),
}

/// A machine's status at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Phase of the machine, from its making to its end.
    pub state: MachineState,
    /// Set in [`MachineState::Paused`].
    pub pause_reason: Option<PauseReason>,
    /// How often the guest was reset since it was booted.
    pub resets: u64,
    /// How it came to the last of them.
    pub last_reset: LastReset,
    /// How often it let its watchdog run out.
    pub watchdog_expirations: u64,
    /// How often its kernel gave up, whatever followed.
    pub panics: u64,
    /// `CLOCK_BOOTTIME` nanoseconds when it was booted; 0 before.
    pub booted_at_ns: u64,
    /// `CLOCK_MONOTONIC` nanoseconds of the first write to the timestamp port; 0 before.
    pub first_timestamp_ns: u64,
    /// Set in [`MachineState::Ended`].
    pub end: Option<End>,
    /// Size of the balloon, if the machine has one.
    pub balloon: Option<BalloonSize>,
    /// Disks with a sync failure, in the order of their addresses, and the variable store if it has one.
    pub sync_failures: Vec<SyncFailure>,
    /// NICs whose link is down; `None` before the machine is built.
    pub links_down: Option<Vec<PciAddress>>,
    /// How often the host refused to connect or disconnect an interrupt of a device.
    pub route_failures: u64,
    /// How often the machine thread has changed the status: tells which of two was first.
    pub updates: u64,
}

/// What happened to a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// vCPUs run for the first time.
    Booted,
    /// The guest starts over, by its own doing this way or, without one, because it was asked for.
    Reset(Option<ResetSource>),
    /// The guest is to start over by its own doing, as soon as this device comes to rest.
    ResetWaits(PciAddress),
    /// vCPUs are held.
    Paused,
    /// vCPUs run again.
    Resumed,
    /// The guest ended.
    Ended,
    /// The guest let its watchdog run out. What follows comes after.
    WatchdogExpired(WatchdogAction),
    /// The guest's kernel gave up. What follows comes after.
    Panicked,
    /// The guest's kernel gave up and goes on by itself, with its crash kernel.
    CrashLoaded,
    /// The host failed to make durable what the guest had written.
    SyncFailed {
        /// What the guest wrote it to.
        store: DurableStore,
        /// The host's error number.
        errno: i32,
    },
}

/// The status, written by the machine thread and read by anybody.
#[derive(Clone, Default)]
pub(crate) struct StatusBoard {
    status: Arc<Mutex<Status>>,
    first_timestamp_ns: Arc<AtomicU64>,
    end_wanted: Arc<AtomicBool>,
    timeline: Timeline,
    balloon: Arc<OnceLock<Arc<BalloonControl>>>,
    disks: Arc<OnceLock<Disks>>,
    nics: Arc<OnceLock<Nics>>,
    route_failures: RouteFailures,
}

impl StatusBoard {
    pub(crate) fn read(&self) -> Status {
        let mut status = self.lock().clone();
        status.first_timestamp_ns = self.first_timestamp_ns.load(Ordering::Relaxed);
        status.balloon = self.balloon().map(|balloon| balloon.size());
        status.sync_failures = self.disks().map(Disks::sync_failures).unwrap_or_default();
        status.links_down = self.nics().map(Nics::links_down);
        status.route_failures = self.route_failures.count();
        status
    }

    /// When the machine came how far.
    pub(crate) fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// The balloon, once the machine is built, if it has one.
    pub(crate) fn balloon(&self) -> Option<&Arc<BalloonControl>> {
        self.balloon.get()
    }

    /// Tells which balloon the machine has. Once.
    pub(crate) fn set_balloon(&self, balloon: Option<Arc<BalloonControl>>) {
        if let Some(balloon) = balloon {
            self.balloon.get_or_init(|| balloon);
        }
    }

    /// The disks, once the machine is built.
    pub(crate) fn disks(&self) -> Option<&Disks> {
        self.disks.get()
    }

    /// Tells which disks the machine has. Once.
    pub(crate) fn set_disks(&self, disks: &Disks) {
        self.disks.get_or_init(|| disks.clone());
    }

    /// The NICs, once the machine is built.
    pub(crate) fn nics(&self) -> Option<&Nics> {
        self.nics.get()
    }

    /// Tells which NICs the machine has. Once.
    pub(crate) fn set_nics(&self, nics: &Nics) {
        self.nics.get_or_init(|| nics.clone());
    }

    /// Counts interrupts that the host does not connect.
    pub(crate) fn route_failures(&self) -> &RouteFailures {
        &self.route_failures
    }

    pub(crate) fn update(&self, change: impl FnOnce(&mut Status)) {
        let mut status = self.lock();
        change(&mut status);
        status.updates += 1;
    }

    pub(crate) fn first_timestamp(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.first_timestamp_ns)
    }

    /// Tells whoever is at long work for the guest that its end was asked for.
    pub(crate) fn want_end(&self) {
        self.end_wanted.store(true, Ordering::Relaxed);
    }

    /// Whether the guest's end was asked for.
    pub(crate) fn end_wanted(&self) -> &AtomicBool {
        &self.end_wanted
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Status> {
        // A status is whole whatever happened to another holder of the lock.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Now, in nanoseconds of `CLOCK_BOOTTIME`.
pub(crate) fn boottime_ns() -> u64 {
    // Cannot fail for a clock that every kernel since 2.6.39 has.
    clock_gettime(ClockId::CLOCK_BOOTTIME).map_or(0, nanoseconds)
}

//! What the host was seen to be like. Every facet is three-valued.

use std::collections::BTreeSet;

use agent_domain::PciAddress;

use crate::action::Holding;
use crate::identity::{BootId, VmmIdentity};
use crate::operation::OperationObserved;
use crate::time::Timestamp;

/// One facet of the world.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation<T> {
    /// The question could not be answered. Never a reason to destroy anything.
    Unknown {
        /// Why not, for the log and the condition.
        why: String,
        /// Since when there has been no answer.
        since: Timestamp,
    },
    /// It was looked for and is certainly not there.
    Absent,
    /// It is there.
    Present(T),
}

impl<T> Observation<T> {
    /// The value, when it is present.
    pub const fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Unknown { .. } | Self::Absent => None,
        }
    }

    /// Whether it is certainly not there.
    pub const fn is_absent(&self) -> bool {
        matches!(self, Self::Absent)
    }

    /// Whether the question could not be answered.
    pub const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

/// Everything that was observed of one VMI at one time.
///
/// The order of looking matters: processes first, then exit records. A VMM that ends in between has
/// then left its record; the other way round it would look as if it had vanished without one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The host's present boot.
    pub boot_id: Observation<BootId>,
    /// Every live VMM of this uid, of whatever incarnation. `Absent` means proof that there is none
    /// (a zombie is none). Never `Present` with an empty list.
    pub vmms: Observation<Vec<VmmObserved>>,
    /// The exit record of the record's present incarnation.
    pub exit: Observation<ExitObserved>,
    /// What exists on the host on behalf of this uid. `Absent` means nothing at all.
    pub holdings: Observation<BTreeSet<Holding>>,
    /// Firmware that has nothing to boot and stays. `Absent` unless the record has a
    /// [`FirmwareWatch`](crate::FirmwareWatch): nobody looks then.
    pub stands_still: Observation<StandsStill>,
    /// What is carried out beside the actor. `Unknown`: it waits for a file system that does not answer.
    pub operation: Observation<OperationObserved>,
}

/// Firmware's last words on the console of the record's present incarnation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StandsStill {
    /// Its words, out of a list: not the guest's.
    pub words: &'static str,
    /// Where they begin in the log of the console. Other words are elsewhere.
    pub at: u64,
}

/// One live VMM process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VmmObserved {
    /// For which incarnation it was started.
    pub incarnation: u64,
    /// Boot id, pid, start time and incarnation of the VMM.
    pub identity: VmmIdentity,
    /// What it says of its machine; `Unknown` while its control socket does not answer.
    pub machine: Observation<MachineObserved>,
    /// Whether it runs within limits.
    pub enforcement: Observation<Enforcement>,
}

/// What a VMM says of its machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineObserved {
    /// State that the VMM reports.
    pub state: MachineState,
    /// How often the guest was reset since it was booted.
    pub resets: u64,
    /// Why it is paused, if it is.
    pub pause: Option<PauseObserved>,
    /// Disks that the host failed to sync, and the firmware's variable store if it did.
    pub sync_failures: Vec<SyncFailure>,
    /// NICs whose link is down. `None` from a VMM that does not report it, and before its machine is built.
    pub links_down: Option<BTreeSet<PciAddress>>,
}

/// What the host failed to sync: it has lost data, and fails every flush until its VMM ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncFailure {
    /// The disk or the variable store.
    pub store: DurableStore,
    /// The host's error, for people.
    pub error: String,
}

/// What a guest keeps data in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DurableStore {
    /// A virtio-blk device.
    Disk {
        /// PCI bus of the disk.
        bus: u32,
        /// Its device number on that bus.
        device: u32,
    },
    /// The variable store of its firmware.
    Variables,
}

impl SyncFailure {
    /// Whether it is the disk there.
    pub(crate) fn is_at(&self, address: PciAddress) -> bool {
        let (bus, device) = (address.bus.into(), address.device.into());
        self.store == DurableStore::Disk { bus, device }
    }
}

/// Why a machine is paused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PauseObserved {
    /// Somebody asked for it.
    Requested,
    /// The host failed a disk, and the disk's error policy is to stop.
    IoError {
        /// Which disk, and what failed.
        detail: String,
    },
    /// The guest has stopped a device that the host still works for; it goes on by itself.
    DeviceBusy {
        /// The device, as the VMM names it.
        detail: String,
    },
    /// The guest let its watchdog run out.
    Watchdog,
    /// The guest's kernel gave up.
    Panicked,
}

/// States of a machine (`MachineState` of the VMM protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MachineState {
    /// The VMM waits for its configuration.
    Unconfigured,
    /// Built; no guest instruction has run.
    Configured,
    /// vCPUs run.
    Running,
    /// vCPUs are stopped, and can be resumed.
    Paused,
    /// The guest ended; the process is about to end too.
    Exited,
}

/// Whether the VMI's resources are enforced by the kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// It runs in a cgroup (or unit) of its own, outside the agent's.
    Enforced,
    /// It runs in a session of its own and nothing more.
    NotEnforced {
        /// What is missing on this host.
        why: String,
    },
}

/// The exit record that a VMM left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExitObserved {
    /// Why the guest ended.
    pub reason: ExitReason,
    /// Free text of the VMM.
    pub detail: String,
    /// Wall-clock time of the exit record.
    pub at: Timestamp,
    /// Nanoseconds between boot and end; zero when it was never booted.
    pub uptime_ns: u64,
}

/// Why a guest ended (`ExitReason` of the VMM protocol).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ExitReason {
    /// The guest powered itself off.
    GuestPoweroff,
    /// The guest reset itself, and a reset ends it.
    GuestReset,
    /// A vCPU shut down by a triple fault.
    TripleFault,
    /// The guest's kernel reported a panic.
    GuestPanicked,
    /// KVM could not go on.
    KvmError,
    /// The agent asked for it.
    Stopped,
    /// The VMM itself failed.
    VmmError,
    /// The machine could not be built; the guest never ran.
    ConfigureFailed,
    /// The guest wrote to the debug exit port.
    DebugExit,
    /// The guest let its watchdog run out.
    Watchdog,
    /// The kernel killed the VMM for want of memory. Reported by the host: the VMM left no record.
    OomKilled,
    /// A reason that this agent does not know, from a newer VMM.
    Other,
}

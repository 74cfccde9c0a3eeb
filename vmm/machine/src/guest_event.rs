//! Events of the guest that only the machine thread can answer.

use vmm_devices::{Panic, WatchdogAction};

use crate::durable::DurableStore;
use crate::pci::address::PciAddress;

/// By which way a guest reset itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetSource {
    /// Port 0xCF9, the reset register of ACPI.
    ResetRegister,
    /// Port 0x64, the pulse of the keyboard controller.
    KeyboardController,
    /// A vCPU shut down by a triple fault.
    TripleFault,
    /// The hypervisor was asked.
    Hypercall,
    /// It let its watchdog run out.
    Watchdog,
    /// Its kernel gave up, and [`PanicPolicy::Restart`](crate::PanicPolicy::Restart) says so.
    Panic,
    /// It powered off, as it was asked to for a reboot.
    SoftReboot,
}

impl std::fmt::Display for ResetSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::ResetRegister => "port 0xcf9",
            Self::KeyboardController => "keyboard controller",
            Self::TripleFault => "triple fault",
            Self::Hypercall => "hypercall",
            Self::Watchdog => "watchdog",
            Self::Panic => "panic",
            Self::SoftReboot => "power-off for a reboot",
        })
    }
}

/// Something that only the machine thread can answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum GuestEvent {
    /// ACPI S5.
    PowerOff,
    /// The guest wants to start over.
    Reset(ResetSource),
    /// The guest's kernel gave up, by Hyper-V's crash registers.
    Panicked,
    /// A panic device was written.
    PanicDevice(Panic),
    /// A watchdog ran out.
    Watchdog(WatchdogAction),
    /// A disk holds a request that the host failed, with this error number.
    IoStopped { disk: PciAddress, errno: i32 },
    /// The host failed to make durable what was written, with this error number.
    SyncFailed { store: DurableStore, errno: i32 },
    /// The guest took the right to access memory from a device, or reset the bus that it is on, and may go
    /// on once the host is done with what the device had in flight.
    AwaitQuiesce,
    /// The debug exit port was written.
    DebugExit(u32),
    /// KVM cannot run a vCPU any more.
    VcpuFailed(String),
    /// The host refused something that no guest can cause.
    HostFailure(String),
}

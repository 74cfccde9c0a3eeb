//! What a machine is made of, fully resolved: the machine chooses nothing.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

use vmm_kvm::{CpuConfig, MissedTicks};

use vmm_devices::WatchdogAction;
use vmm_devices::serial::SerialPort;
use vmm_devices::virtio::balloon::BalloonConfig;
use vmm_devices::virtio::blk::{BlkConfig, BlkImage};
use vmm_devices::virtio::console::ConsolePorts;
use vmm_devices::virtio::vsock::VsockConfig;
use vmm_sys_util::eventfd::EventFd;

use crate::boot::KernelConfig;
use crate::firmware::config::FirmwareConfig;
use crate::fixed_devices::FixedDevices;
use crate::generation_id::GenerationId;
use crate::memory::MemoryConfig;
use crate::nics::NicConfig;
use crate::numa::NumaNode;
use crate::pci::address::PciAddress;
use crate::placement::Placement;
use proto_machine::smbios::SmbiosConfig;

/// What a guest's reset does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RebootPolicy {
    /// The machine is reset and boots again.
    #[default]
    Restart,
    /// The machine ends.
    End,
}

/// What follows when the guest's kernel gives up and reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PanicPolicy {
    /// The guest ends.
    #[default]
    End,
    /// The machine is paused as it is, until somebody resumes or ends it.
    Pause,
    /// The machine is reset, as [`RebootPolicy`] allows.
    Restart,
}

/// Panics of a guest, and the id by which it learns that it was restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LifeConfig {
    /// What follows a panic, however the guest reports it.
    pub on_panic: PanicPolicy,
    /// The generation id; `None`: the guest has none.
    pub vm_gen_id: Option<GenerationId>,
}

/// I/O ports that only tests and benchmarks want.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DebugIoPorts {
    /// I/O port 0x0d02: the first write is timed.
    pub timestamp: bool,
    /// I/O port 0x0d04: a write ends the guest.
    pub exit: bool,
}

/// Clocks that are not the CPUs'.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockConfig {
    /// What the real-time clock is ahead of UTC.
    pub rtc_offset_seconds: i64,
    /// The PIT, with the policy for ticks that the guest misses; `None`: there is none.
    pub pit: Option<MissedTicks>,
}

impl Default for ClockConfig {
    /// UTC, and a PIT.
    fn default() -> Self {
        Self {
            rtc_offset_seconds: 0,
            pit: Some(MissedTicks::default()),
        }
    }
}

/// COM1: the port is made by whoever brings its input.
pub struct SerialConfig {
    /// The 16550A that guest and console share.
    pub port: Arc<Mutex<SerialPort>>,
    /// What the port writes to raise its interrupt.
    pub interrupt: Arc<EventFd>,
}

/// One PCI function.
#[derive(Debug)]
pub enum DeviceConfig {
    /// A virtio disk.
    Blk {
        /// Raw image, and the base under it, if it has one.
        image: BlkImage,
        /// How the disk is to be.
        config: BlkConfig,
    },
    /// A virtio NIC.
    Net(NicConfig),
    /// A virtio source of entropy.
    Rng,
    /// A virtio console, made by whoever attaches to its ports.
    Console(Arc<ConsolePorts>),
    /// An i6300esb watchdog.
    I6300Esb {
        /// What follows when it runs out.
        action: WatchdogAction,
    },
    /// A panic device.
    Pvpanic,
    /// A virtio balloon; a machine has one at most.
    Balloon(BalloonConfig),
    /// Sockets between guest and host.
    Vsock(VsockConfig),
    /// A PCI Express root port on bus 0. Its slot holds the function that is on its secondary bus,
    /// or is empty.
    RootPort {
        /// Number of the bus behind it at power-on; not 0.
        secondary_bus: u8,
    },
}

/// What a machine boots by.
#[derive(Debug)]
pub enum BootSource {
    /// A kernel, directly.
    Kernel(KernelConfig),
    /// Firmware in flash, which chooses what to boot.
    Firmware(FirmwareConfig),
}

impl BootSource {
    /// The firmware, if it is one.
    pub(crate) fn firmware(&self) -> Option<&FirmwareConfig> {
        match self {
            Self::Kernel(_) => None,
            Self::Firmware(firmware) => Some(firmware),
        }
    }

    /// Whether guests reach PCI's configuration space by memory.
    pub(crate) fn maps_pci(&self) -> bool {
        matches!(self, Self::Kernel(kernel) if kernel.maps_pci)
    }
}

/// A machine to be built.
pub struct MachineConfig {
    /// `/dev/kvm`, opened for reading and writing.
    pub dev_kvm: OwnedFd,
    /// vCPUs.
    pub cpus: CpuConfig,
    /// Clocks that are not the CPUs'.
    pub clock: ClockConfig,
    /// RAM.
    pub memory: MemoryConfig,
    /// Host CPUs of each kind of thread.
    pub placement: Placement,
    /// Kernel or firmware.
    pub boot: BootSource,
    /// What a guest's reset does.
    pub reboot_policy: RebootPolicy,
    /// COM1.
    pub serial: SerialConfig,
    /// PCI functions, each in its place.
    pub devices: Vec<(PciAddress, DeviceConfig)>,
    /// Functions that are served by a thread of their own, and its name: at most 12 bytes, the same
    /// for functions that share it. All others are served by one thread.
    pub io_threads: BTreeMap<PciAddress, String>,
    /// Devices at fixed ports.
    pub fixed: FixedDevices,
    /// Debug ports.
    pub debug: DebugIoPorts,
    /// NUMA nodes. Empty: ACPI lists none.
    pub numa_nodes: Vec<NumaNode>,
    /// What SMBIOS tells; `None`: there is none.
    pub smbios: Option<SmbiosConfig>,
    /// Policy of panics, and generation id.
    pub life: LifeConfig,
}

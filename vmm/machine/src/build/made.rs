//! What the phases of a build have made, and later ones use.

use std::sync::Arc;

use vmm_kvm::{GuestCpu, KvmHost, Vm, VmPowerOnState};
use vmm_memory::Layout;
use vmm_sys::affinity::AffinityMask;
use vmm_sys::threads::Threads;

use crate::acpi::DescribedPci;
use crate::chipset::Chipset;
use crate::config::MachineConfig;
use crate::device_thread::DeviceThreads;
use crate::disks::Disks;
use crate::firmware::platform::Platform;
use crate::io_ports::Buses;
use crate::nics::Nics;
use crate::pci::bus::PciBus;

/// What later phases keep of the former.
pub(crate) struct Parts {
    pub(crate) config: MachineConfig,
    pub(super) threads: Threads,
    pub(super) host: Arc<KvmHost>,
    pub(crate) cpu: GuestCpu,
    pub(super) layout: Layout,
    pub(super) pci: DescribedPci,
    /// Where threads without a place of their own run; `None` leaves them where they start.
    pub(super) free_cpus: Option<AffinityMask>,
    pub(crate) vm: Arc<Vm>,
    pub(crate) chips: VmPowerOnState,
}

/// PCI functions, the chipset, and the threads that serve them.
pub(crate) struct Devices {
    pub(crate) bus: Arc<PciBus>,
    pub(crate) buses: Arc<Buses>,
    pub(crate) chipset: Chipset,
    pub(crate) threads: DeviceThreads,
    pub(crate) disks: Disks,
    pub(crate) nics: Nics,
    /// Of a machine that boots by firmware.
    pub(crate) platform: Option<Arc<Platform>>,
}

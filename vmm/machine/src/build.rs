//! The phases in which a machine is built. Each consumes the former, so nothing is done twice, too
//! early or not at all.
//!
//! ```text
//! Configured -> Memory -> Devices -> Vcpus   (then the owner runs it)
//! ```

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use vmm_devices::QuiesceError;
use vmm_devices::pvpanic::PvpanicPort;
use vmm_kvm::{
    CpuError, GuestCpu, InterruptRouter, KvmError, KvmHost, StartState, Vcpu, Vm, VmPowerOnState,
};
use vmm_memory::{GuestRam, Layout, LayoutError, RamError};
use vmm_sys::affinity::CpuSet;
use vmm_sys::threads::Threads;

use crate::acpi::{AcpiError, COM1_GSI};
use crate::boot::{self, BootError};
use crate::built::BuiltMachine;
use crate::cards::Cards;
use crate::chipset::Chipset;
use crate::config::MachineConfig;
use crate::device_thread::DeviceThreads;
use crate::disks::Disks;
use crate::events::GuestEvents;
use crate::firmware_tables;
use crate::functions::{self, DeviceError, Handles};
use crate::gate::{Command, Gate};
use crate::generation;
use crate::legacy::{Clock, PowerManagement};
use crate::memory::{self, TooManySlots};
use crate::pci::{BindKick, ConfigPorts, PciAddress, PciBus, PciBusError, Unbind};
use crate::placement::PlacementError;
use crate::ports::Buses;
use crate::smbios::SmbiosError;
use crate::snapshot::{Snapshot, SnapshotError, kvm_error};
use crate::status::StatusBoard;
use crate::vcpus::{self, StuckVcpus, VcpuContext, Vcpus};

/// Why a machine could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// KVM refused.
    #[error("KVM can not make this machine")]
    Kvm(#[from] KvmError),
    /// RAM can not be laid out.
    #[error("guest memory can not be laid out")]
    Layout(#[from] LayoutError),
    /// KVM has too few memslots.
    #[error("guest memory can not be laid out")]
    Slots(#[from] TooManySlots),
    /// RAM can not be made.
    #[error("guest memory can not be made")]
    Ram(#[from] RamError),
    /// Threads can not run where they are to.
    #[error("threads can not run where they are to")]
    Placement(#[from] PlacementError),
    /// More vCPUs than the host takes.
    #[error("{wanted} vCPUs are more than the {limit} that this host's KVM allows")]
    TooManyVcpus {
        /// Asked for.
        wanted: u32,
        /// The host's limit.
        limit: usize,
    },
    /// The host can not give such CPUs.
    #[error("this host can not give the guest its CPUs")]
    Cpus(#[from] CpuError),
    /// A PCI function can not be made.
    #[error("PCI functions can not be made")]
    Device(#[from] DeviceError),
    /// BARs do not fit.
    #[error("PCI functions do not fit")]
    Pci(#[from] PciBusError),
    /// ACPI tables do not fit.
    #[error("ACPI tables can not be written")]
    Acpi(#[from] AcpiError),
    /// SMBIOS does not fit.
    #[error("SMBIOS can not be written")]
    Smbios(#[from] SmbiosError),
    /// Kernel, initrd or command line.
    #[error("the guest can not be booted")]
    Boot(#[from] BootError),
    /// Threads or descriptors.
    #[error("{what} could not be started")]
    Thread {
        /// Which.
        what: &'static str,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It can not be made of the snapshot.
    #[error("the snapshot does not fit")]
    Snapshot(#[from] SnapshotError),
    /// A device does not come to rest.
    #[error("{address} does not come to rest")]
    Quiesce {
        /// Where it is.
        address: PciAddress,
        /// What it waits for.
        #[source]
        source: QuiesceError,
    },
    /// vCPUs did not come up.
    #[error("vCPUs did not get ready")]
    Vcpus(#[from] StuckVcpus),
}

impl BuildError {
    /// Whether the configuration is at fault, not the host.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Layout(_)
                | Self::Slots(_)
                | Self::Placement(PlacementError::NoCpu { .. })
                | Self::TooManyVcpus { .. }
                | Self::Cpus(_)
                | Self::Device(_)
                | Self::Pci(_)
                | Self::Acpi(_)
                | Self::Smbios(_)
                | Self::Snapshot(_)
                | Self::Boot(_)
        )
    }
}

/// Fills RAM, which is all zero.
pub type RamFiller = Box<dyn FnOnce(&GuestRam) -> io::Result<()> + Send>;

/// What a machine is built of instead of a kernel.
pub struct Restore {
    /// Everything but RAM.
    pub snapshot: Snapshot,
    /// RAM.
    pub fill_ram: RamFiller,
}

/// Where the guest begins.
enum Beginning {
    /// At the entry of its kernel.
    Kernel(StartState),
    /// Where it was.
    Snapshot(Snapshot),
}

/// First phase: the configuration, and a host that is able.
pub(crate) struct Configured {
    config: MachineConfig,
    threads: Threads,
    host: Arc<KvmHost>,
    cpu: GuestCpu,
    layout: Layout,
}

/// Second phase: a VM with RAM, the guest in it.
pub(crate) struct WithMemory {
    parts: Parts,
    beginning: Beginning,
}

/// Third phase: all devices in their places, none served yet.
pub(crate) struct WithDevices {
    parts: Parts,
    beginning: Beginning,
    devices: Devices,
}

/// What later phases keep of the former.
pub(crate) struct Parts {
    pub(crate) config: MachineConfig,
    threads: Threads,
    host: Arc<KvmHost>,
    cpu: GuestCpu,
    layout: Layout,
    /// Where threads without a place of their own run; `None` leaves them where they start.
    free_cpus: Option<CpuSet>,
    pub(crate) vm: Arc<Vm>,
    pub(crate) chips: VmPowerOnState,
}

pub(crate) struct Devices {
    pub(crate) bus: Arc<PciBus>,
    buses: Arc<Buses>,
    pub(crate) chipset: Chipset,
    pub(crate) threads: DeviceThreads,
    pub(crate) disks: Disks,
    pub(crate) cards: Cards,
}

impl Configured {
    pub(crate) fn new(config: MachineConfig, threads: Threads) -> Result<Self, BuildError> {
        let host =
            KvmHost::new(
                config
                    .dev_kvm
                    .try_clone()
                    .map_err(|source| BuildError::Thread {
                        what: "a copy of the /dev/kvm descriptor",
                        source,
                    })?,
            )?;
        vcpus::check_count(&config, &host)?;
        let cpu = GuestCpu::resolve(&config.cpus, &host.cpu(&config.cpus)?)?;
        config.placement.try_all()?;
        let layout = memory::lay_out(&config.memory, &host)?;
        Ok(Self {
            config,
            threads,
            host: Arc::new(host),
            cpu,
            layout,
        })
    }

    pub(crate) fn build_memory(
        self,
        restore: Option<Restore>,
        board: &StatusBoard,
    ) -> Result<WithMemory, BuildError> {
        let (config, layout) = (&self.config, &self.layout);
        let ram = memory::make_ram(&config.memory, &config.numa_nodes, layout, board)?;
        // From here on: memory is allocated by all CPUs that the process has.
        let free_cpus = config.placement.pin_builder()?;
        let mut vm = Vm::new(&self.host, ram)?;
        if let Some(missed) = self.config.clock.pit {
            vm.create_pit(&self.host, missed)?;
        }
        vm.prepare_cpus(&self.cpu)?;
        let vm = Arc::new(vm);
        let chips = vm.power_on_state()?;
        let parts = Parts {
            config: self.config,
            threads: self.threads,
            host: self.host,
            cpu: self.cpu,
            layout: self.layout,
            free_cpus,
            vm,
            chips,
        };
        let beginning = match restore {
            None => Beginning::Kernel(parts.load()?),
            Some(Restore { snapshot, fill_ram }) => {
                fill_ram(parts.vm.ram()).map_err(SnapshotError::Ram)?;
                Beginning::Snapshot(snapshot)
            }
        };
        Ok(WithMemory { parts, beginning })
    }
}

impl Parts {
    /// Tables, kernel, initrd and command line into RAM.
    pub(crate) fn load(&self) -> Result<StartState, BuildError> {
        let ram = self.vm.ram();
        let firmware = firmware_tables::write(ram, &self.config, &self.cpu, &self.layout)?;
        Ok(boot::load(
            ram,
            &self.layout,
            &self.config.kernel,
            firmware,
        )?)
    }
}

impl Parts {
    fn restore_vm(&self, snapshot: &mut Snapshot) -> Result<(), SnapshotError> {
        let state = snapshot.take_vm()?;
        self.vm.restore(&state).map_err(kvm_error("vm"))
    }
}

impl WithMemory {
    pub(crate) fn build_devices(
        self,
        events: &GuestEvents,
        board: &StatusBoard,
    ) -> Result<WithDevices, BuildError> {
        let Self {
            mut parts,
            mut beginning,
        } = self;
        let devices = std::mem::take(&mut parts.config.devices);
        let mut handles = Handles {
            events,
            disks: Disks::default(),
            cards: Cards::default(),
            balloon: None,
        };
        let snapshot = match &mut beginning {
            Beginning::Kernel(_) => None,
            Beginning::Snapshot(snapshot) => Some(snapshot),
        };
        let is_new = snapshot.is_none();
        let functions = functions::make(devices, &parts.vm, &mut handles, snapshot)?;
        board.set_balloon(handles.balloon.take());
        InterruptRouter::new(Arc::clone(&parts.vm))
            .connect(&parts.config.serial.interrupt, COM1_GSI)?;
        let bind = bind_kick(Arc::clone(&parts.vm));
        let bus = PciBus::new(bind, parts.layout, functions);
        if is_new {
            bus.place()?;
        } else {
            bus.follow_all();
        }
        let bus = Arc::new(bus);
        let mut chipset = Chipset::new(
            &parts.config.serial,
            ConfigPorts::new(Arc::clone(&bus), events.clone()),
            PowerManagement::new(Arc::clone(&parts.vm), events.clone()),
            Clock::new(parts.config.clock.rtc_offset_seconds),
        );
        if parts.config.life.isa_pvpanic {
            chipset.add_pvpanic(PvpanicPort::new(events.life_sink()));
        }
        if let Beginning::Snapshot(snapshot) = &mut beginning {
            chipset.load(snapshot)?;
        }
        let own = &parts.config.io_threads;
        let placement = &parts.config.placement;
        let threads =
            DeviceThreads::start(parts.threads, &bus, own, placement).map_err(|source| {
                BuildError::Thread {
                    what: "a device thread",
                    source,
                }
            })?;
        let ports = chipset.ports(parts.config.debug, events, board);
        let buses = Arc::new(Buses::new(Arc::clone(&bus), ports));
        Ok(WithDevices {
            parts,
            beginning,
            devices: Devices {
                bus,
                buses,
                chipset,
                threads,
                disks: handles.disks,
                cards: handles.cards,
            },
        })
    }
}

/// Kicks by ioeventfd. Refused where another function is kicked at that very address.
fn bind_kick(vm: Arc<Vm>) -> BindKick {
    Box::new(move |event, address| {
        let binding = vm.bind_io_event(event, address).ok()?;
        let (vm, event) = (Arc::clone(&vm), Arc::clone(event));
        // Undoing only fails for what is not bound any more.
        Some(Box::new(move || drop(vm.unbind_io_event(&event, binding))) as Unbind)
    })
}

impl WithDevices {
    pub(crate) fn build_vcpus(
        self,
        gate: &Arc<Gate>,
        events: &GuestEvents,
        board: &StatusBoard,
    ) -> Result<BuiltMachine, BuildError> {
        let Self {
            parts,
            beginning,
            devices,
        } = self;
        let vcpus = (0..parts.cpu.topology().count())
            .map(|index| Vcpu::new(&parts.vm, &parts.cpu, index))
            .collect::<Result<Vec<_>, _>>()?;
        let context = VcpuContext {
            host: Arc::clone(&parts.host),
            gate: Arc::clone(gate),
            buses: Arc::clone(&devices.buses),
            events: events.clone(),
        };
        let pin = |thread: &JoinHandle<()>, index| {
            let placement = &parts.config.placement;
            placement.pin_vcpu(thread, index, parts.free_cpus.as_ref())
        };
        let vcpus = Vcpus::start(parts.threads, vcpus, &context, pin).map_err(|source| {
            BuildError::Thread {
                what: "a vCPU thread",
                source,
            }
        })?;
        match beginning {
            Beginning::Kernel(start) => vcpus.command(Command::Reset(start))?,
            Beginning::Snapshot(mut snapshot) => {
                let states = (0..vcpus.count())
                    .map(|index| snapshot.take_vcpu(index))
                    .collect::<Result<_, _>>()?;
                vcpus.restore(states)?;
                devices.chipset.start_clock();
                // After the vCPUs: lines that are up are told to their LAPICs.
                parts.restore_vm(&mut snapshot)?;
                generation::restore(&parts, &mut snapshot, &devices.chipset)?;
                snapshot.finish()?;
            }
        }
        Ok(BuiltMachine {
            parts,
            devices,
            vcpus,
            board: board.clone(),
        })
    }
}

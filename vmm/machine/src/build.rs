//! The phases in which a machine is built. Each consumes the former, so nothing is done twice, too
//! early or not at all.
//!
//! ```text
//! Configured -> Memory -> Devices -> Vcpus   (then the owner runs it)
//! ```

use std::io;
use std::sync::{Arc, Mutex};

use vmm_kvm::{
    CpuError, GuestCpu, InterruptRouter, KvmError, KvmHost, StartState, Vcpu, Vm, VmPowerOnState,
};
use vmm_memory::{Layout, LayoutError, RamError, clear_ram, create_ram};

use crate::acpi::{self, AcpiError, COM1_GSI, COM1_PORT, COM1_PORTS, PM_BASE, PM_PORTS};
use crate::boot::{self, BootError, Firmware};
use crate::config::MachineConfig;
use crate::device_thread::DeviceThreads;
use crate::disks::Disks;
use crate::events::GuestEvents;
use crate::functions::{self, DeviceError, Handles};
use crate::gate::{Command, Gate};
use crate::legacy::{
    Clock, DEBUG_EXIT_PORT, DebugExit, KEYBOARD_COMMAND_PORT, KeyboardReset, PowerManagement,
    RTC_PORT, TIMESTAMP_PORT, Timestamp,
};
use crate::pci::{BindKick, ConfigPorts, PciBus, PciBusError, Unbind};
use crate::ports::{Buses, SharedDevice};
use crate::status::StatusBoard;
use crate::vcpus::{StuckVcpus, VcpuContext, Vcpus};

/// Why a machine could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// KVM refused.
    #[error("KVM can not make this machine")]
    Kvm(#[from] KvmError),
    /// RAM can not be laid out.
    #[error("guest memory can not be laid out")]
    Layout(#[from] LayoutError),
    /// RAM can not be made.
    #[error("guest memory can not be made")]
    Ram(#[from] RamError),
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
    /// vCPUs did not come up.
    #[error("vCPUs did not get ready")]
    Vcpus(#[source] io::Error),
}

impl BuildError {
    /// Whether the configuration is at fault, not the host.
    #[must_use]
    pub fn is_configuration(&self) -> bool {
        matches!(
            self,
            Self::Layout(_)
                | Self::TooManyVcpus { .. }
                | Self::Cpus(_)
                | Self::Device(_)
                | Self::Pci(_)
                | Self::Acpi(_)
                | Self::Boot(_)
        )
    }
}

/// First phase: the configuration, and a host that is able.
pub(crate) struct Configured {
    config: MachineConfig,
    host: Arc<KvmHost>,
    cpu: GuestCpu,
    layout: Layout,
}

/// Second phase: a VM with RAM, the kernel in it.
pub(crate) struct WithMemory {
    parts: Parts,
    start: StartState,
}

/// Third phase: all devices in their places, none served yet.
pub(crate) struct WithDevices {
    parts: Parts,
    start: StartState,
    devices: Devices,
}

/// What later phases keep of the former.
struct Parts {
    config: MachineConfig,
    host: Arc<KvmHost>,
    cpu: GuestCpu,
    layout: Layout,
    vm: Arc<Vm>,
    chips: VmPowerOnState,
}

struct Devices {
    bus: Arc<PciBus>,
    buses: Arc<Buses>,
    power: Arc<Mutex<PowerManagement>>,
    threads: DeviceThreads,
    disks: Disks,
}

/// Last phase: everything is there and holds still.
pub(crate) struct BuiltMachine {
    parts: Parts,
    devices: Devices,
    vcpus: Vcpus,
}

impl Configured {
    pub(crate) fn new(config: MachineConfig) -> Result<Self, BuildError> {
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
        check_count(&config, &host)?;
        let cpu = GuestCpu::resolve(&config.cpus, &host.cpu(&config.cpus)?)?;
        let layout = Layout::new(config.ram_bytes, host.address_bits())?;
        Ok(Self {
            config,
            host: Arc::new(host),
            cpu,
            layout,
        })
    }

    pub(crate) fn build_memory(self) -> Result<WithMemory, BuildError> {
        let ram = create_ram(&self.layout)?;
        let mut vm = Vm::new(&self.host, ram)?;
        if let Some(missed) = self.config.clock.pit {
            vm.create_pit(&self.host, missed)?;
        }
        vm.prepare_cpus(&self.cpu)?;
        let vm = Arc::new(vm);
        let chips = vm.power_on_state()?;
        let parts = Parts {
            config: self.config,
            host: self.host,
            cpu: self.cpu,
            layout: self.layout,
            vm,
            chips,
        };
        let start = parts.load()?;
        Ok(WithMemory { parts, start })
    }
}

/// vCPUs that are yet to come count, too.
fn check_count(config: &MachineConfig, host: &KvmHost) -> Result<(), BuildError> {
    let topology = config.cpus.topology;
    let largest_id = topology.apic_id(topology.max_count() - 1);
    let checks = [
        (topology.max_count(), host.max_vcpus()),
        (largest_id.saturating_add(1), host.max_vcpu_ids()),
    ];
    for (wanted, limit) in checks {
        if usize::try_from(wanted).is_ok_and(|wanted| wanted > limit) {
            return Err(BuildError::TooManyVcpus { wanted, limit });
        }
    }
    Ok(())
}

impl Parts {
    /// Tables, kernel, initrd and command line into RAM.
    fn load(&self) -> Result<StartState, BuildError> {
        let ram = self.vm.ram();
        let rsdp = acpi::write_tables(ram, &self.layout, self.config.cpus.topology)?;
        let firmware = Firmware { rsdp };
        Ok(boot::load(
            ram,
            &self.layout,
            &self.config.kernel,
            firmware,
        )?)
    }
}

impl WithMemory {
    pub(crate) fn build_devices(
        self,
        events: &GuestEvents,
        board: &StatusBoard,
    ) -> Result<WithDevices, BuildError> {
        let Self { mut parts, start } = self;
        let devices = std::mem::take(&mut parts.config.devices);
        let mut handles = Handles {
            events,
            disks: Disks::default(),
        };
        let functions = functions::make(devices, &parts.vm, &mut handles)?;
        InterruptRouter::new(Arc::clone(&parts.vm))
            .connect(&parts.config.serial.interrupt, COM1_GSI)?;
        let bind = bind_kick(Arc::clone(&parts.vm));
        let bus = Arc::new(PciBus::new(bind, parts.layout, functions)?);
        let power = Arc::new(Mutex::new(PowerManagement::new(
            Arc::clone(&parts.vm),
            events.clone(),
        )));
        let ports = legacy_ports(&parts, &bus, &power, events, board);
        let own = &parts.config.io_threads;
        let threads = DeviceThreads::start(&bus, own).map_err(|source| BuildError::Thread {
            what: "a device thread",
            source,
        })?;
        let buses = Arc::new(Buses::new(Arc::clone(&bus), ports));
        Ok(WithDevices {
            parts,
            start,
            devices: Devices {
                bus,
                buses,
                power,
                threads,
                disks: handles.disks,
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

fn legacy_ports(
    parts: &Parts,
    bus: &Arc<PciBus>,
    power: &Arc<Mutex<PowerManagement>>,
    events: &GuestEvents,
    board: &StatusBoard,
) -> Vec<(u16, u16, SharedDevice)> {
    let config_ports = ConfigPorts::new(Arc::clone(bus), events.clone());
    let power: SharedDevice = Arc::clone(power) as SharedDevice;
    let com1: SharedDevice = Arc::clone(&parts.config.serial.port) as SharedDevice;
    let mut ports: Vec<(u16, u16, SharedDevice)> = vec![
        (COM1_PORT, COM1_PORTS, com1),
        (0xcf8, 8, Arc::new(Mutex::new(config_ports))),
        (PM_BASE, PM_PORTS, power),
        (
            KEYBOARD_COMMAND_PORT,
            1,
            Arc::new(Mutex::new(KeyboardReset::new(events.clone()))),
        ),
        (
            RTC_PORT,
            2,
            Arc::new(Mutex::new(Clock::new(
                parts.config.clock.rtc_offset_seconds,
            ))),
        ),
    ];
    if parts.config.debug.timestamp {
        let device = Timestamp::new(board.first_timestamp());
        ports.push((TIMESTAMP_PORT, 1, Arc::new(Mutex::new(device))));
    }
    if parts.config.debug.exit {
        let device = DebugExit::new(events.clone());
        ports.push((DEBUG_EXIT_PORT, 1, Arc::new(Mutex::new(device))));
    }
    ports
}

impl WithDevices {
    pub(crate) fn build_vcpus(
        self,
        gate: &Arc<Gate>,
        events: &GuestEvents,
    ) -> Result<BuiltMachine, BuildError> {
        let Self {
            parts,
            start,
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
        let vcpus = Vcpus::start(vcpus, &context).map_err(|source| BuildError::Thread {
            what: "a vCPU thread",
            source,
        })?;
        vcpus.command(Command::Reset(start)).map_err(stuck)?;
        Ok(BuiltMachine {
            parts,
            devices,
            vcpus,
        })
    }
}

fn stuck(error: StuckVcpus) -> BuildError {
    BuildError::Vcpus(io::Error::other(error))
}

impl BuiltMachine {
    /// Lets the guest run.
    pub(crate) fn run(&self) -> Result<(), BuildError> {
        self.devices.disks.retry_held();
        self.devices.threads.resume();
        self.vcpus.command(Command::Run).map_err(stuck)
    }

    /// Holds the guest: no vCPU runs and no device is served.
    pub(crate) fn hold(&self) -> Result<(), BuildError> {
        self.vcpus.command(Command::Hold).map_err(stuck)?;
        self.devices
            .threads
            .pause()
            .map_err(|source| BuildError::Thread {
                what: "the pause of a device thread",
                source,
            })
    }

    /// Brings a machine that holds still back to power-on, the kernel loaded anew.
    pub(crate) fn reset(&self) -> Result<(), BuildError> {
        self.devices.bus.reset()?;
        lock(&self.devices.power).reset();
        lock(&self.parts.config.serial.port).reset();
        self.parts.vm.reset_to(&self.parts.chips)?;
        clear_ram(self.parts.vm.ram())?;
        let start = self.parts.load()?;
        self.vcpus.command(Command::Reset(start)).map_err(stuck)
    }

    /// The disks, for changes while the guest runs.
    pub(crate) fn disks(&self) -> &Disks {
        &self.devices.disks
    }

    /// Presses the power button.
    pub(crate) fn press_power_button(&self) {
        lock(&self.devices.power).press_power_button();
    }

    /// Ends all threads. The guest never runs again.
    pub(crate) fn end(&self) -> Result<(), BuildError> {
        self.hold()?;
        self.vcpus.command(Command::Leave).map_err(stuck)?;
        self.devices.threads.end();
        Ok(())
    }
}

fn lock<T>(device: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Registers are whole after each access.
    device
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

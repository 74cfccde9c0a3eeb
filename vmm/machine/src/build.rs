//! The phases in which a machine is built. Each consumes the former, so nothing is done twice, too
//! early or not at all.
//!
//! ```text
//! Configured -> Memory -> Devices -> Vcpus   (then the machine thread runs it)
//! ```

pub(crate) mod error;
pub(crate) mod made;
mod parts;

use std::cell::Cell;
use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use vmm_kvm::{BareVm, GuestCpu, InterruptRouter, KvmHost, StartState, Vcpu};
use vmm_memory::{GuestRam, Layout};
use vmm_sys::threads::Threads;

use crate::acpi::{COM1_GSI, DescribedPci};
use crate::built::BuiltMachine;
use crate::chipset::{Chipset, ChipsetPlan};
use crate::coalesced_pio::CoalescedPio;
use crate::config::MachineConfig;
use crate::device_thread::DeviceThreads;
use crate::disks::Disks;
use crate::events::GuestEvents;
use crate::firmware::order::BootOrder;
use crate::firmware::platform::Platform;
use crate::firmware::{self};
use crate::functions;
use crate::functions::handles::Handles;
use crate::gate::{Command, Gate};
use crate::legacy::{Clock, PowerManagement};
use crate::nics::Nics;
use crate::pci::ConfigPorts;
use crate::side_thread::run_in_parallel;
use crate::snapshot::Snapshot;
use crate::snapshot::error::SnapshotError;
use crate::status::StatusBoard;
use crate::timeline::Phase;
use crate::vcpus::{self, VcpuContext, Vcpus};
use crate::{generation, memory};

pub use self::error::BuildError;
use self::made::{Devices, Parts};
use self::parts::load;

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
enum StartFrom {
    /// At the entry of its kernel, or where processors begin.
    Entry(Option<StartState>),
    /// A machine that continues where the snapshot was taken.
    Snapshot(Snapshot),
}

/// First phase: the configuration, and a host that is able.
pub(crate) struct Configured {
    config: MachineConfig,
    threads: Threads,
    host: Arc<KvmHost>,
    cpu: GuestCpu,
    layout: Layout,
    pci: DescribedPci,
}

/// Second phase: a VM with RAM, the guest in it.
pub(crate) struct WithMemory {
    parts: Parts,
    start_from: StartFrom,
}

/// Third phase: all devices in their places, none served yet.
pub(crate) struct WithDevices {
    parts: Parts,
    start_from: StartFrom,
    devices: Devices,
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
        let layout = if config.boot.firmware().is_some() {
            layout.with_open_windows()
        } else {
            layout
        };
        Ok(Self {
            pci: functions::described(&config.devices),
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
        let timeline = board.timeline();
        timeline.note(Phase::MemoryMade);
        // From here on: memory is allocated by all CPUs that the process has.
        let free_cpus = config.placement.pin_builder()?;
        let host = Arc::clone(&self.host);
        let fill = move || {
            let filled = self.fill(&ram, restore);
            timeline.note(Phase::MemoryFilled);
            (self, ram, filled)
        };
        // The kernel puts this thread to sleep: the other has the CPU, even if there is but one.
        let make = || {
            let bare = BareVm::new(&host);
            timeline.note(Phase::VmMade);
            bare
        };
        let both = run_in_parallel("fill", fill, make);
        let ((this, ram, filled), bare) = both.map_err(|source| BuildError::Thread {
            what: "the thread that fills memory",
            source,
        })?;
        let mut vm = if this.config.boot.firmware().is_some() {
            bare?.with_memory_around(ram, firmware::HOLE)?
        } else {
            bare?.with_memory(ram)?
        };
        let start_from = filled?;
        if let Some(missed) = this.config.clock.pit {
            vm.create_pit(&this.host, missed)?;
        }
        if this.config.boot.firmware().is_none() {
            vm.wire_pic()?;
        }
        vm.prepare_cpus(&this.cpu)?;
        let vm = Arc::new(vm);
        let chips = vm.power_on_state()?;
        timeline.note(Phase::MemoryMapped);
        let parts = Parts {
            config: this.config,
            threads: this.threads,
            host: this.host,
            cpu: this.cpu,
            layout: this.layout,
            pci: this.pci,
            free_cpus,
            vm,
            chips,
        };
        Ok(WithMemory { parts, start_from })
    }

    /// The kernel and what goes with it into RAM, or what the snapshot holds.
    fn fill(&self, ram: &GuestRam, restore: Option<Restore>) -> Result<StartFrom, BuildError> {
        let Self {
            config,
            cpu,
            layout,
            pci,
            ..
        } = self;
        let Some(Restore {
            mut snapshot,
            fill_ram,
        }) = restore
        else {
            let start = load(ram, config, cpu, layout, pci)?;
            return Ok(StartFrom::Entry(start));
        };
        // First, because it takes no time.
        snapshot.take_cpus(cpu)?;
        fill_ram(ram).map_err(SnapshotError::Ram)?;
        Ok(StartFrom::Snapshot(snapshot))
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
            mut start_from,
        } = self;
        let devices = std::mem::take(&mut parts.config.devices);
        let platform = parts.platform(&BootOrder::of(&devices), events)?;
        let mut handles = Handles {
            events,
            route_failures: board.route_failures().clone(),
            disks: Disks::default()
                .with_variables(platform.as_deref().and_then(Platform::variables)),
            nics: Nics::default(),
            balloon: None,
        };
        let mut snapshot = match &mut start_from {
            StartFrom::Entry(_) => None,
            StartFrom::Snapshot(snapshot) => Some(snapshot),
        };
        let functions = functions::make(devices, &parts.vm, &mut handles, snapshot.as_deref_mut())?;
        board.set_balloon(handles.balloon.take());
        board.set_disks(&handles.disks);
        board.set_nics(&handles.nics);
        InterruptRouter::new(Arc::clone(&parts.vm))
            .connect(&parts.config.serial.interrupt, COM1_GSI)?;
        let bus = Arc::new(parts.bus(functions, platform.as_deref(), snapshot, events)?);
        let chipset = Chipset::new(
            ChipsetPlan {
                com1: Arc::clone(&parts.config.serial.port),
                config_ports: ConfigPorts::new(Arc::clone(&bus), events.clone())
                    .declining_searches(parts.config.boot.maps_pci()),
                clock: Clock::new(parts.config.clock.rtc_offset_seconds),
                fixed: parts.config.fixed,
                debug: parts.config.debug,
                first_timestamp: board.first_timestamp(),
                events,
            },
            PowerManagement::new(Arc::clone(&parts.vm), events.clone()),
            platform.clone(),
        );
        if let StartFrom::Snapshot(snapshot) = &mut start_from {
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
        let buses = Arc::new(chipset.buses(Arc::clone(&bus)));
        board.timeline().note(Phase::DevicesMade);
        Ok(WithDevices {
            parts,
            start_from,
            devices: Devices {
                bus,
                buses,
                chipset,
                threads,
                disks: handles.disks,
                nics: handles.nics,
                platform,
            },
        })
    }
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
            start_from,
            devices,
        } = self;
        let vcpus = (0..parts.cpu.topology().count())
            .map(|index| Vcpu::new(&parts.vm, &parts.cpu, index))
            .collect::<Result<Vec<_>, _>>()?;
        let coalesced_pio = Arc::new(CoalescedPio::new(&parts.vm, vcpus.first())?);
        let context = VcpuContext {
            host: Arc::clone(&parts.host),
            gate: Arc::clone(gate),
            buses: Arc::clone(&devices.buses),
            coalesced_pio: Arc::clone(&coalesced_pio),
            events: events.clone(),
            timeline: board.timeline().clone(),
            has_firmware: devices.platform.is_some(),
            moves_slots: devices.platform.is_some() || parts.config.boot.maps_pci(),
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
        match start_from {
            StartFrom::Entry(start) => vcpus.command(Command::Reset(start))?,
            StartFrom::Snapshot(mut snapshot) => {
                let states = (0..vcpus.count())
                    .map(|index| snapshot.take_vcpu(index))
                    .collect::<Result<_, _>>()?;
                vcpus.restore(states)?;
                devices.chipset.start_clock();
                // After the vCPUs: lines that are up send interrupts to their LAPICs.
                parts.restore_vm(&mut snapshot)?;
                generation::restore(&parts, &mut snapshot, &devices)?;
                snapshot.finish()?;
            }
        }
        board.timeline().note(Phase::VcpusMade);
        Ok(BuiltMachine {
            parts,
            devices,
            vcpus,
            coalesced_pio,
            board: board.clone(),
            is_at_rest: Cell::new(true),
        })
    }
}

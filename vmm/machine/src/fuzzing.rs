//! Ways in for fuzz targets: what only a guest's exits, a kernel file or a snapshot reach otherwise.
//! The machine itself uses none of it.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use vmm_devices::serial::SerialPort;
use vmm_devices::{GuestRam, PciFunction};
use vmm_kvm::{CpuConfig, CpuError, CpuTopology, GuestCpu, KvmError, KvmHost, TopologyError, Vm};
use vmm_memory::{Layout, RamError, create_ram};

use crate::acpi::{PM_BASE, PM_PORTS};
use crate::boot::{self, BootError, Firmware, KernelConfig};
use crate::chipset::{self, ChipsetPlan};
use crate::config::DebugIoPorts;
use crate::events::GuestEvents;
use crate::fixed_devices::FixedDevices;
use crate::gate::Gate;
use crate::io_ports::Buses;
use crate::legacy::{Clock, PowerManagement};
use crate::pci::address::PciAddress;
use crate::pci::{ConfigPorts, PciBus, PlacedFunction};
use crate::port_device::{PlacedDevice, SavedChipset};
use crate::request::Message;
use crate::snapshot::Snapshot;

/// Why there is no line to interrupt a guest by.
#[derive(Debug, thiserror::Error)]
pub enum LineError {
    /// The VM that it belongs to could not be made.
    #[error("KVM")]
    Kvm(#[from] KvmError),
    /// Memory of the VM that it belongs to.
    #[error("memory")]
    Ram(#[from] RamError),
    /// The VM's vCPUs could not be made.
    #[error("CPUs")]
    Cpus(#[from] CpuError),
    /// How many CPUs.
    #[error("the topology")]
    Topology(#[from] TopologyError),
}

/// A VM that nothing runs in, and the CPUs that it could have: power management raises its interrupt
/// there.
#[derive(Clone)]
pub struct Line {
    vm: Arc<Vm>,
    cpu: Arc<GuestCpu>,
}

impl Line {
    /// Makes the VM; once for many [`Exits`].
    ///
    /// # Errors
    /// The host has no usable KVM.
    pub fn new(dev_kvm: OwnedFd, layout: &Layout) -> Result<Self, LineError> {
        let host = KvmHost::new(dev_kvm)?;
        let config = CpuConfig::passthrough(CpuTopology::new(1, 1, 1)?);
        let cpu = GuestCpu::resolve(&config, &host.cpu(&config)?)?;
        Ok(Self {
            vm: Arc::new(Vm::new(&host, create_ram(layout)?)?),
            cpu: Arc::new(cpu),
        })
    }
}

/// A function in its place, and the bus behind it if it is a root port.
pub type Placed = (PciAddress, Box<dyn PciFunction>, Option<u8>);

/// All that exits of a vCPU reach, without a vCPU.
pub struct Exits {
    buses: Buses,
    bus: Arc<PciBus>,
    /// Events of devices; nobody acts on them.
    messages: Receiver<Message>,
}

impl Exits {
    /// Chips and `functions`, whose BARs are placed; power management only with a `line`.
    ///
    /// # Errors
    /// The functions do not fit.
    pub fn new(
        layout: Layout,
        functions: Vec<Placed>,
        serial: SerialPort,
        line: Option<Line>,
    ) -> Result<Self, crate::PciBusError> {
        let (sender, messages) = channel();
        let events = GuestEvents::new(sender, Arc::new(Gate::new(0)));
        let placed = |(address, function, secondary_bus)| PlacedFunction {
            address,
            function,
            secondary_bus,
        };
        let functions = functions.into_iter().map(placed).collect();
        let bus = Arc::new(PciBus::new(Box::new(|_, _| None), layout, functions));
        bus.place()?;
        let devices = port_devices(&bus, serial, line.as_ref(), &events);
        Ok(Self {
            buses: Buses::new(Arc::clone(&bus), &devices),
            bus,
            messages,
        })
    }

    /// `in`.
    pub fn port_read(&self, port: u16, data: &mut [u8]) {
        self.buses.port_read(port, data);
    }

    /// `out`.
    pub fn port_write(&self, port: u16, data: &[u8]) {
        self.buses.port_write(port, data);
    }

    /// A read where no RAM is.
    pub fn mmio_read(&self, address: u64, data: &mut [u8]) {
        self.buses.mmio_read(address, data);
    }

    /// A write where no RAM is.
    pub fn mmio_write(&self, address: u64, data: &[u8]) {
        self.buses.mmio_write(address, data);
    }

    /// Has each function work until it rests, as `rest` sees to it.
    pub fn settle(&self, mut rest: impl FnMut(&mut dyn PciFunction)) {
        for slot in self.bus.slots() {
            rest(&mut **slot.function());
        }
    }

    /// Resets all functions, and drops their events.
    ///
    /// # Errors
    /// BARs do not fit any more: a finding.
    pub fn reset(&self) -> Result<(), crate::PciBusError> {
        while self.messages.try_recv().is_ok() {}
        self.bus.reset()
    }

    /// Whether no two BARs are mapped to the same addresses, and none where no window is.
    #[must_use]
    pub fn is_sound(&self) -> bool {
        self.bus.is_sound()
    }
}

/// All devices at ports that a machine without firmware may have, but debug ports; power management only with a `line`.
fn port_devices(
    bus: &Arc<PciBus>,
    serial: SerialPort,
    line: Option<&Line>,
    events: &GuestEvents,
) -> Vec<PlacedDevice> {
    let mut devices = chipset::devices(ChipsetPlan {
        com1: Arc::new(Mutex::new(serial)),
        config_ports: ConfigPorts::new(Arc::clone(bus), events.clone()),
        clock: Clock::new(0),
        fixed: FixedDevices::ALL,
        debug: DebugIoPorts::default(),
        first_timestamp: Arc::default(),
        events,
    });
    if let Some(line) = line {
        let power = PowerManagement::new(Arc::clone(&line.vm), events.clone());
        devices.push(PlacedDevice::new(PM_BASE, PM_PORTS, power));
    }
    devices
}

/// Loads a kernel as it is booted.
///
/// # Errors
/// It is none, or does not fit.
pub fn load_kernel(
    ram: &GuestRam,
    layout: &Layout,
    config: &KernelConfig,
) -> Result<(), BootError> {
    boot::load(ram, layout, config, Firmware { rsdp: 0xe_0000 }).map(drop)
}

/// Takes everything out of a snapshot that a machine with one vCPU and `serial` would; with a `line`, its VM goes on
/// where the snapshot's was, if it can.
pub fn take_apart(
    mut snapshot: Snapshot,
    layout: Layout,
    functions: &[PciAddress],
    serial: SerialPort,
    line: Option<&Line>,
) {
    // Each part is taken for itself: what is wrong with one says nothing about the others.
    if let (Ok(state), Some(line)) = (snapshot.take_vm(), line) {
        drop(line.vm.restore(&state));
    }
    if let Some(line) = line {
        drop(snapshot.take_cpus(&line.cpu));
    }
    drop(snapshot.take_vcpu(0));
    let events = GuestEvents::new(channel().0, Arc::new(Gate::new(0)));
    let bus = Arc::new(PciBus::new(Box::new(|_, _| None), layout, Vec::new()));
    let legacy = snapshot.take_legacy().unwrap_or_default();
    let mut saved = SavedChipset::new(&mut snapshot, legacy);
    for placed in port_devices(&bus, serial, line, &events) {
        drop(placed.lock().load(&mut saved));
    }
    drop(snapshot.take_generation());
    for address in functions {
        drop(snapshot.take_function(*address));
    }
    drop(snapshot.finish());
}

/// Reads the state of a vCPU as a restored machine does before it makes one.
///
/// # Errors
/// It cannot be that of a vCPU.
pub fn read_vcpu(bytes: &[u8]) -> Result<(), crate::SnapshotError> {
    let mut snapshot = Snapshot::default();
    snapshot.put_vcpu_bytes(0, bytes.to_vec());
    snapshot.take_vcpu(0).map(drop)
}

//! Where guests find the devices, and what a snapshot has of them. Needs `/dev/kvm`, but runs no guest.

use std::fs::File;
use std::sync::mpsc::channel;

use prost::Message;
use vmm_devices::DeviceState;
use vmm_devices::serial::{ConsoleOutput, SerialPort};
use vmm_kvm::{BareVm, CpuConfig, CpuTopology, GuestCpu, KvmHost, Vm};
use vmm_memory::{Layout, create_ram};
use vmm_sys_util::eventfd::EventFd;

use super::*;
use crate::acpi::DescribedPci;
use crate::config::DebugIoPorts;
use crate::events::GuestEvents;
use crate::firmware::config::{DebugLog, FirmwareConfig};
use crate::firmware::order::BootOrder;
use crate::firmware::{self, Plan, PlatformState};
use crate::fixed_devices::FixedDevices;
use crate::gate::Gate;
use crate::legacy::Clock;
use crate::pci::ConfigPorts;

struct Nowhere;

impl ConsoleOutput for Nowhere {
    fn write(&self, _: &[u8]) {}
}

struct Machine {
    chipset: Chipset,
    buses: Buses,
    ports: Vec<(u16, u16)>,
}

fn serial() -> Arc<Mutex<SerialPort>> {
    let interrupt = Arc::new(EventFd::new(0).unwrap());
    let port = SerialPort::new(interrupt, Arc::new(Nowhere)).unwrap();
    Arc::new(Mutex::new(port))
}

fn events() -> GuestEvents {
    GuestEvents::new(channel().0, Arc::new(Gate::new(0)))
}

/// A machine with a panic port and both debug ports; `None` on a host without KVM.
fn machine(has_firmware: bool) -> Option<Machine> {
    let Ok(dev_kvm) = File::options().read(true).write(true).open("/dev/kvm") else {
        test_skip::report("/dev/kvm cannot be opened");
        return None;
    };
    let host = KvmHost::new(dev_kvm.into()).unwrap();
    let layout = Layout::new(64 << 20, 40).unwrap();
    let events = events();
    let bare = BareVm::new(&host).unwrap();
    let (vm, platform) = if has_firmware {
        let layout = layout.with_open_windows();
        let ram = create_ram(&layout).unwrap();
        let vm = Arc::new(bare.with_memory_around(ram, firmware::HOLE).unwrap());
        let platform = platform(&host, &layout, &vm, &events);
        (vm, Some(platform))
    } else {
        let vm = bare.with_memory(create_ram(&layout).unwrap()).unwrap();
        (Arc::new(vm), None)
    };
    let bus = Arc::new(PciBus::new(Box::new(|_, _| None), layout, Vec::new()));
    let chipset = Chipset::new(
        ChipsetPlan {
            com1: serial(),
            config_ports: ConfigPorts::new(Arc::clone(&bus), events.clone()),
            clock: Clock::new(0),
            fixed: FixedDevices::ALL,
            debug: DebugIoPorts {
                timestamp: true,
                exit: true,
            },
            first_timestamp: Arc::default(),
            events: &events,
        },
        PowerManagement::new(vm, events.clone()),
        platform,
    );
    let ports = chipset.devices.iter().filter_map(|placed| placed.ports);
    let mut ports: Vec<_> = ports.collect();
    ports.sort_unstable();
    Some(Machine {
        buses: chipset.buses(bus),
        chipset,
        ports,
    })
}

fn platform(host: &KvmHost, layout: &Layout, vm: &Arc<Vm>, events: &GuestEvents) -> Arc<Platform> {
    let code = tempfile::tempfile().unwrap();
    code.set_len(256 << 10).unwrap();
    let config = CpuConfig::passthrough(CpuTopology::new(1, 1, 1).unwrap());
    let cpu = GuestCpu::resolve(&config, &host.cpu(&config).unwrap()).unwrap();
    let plan = Plan {
        config: &FirmwareConfig {
            code,
            variables: None,
            boot_order: Vec::new(),
            serial_console: false,
            debug_log: Some(DebugLog {
                file: tempfile::tempfile().unwrap(),
                max_bytes: 1,
            }),
        },
        machine: firmware::Machine {
            layout,
            cpu: &cpu,
            smbios: None,
            generation: None,
            order: &BootOrder::of(&[]),
        },
        pci: &DescribedPci::default(),
        nodes: &[],
        fixed: FixedDevices::ALL,
    };
    Arc::new(Platform::new(&plan, vm, events).unwrap())
}

impl Machine {
    fn read(&self, port: u16) -> u8 {
        let mut value = [0];
        self.buses.port_read(port, &mut value);
        value[0]
    }

    /// Parts of a snapshot by name; what the timer has counted is left out.
    fn saved(&self) -> Vec<(String, Vec<u8>)> {
        let mut snapshot = Snapshot::default();
        self.chipset.save(&mut snapshot);
        let mut legacy: LegacyState = snapshot.clone().take_legacy().unwrap();
        let counted = legacy
            .power
            .as_mut()
            .map(|power| std::mem::take(&mut power.timer_ns));
        assert!(counted.is_some_and(|counted| counted > 0));
        let parts = snapshot.sections.into_iter().map(|section| {
            let bytes = match section.name.as_str() {
                "legacy" => legacy.to_payload().bytes,
                _ => section.payload.bytes,
            };
            (section.name, bytes)
        });
        let mut parts: Vec<_> = parts.collect();
        parts.sort_unstable();
        parts
    }

    fn moved(&self, to: &Self) {
        let mut snapshot = Snapshot::default();
        self.chipset.save(&mut snapshot);
        to.chipset.load(&mut snapshot).unwrap();
        snapshot.finish().unwrap();
    }
}

/// First ports and how many, of a machine that boots a kernel.
const PORTS: [(u16, u16); 8] = [
    (0x64, 1),
    (0x70, 2),
    (0x3f8, 8),
    (0x505, 1),
    (0x600, 0x40),
    (0xcf8, 8),
    (0xd02, 1),
    (0xd04, 1),
];

#[test]
fn guests_find_devices_at_these_ports() {
    let Some(machine) = machine(false) else {
        return;
    };
    assert_eq!(machine.ports, PORTS);
}

#[test]
fn guests_with_firmware_find_the_acpi_hardware_where_firmware_puts_it_and_more_ports() {
    let Some(machine) = machine(true) else {
        return;
    };
    let mut ports = PORTS.to_vec();
    ports.retain(|(first, _)| *first != 0x600);
    ports.extend([(0x92, 1), (0xb2, 2), (0x402, 1), (0x510, 12)]);
    ports.sort_unstable();
    assert_eq!(machine.ports, ports);
}

#[test]
fn a_machine_without_firmware_is_saved_in_two_parts_and_goes_on_as_it_was() {
    let (Some(machine), Some(other)) = (machine(false), machine(false)) else {
        return;
    };
    // Scratch register, index of the clock, CONFIG_ADDRESS, a crash kernel, the power button.
    machine.buses.port_write(0x3ff, &[0x5a]);
    machine.buses.port_write(0x70, &[0x32]);
    machine
        .buses
        .port_write(0xcf8, &0x8000_1234_u32.to_le_bytes());
    machine.buses.port_write(0x505, &[2]);
    machine.buses.port_write(0x602, &0x100_u16.to_le_bytes());
    let saved = machine.saved();
    let names: Vec<&str> = saved.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["com1", "legacy"]);
    assert_eq!(hex(&saved[1].1), "0a051080021801103218b4a48080085001");
    machine.moved(&other);
    assert_eq!(other.saved(), saved);
    assert_eq!(other.read(0x3ff), 0x5a);

    other.chipset.reset().unwrap();
    // The clock's index and CONFIG_ADDRESS outlive a reset.
    assert_eq!(other.read(0x3ff), 0);
    assert_eq!(hex(&other.saved()[1].1), "0a021801103218b4a4808008");
}

#[test]
fn a_machine_with_firmware_is_saved_in_four_parts_and_goes_on_as_it_was() {
    let (Some(machine), Some(other)) = (machine(true), machine(true)) else {
        return;
    };
    // Memory of the clock, APM, port 0x92, a key of fw_cfg.
    machine.buses.port_write(0x70, &[0x5f]);
    machine.buses.port_write(0x71, &[0xa5]);
    machine.buses.port_write(0xb2, &[1]);
    machine.buses.port_write(0xb3, &[2]);
    machine.buses.port_write(0x92, &[0]);
    machine.buses.port_write(0x510, &5_u16.to_le_bytes());
    let saved = machine.saved();
    let names: Vec<&str> = saved.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["com1", "fw-cfg", "legacy", "platform"]);
    assert_eq!(hex(&saved[1].1), "0805");
    assert_eq!(hex(&saved[2].1), "0a021801105f");
    let platform = PlatformState::decode(saved[3].1.as_slice()).unwrap();
    assert_eq!(
        (platform.apm.as_slice(), platform.fast_a20),
        (&[1, 2][..], 0)
    );
    assert_eq!(platform.code_bytes, 256 << 10);
    assert_eq!(
        (platform.clock_memory.len(), platform.clock_memory[0x5f]),
        (128, 0xa5)
    );
    machine.moved(&other);
    assert_eq!(other.saved(), saved);
    assert_eq!(other.read(0x71), 0xa5);

    other.chipset.reset().unwrap();
    assert_eq!([0x92, 0xb2, 0xb3].map(|port| other.read(port)), [2, 0, 0]);
}

#[test]
fn the_state_of_another_machine_is_refused() {
    let (Some(plain), Some(firmware)) = (machine(false), machine(true)) else {
        return;
    };
    let mut snapshot = Snapshot::default();
    plain.chipset.save(&mut snapshot);
    firmware.chipset.load(&mut snapshot).unwrap_err();
    let mut snapshot = Snapshot::default();
    firmware.chipset.save(&mut snapshot);
    plain.chipset.load(&mut snapshot).unwrap();
    snapshot.finish().unwrap_err();
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

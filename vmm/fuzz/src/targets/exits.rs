//! All that exits of a vCPU reach: ports, configuration space by ports and by memory, BARs that move,
//! with two virtio devices on bus 0 and one behind a root port.

use std::cell::OnceCell;
use std::fs::File;
use std::sync::Arc;

use vmm_devices::pci::root_port::RootPort;
use vmm_devices::virtio::VirtioPciFunction;
use vmm_devices::virtio::rng::RngDevice;
use vmm_devices::watchdog::i6300esb::I6300Esb;
use vmm_devices::{PciFunction, WatchdogAction};
use vmm_machine::PciAddress;
use vmm_machine::fuzzing::{Exits, Line, Placed};
use vmm_memory::{ECAM_BASE, ECAM_BYTES, Layout};

use super::serial;
use crate::guest::{NoMsi, RAM_BYTES, nobody, ram, settle};
use crate::input::Input;

const MAX_STEPS: usize = 200;
/// Ports that something answers at.
const PORTS: [u16; 8] = [0x3f8, 0xcf8, 0xcfc, 0x64, 0x70, 0x600, 0x620, 0x505];
/// The root port, and what its bus is called at power-on.
const PORT: (u8, u8) = (16, 1);
/// Where functions are in configuration space: bus 0 devices 0 to 3 and 16, bus 1.
const SPACES: [u64; 7] = [0, 1 << 15, 2 << 15, 3 << 15, 16 << 15, 1 << 20, 2 << 20];

pub fn layout() -> Layout {
    Layout::new(RAM_BYTES, 40).expect("a layout")
}

thread_local! {
    /// Made once: a VM costs more than a program.
    static LINE: OnceCell<Option<Line>> = const { OnceCell::new() };
}

/// None on a host without KVM: power management is left out there.
pub fn line() -> Option<Line> {
    let open = || File::options().read(true).write(true).open("/dev/kvm");
    let make = || Line::new(open().ok()?.into(), &layout()).ok();
    LINE.with(|line| line.get_or_init(make).clone())
}

fn rng() -> Box<dyn PciFunction> {
    let (device, msi) = (Box::new(RngDevice::new()), Arc::new(NoMsi::default()));
    Box::new(VirtioPciFunction::new(device, ram(), msi).expect("a function"))
}

fn functions() -> Vec<Placed> {
    let place = |bus, device| PciAddress::new(bus, device).expect("a place");
    let (number, behind) = PORT;
    let msi = Arc::new(NoMsi::default());
    let port = RootPort::new(number, true, msi).expect("a port");
    let watchdog = I6300Esb::new(WatchdogAction::Reset, nobody());
    vec![
        (place(0, 1), rng(), None),
        (place(0, 2), rng(), None),
        (place(0, 3), Box::new(watchdog.expect("a watchdog")), None),
        (place(0, number), Box::new(port), Some(behind)),
        (place(behind, 0), rng(), None),
    ]
}

/// Runs a program.
pub fn run(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let exits = Exits::new(layout(), functions(), serial::port(), line()).expect("room for BARs");
    for _ in 0..MAX_STEPS {
        if input.is_empty() {
            break;
        }
        step(&exits, &mut input);
        assert!(exits.is_sound(), "BARs lie where they must not");
    }
    exits.settle(settle);
    exits.reset().expect("room for BARs, as before");
    assert!(exits.is_sound(), "BARs lie where they must not");
}

fn step(exits: &Exits, input: &mut Input<'_>) {
    let is_write = input.flag();
    match input.below(8) {
        0 | 1 => {
            let port = PORTS[input.below(PORTS.len())].wrapping_add(u16::from(input.u8() % 9));
            ports(exits, port, is_write, input);
        }
        2 => ports(exits, input.u16(), is_write, input),
        3 | 4 => {
            // A register of a function's header, or of its capabilities.
            let space = SPACES[input.below(SPACES.len())];
            let address = ECAM_BASE + space + u64::from(input.u8());
            memory(exits, address, is_write, input);
        }
        5 => {
            let address = ECAM_BASE + u64::from(input.u32()) % (ECAM_BYTES + 8);
            memory(exits, address, is_write, input);
        }
        6 => {
            // Where BARs are at first.
            let address = layout().mmio32().base + u64::from(input.u32() % 0x20_0000);
            memory(exits, address, is_write, input);
        }
        _ => {
            let address = input.u64() >> (input.u8() % 64);
            memory(exits, address, is_write, input);
        }
    }
}

fn ports(exits: &Exits, port: u16, is_write: bool, input: &mut Input<'_>) {
    let mut data = input.access();
    data.truncate(4);
    if is_write {
        exits.port_write(port, &data);
    } else {
        exits.port_read(port, &mut data);
    }
}

fn memory(exits: &Exits, address: u64, is_write: bool, input: &mut Input<'_>) {
    let mut data = input.access();
    if is_write {
        exits.mmio_write(address, &data);
    } else {
        exits.mmio_read(address, &mut data);
    }
}

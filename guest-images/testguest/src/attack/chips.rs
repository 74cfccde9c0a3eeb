//! What is no virtio device: ports of the chips, configuration space of nobody, addresses of nothing.

use super::outcome::Outcome::Ignored;
use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::io;
use crate::memory::Registers;
use crate::pci::Ecam;
use crate::report::Report;
use crate::second_cpu::{SecondCpu, Table};
use crate::serial;

const CONFIG_ADDRESS: u16 = 0xcf8;
const CONFIG_DATA: u16 = 0xcfc;
/// The last byte of the address port is the reset register.
const RESET_CONTROL: u16 = 0xcf9;
const KEYBOARD_COMMAND: u16 = 0x64;
const KEYBOARD_PULSE: u8 = 0xf0;
const COM1: u16 = 0x3f8;
const RTC: u16 = 0x70;

/// How long two CPUs are at the ports.
const RACE_MS: u64 = 600;

struct Target<'a> {
    ecam: &'a Ecam,
    acpi: &'a Acpi,
    clock: &'a Clock,
}

type Run = fn(&Target<'_>);

const CASES: [(&str, Run); 10] = [
    ("configuration-ports-of-all-functions", all_functions),
    ("configuration-ports-of-odd-sizes", odd_config_ports),
    ("configuration-ports-of-two-cpus", two_cpus),
    ("configuration-space-of-nobody", empty_space),
    ("serial-port-written-everywhere", serial_port),
    ("clock-of-all-registers", rtc),
    ("keyboard-controller-of-all-commands", keyboard),
    ("power-management-written-everywhere", power),
    ("ports-of-nobody", empty_ports),
    ("addresses-of-nobody", empty_addresses),
];

/// Runs all; that the line is printed is the proof.
pub fn run(ecam: &Ecam, acpi: &Acpi, clock: &Clock, report: &mut Report) {
    let target = Target { ecam, acpi, clock };
    for (name, attack) in CASES {
        let start = clock.now();
        attack(&target);
        let ms = clock.ns_since(start) / 1_000_000;
        report.attack(true, format_args!("chips {name}: {Ignored} ms={ms}"));
    }
}

fn all_functions(_: &Target<'_>) {
    for place in (0..0x1_0000_u32).step_by(9) {
        io::outl(CONFIG_ADDRESS, 1 << 31 | place << 8);
        io::inl(CONFIG_DATA);
    }
    // Reserved bits, and without the bit that enables it. Functions that are there stay as they are.
    for address in [u32::MAX, 0, 0x7fff_ffff, 0xff00_0000, 0x80ff_ffff] {
        io::outl(CONFIG_ADDRESS, address);
        io::inl(CONFIG_DATA);
        io::outl(CONFIG_DATA, u32::MAX);
    }
}

fn odd_config_ports(_: &Target<'_>) {
    io::outl(CONFIG_ADDRESS, 1 << 31 | 31 << 11);
    for port in CONFIG_ADDRESS..CONFIG_DATA + 4 {
        if port == RESET_CONTROL {
            continue;
        }
        for value in [0, 0xff, 0x55] {
            io::outb(port, value);
            io::inb(port);
            io::inw(port);
            io::inl(port);
        }
    }
    io::outl(CONFIG_DATA + 2, u32::MAX);
    io::outw(CONFIG_DATA + 3, u16::MAX);
}

/// Each CPU's address is where the other has left its own: of the host bridge, of nobody, or without the bit
/// that enables it. Nothing of them can be written, and no reset is written to the reset register.
fn two_cpus(target: &Target<'_>) {
    const ENABLED: u32 = 1 << 31;
    const NOBODY: u32 = ENABLED | 31 << 11;
    const HOST_BRIDGE: u32 = 0x29c0_8086;
    const RESET_KIND: u8 = 2;
    let second = SecondCpu::of(target.acpi).expect("a second CPU");
    let mut table = Table::new();
    for address in [ENABLED, 0, NOBODY] {
        table.add_port32(CONFIG_ADDRESS, address);
        table.add_port8(RESET_CONTROL, RESET_KIND);
        // More than KVM keeps of them, so that some come out.
        for _ in 0..24 {
            table.add_port32(CONFIG_ADDRESS, address);
        }
        table.add_port32(CONFIG_DATA, u32::MAX);
    }
    let deadline = target.clock.after_ms(RACE_MS);
    let raced = second.writing(target.clock, &table, || {
        while target.clock.now() < deadline {
            for address in [ENABLED, NOBODY, 0] {
                io::outl(CONFIG_ADDRESS, address);
                let read = io::inl(CONFIG_DATA);
                assert!(
                    [HOST_BRIDGE, u32::MAX].contains(&read),
                    "{read:#x} is nobody's"
                );
            }
        }
    });
    raced.expect("a second CPU that starts");
    io::outl(CONFIG_ADDRESS, ENABLED);
    assert_eq!(io::inl(CONFIG_DATA), HOST_BRIDGE);
}

fn empty_space(target: &Target<'_>) {
    let mut used = 0_u64;
    target.ecam.for_each(|function| {
        let (bus, device, _) = function.numbers();
        if bus == 0 {
            used |= 1 << device;
        }
    });
    let Some(space) = target
        .acpi
        .ecam
        .as_ref()
        .and_then(|window| Registers::map(window.base, 1 << 28))
    else {
        return;
    };
    // The last bus, and what is free on the first.
    let free = (0..32_usize).filter(|device| used >> device & 1 == 0);
    let places = free
        .map(|device| device << 15)
        .chain([0xff << 20, 0xff_f000 << 4]);
    for place in places {
        for offset in (0..4096).step_by(52) {
            for bytes in [1, 2, 4, 8] {
                space.poke(place + offset, bytes, u64::MAX);
                space.peek(place + offset, bytes);
            }
        }
    }
    for bytes in [1, 2, 4, 8] {
        for before in 0..bytes {
            space.peek((1 << 28) - bytes - before, bytes);
        }
    }
}

fn serial_port(_: &Target<'_>) {
    // All but the transmitter: the host's log keeps every byte.
    for round in 0..256_u16 {
        let [value, _] = round.to_le_bytes();
        for port in COM1 + 1..COM1 + 8 {
            io::outb(port, value);
            io::inb(port);
            io::inw(port);
            io::inl(port);
        }
        io::outw(COM1 + 1, round);
        io::outl(COM1 + 4, u32::from(round) << 16);
    }
    serial::initialise();
}

fn rtc(_: &Target<'_>) {
    for index in 0..=u8::MAX {
        io::outb(RTC, index);
        let value = io::inb(RTC + 1);
        io::outb(RTC + 1, !value);
        io::outb(RTC + 1, value);
        io::inw(RTC);
        io::inl(RTC);
        io::outw(RTC, u16::from(index) << 8 | u16::from(index));
    }
}

fn keyboard(_: &Target<'_>) {
    for command in 0..KEYBOARD_PULSE {
        io::outb(KEYBOARD_COMMAND, command);
        io::inb(KEYBOARD_COMMAND);
        io::outb(KEYBOARD_COMMAND - 4, command);
        io::inb(KEYBOARD_COMMAND - 4);
    }
    io::inw(KEYBOARD_COMMAND);
    io::inl(KEYBOARD_COMMAND);
}

fn power(target: &Target<'_>) {
    let Some(fadt) = target.acpi.fadt else { return };
    let Some(base) = fadt.pm1a_control.checked_sub(4) else {
        return;
    };
    for port in base..base + 0x40 {
        // The control register ends the machine.
        if (base + 2..base + 8).contains(&port) {
            continue;
        }
        for value in [0, 0xff, 0x5a] {
            io::outb(port, value);
            io::inb(port);
            io::inw(port);
            io::inl(port);
        }
    }
    // A sleep that does not exist.
    let control = io::inw(fadt.pm1a_control);
    for kind in 1..8 {
        io::outw(fadt.pm1a_control, control | kind << 10);
    }
    io::outw(fadt.pm1a_control, control);
}

fn empty_ports(_: &Target<'_>) {
    for port in (0x1000..=0xfff0).step_by(0x35) {
        io::outb(port, 0xff);
        io::outw(port, 0xffff);
        io::outl(port, u32::MAX);
        io::inb(port);
        io::inw(port);
        io::inl(port);
    }
}

fn empty_addresses(_: &Target<'_>) {
    for address in [
        0x8000_0000_u64,
        0xa000_0000,
        0xc800_0000,
        0xfd00_0000,
        0xfed0_0000,
        0xff00_0000,
    ] {
        let Some(nothing) = Registers::map(address, 0x1_0000) else {
            continue;
        };
        for offset in (0..0x1_0000).step_by(0x3fb) {
            for bytes in [1, 2, 4, 8] {
                nothing.poke(offset, bytes, u64::MAX);
                nothing.peek(offset, bytes);
            }
        }
    }
}

//! Two CPUs at the registers of one chip, watchdog or panic device: the second writes them over and over,
//! the first writes and reads the same ones. What either writes alone ends no machine, so that both
//! together may not either.

use super::outcome::Outcome::Ignored;
use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::io;
use crate::memory::Registers;
use crate::panic_device;
use crate::pci::{Ecam, Function};
use crate::report::Report;
use crate::second_cpu::{SecondCpu, Table};
use crate::serial;
use crate::watchdog::{self, CONFIG, ENABLED, LOCK, PRELOAD_1, PRELOAD_2, RELOAD, RELOAD_NOW};

/// How long two CPUs are at a device.
const RACE_MS: u64 = 150;

const COM1: u16 = 0x3f8;
const SCRATCH: u16 = COM1 + 7;
/// Loopback and the divisor latch are among them.
const SERIAL_VALUES: [u8; 5] = [0, 0xff, 0x5a, 0x83, 0x10];

const RTC: u16 = 0x70;
const RTC_STATUS_D: u8 = 0x0d;
const RTC_VALID: u8 = 0x80;

const KEYBOARD_DATA: u16 = 0x60;
const KEYBOARD_COMMAND: u16 = 0x64;
/// From here on they pulse lines, one of which is that of the reset.
const KEYBOARD_PULSES: u8 = 0xf0;

const SCI_ENABLED: u16 = 1;
/// Of an event that does not exist.
const NO_EVENT: u8 = 0xf8;

/// The second CPU, and time.
pub struct Pair<'a> {
    second: SecondCpu,
    clock: &'a Clock,
}

impl<'a> Pair<'a> {
    /// Nothing on a machine of one CPU.
    pub fn of(acpi: &Acpi, clock: &'a Clock) -> Option<Self> {
        SecondCpu::of(acpi).map(|second| Self { second, clock })
    }

    /// Goes on with `round` while the second CPU writes what `table` says.
    pub fn race(&self, table: &Table, mut round: impl FnMut()) {
        let deadline = self.clock.after_ms(RACE_MS);
        let raced = self.second.writing(self.clock, table, || {
            while self.clock.now() < deadline {
                round();
            }
        });
        raced.expect("a second CPU that starts");
    }
}

/// Runs those on chips, watchdog and panic devices; that a line is printed is the proof, and that the
/// machine has not ended.
pub fn run(ecam: &Ecam, acpi: &Acpi, pair: &Pair<'_>, report: &mut Report) {
    let mut one = |name: &str, attack: &dyn Fn()| {
        let start = pair.clock.now();
        attack();
        let ms = pair.clock.ns_since(start) / 1_000_000;
        report.attack(true, format_args!("{name}: {Ignored} ms={ms}"));
    };
    one("chips serial-port-of-two-cpus", &|| serial_port(pair));
    one("chips clock-of-two-cpus", &|| rtc(pair));
    one("chips keyboard-controller-of-two-cpus", &|| keyboard(pair));
    one("chips power-management-of-two-cpus", &|| power(acpi, pair));
    if let Some((function, registers)) = watchdog::find(ecam) {
        one("i6300esb watchdog-of-two-cpus", &|| {
            guard(&function, &registers, pair);
        });
    }
    one("pvpanic panic-events-of-two-cpus", &|| no_panic(pair));
    if let Some(register) = panic_device::find(ecam) {
        one("pvpanic-pci panic-events-of-two-cpus", &|| {
            no_panic_by_pci(&register, pair);
        });
    }
}

/// All but the transmitter: the host's log keeps every byte.
fn serial_port(pair: &Pair<'_>) {
    let mut table = Table::new();
    for value in SERIAL_VALUES {
        for port in COM1 + 1..COM1 + 8 {
            table.add_port8(port, value);
        }
    }
    pair.race(&table, || {
        for value in SERIAL_VALUES {
            for port in COM1 + 1..COM1 + 8 {
                io::outb(port, value);
                io::inb(port);
            }
            io::inb(COM1);
        }
    });
    serial::initialise();
    io::outb(SCRATCH, 0x5a);
    assert_eq!(io::inb(SCRATCH), 0x5a);
}

/// Each CPU's index is where the other left its own.
fn rtc(pair: &Pair<'_>) {
    const INDICES: [u8; 9] = [0, 4, 0xa, 0xb, 0xc, RTC_STATUS_D, 0x32, 0x40, 0xff];
    let mut table = Table::new();
    for index in INDICES {
        table.add_port8(RTC, index);
        table.add_port8(RTC + 1, 0);
        table.add_port8(RTC + 1, 0xff);
        table.add_port32(RTC, u32::MAX);
    }
    pair.race(&table, || {
        for index in INDICES {
            io::outb(RTC, index);
            io::inb(RTC + 1);
            io::outb(RTC + 1, 0x55);
        }
    });
    io::outb(RTC, RTC_STATUS_D);
    assert_eq!(io::inb(RTC + 1), RTC_VALID);
}

fn keyboard(pair: &Pair<'_>) {
    let mut table = Table::new();
    for command in (0..KEYBOARD_PULSES).step_by(3) {
        table.add_port8(KEYBOARD_COMMAND, command);
        table.add_port8(KEYBOARD_DATA, !command);
    }
    pair.race(&table, || {
        for command in 0..KEYBOARD_PULSES {
            io::outb(KEYBOARD_COMMAND, command);
            io::inb(KEYBOARD_COMMAND);
            io::outb(KEYBOARD_DATA, command);
            io::inb(KEYBOARD_DATA);
        }
    });
    assert_eq!(io::inb(KEYBOARD_COMMAND), 0);
}

/// Status, timer and general events, and of the control register the half without the bit that puts the
/// machine to sleep.
fn power(acpi: &Acpi, pair: &Pair<'_>) {
    let Some(fadt) = acpi.fadt else { return };
    let Some(base) = fadt.pm1a_control.checked_sub(4) else {
        return;
    };
    let control = io::inw(fadt.pm1a_control);
    let rest = base + 8..base + 0x40;
    let mut table = Table::new();
    for value in [0, 0xff, 0x5a] {
        for port in [base, base + 1, base + 4].into_iter().chain(rest.clone()) {
            table.add_port8(port, value);
        }
    }
    pair.race(&table, || {
        for port in [base, base + 1, base + 4].into_iter().chain(rest.clone()) {
            io::outb(port, 0xa5);
            io::inb(port);
            io::inl(port);
        }
    });
    io::outw(fadt.pm1a_control, control);
    let now = io::inw(fadt.pm1a_control);
    assert_eq!(now & SCI_ENABLED, control & SCI_ENABLED);
}

/// With its longest times, so that it does not run out while it is armed.
fn guard(function: &Function, registers: &Registers, pair: &Pair<'_>) {
    let space = function.configuration();
    space.write16(CONFIG, 0);
    let mut table = Table::new();
    for preload in [PRELOAD_1, PRELOAD_2] {
        watchdog::unlock(registers);
        registers.write32(preload, u32::MAX);
        table.add(registers.place(RELOAD, 1), 0x80);
        table.add(registers.place(RELOAD, 1), 0x86);
        table.add(registers.place(preload, 4), u64::MAX);
        table.add(space.place(LOCK, 1), ENABLED.into());
        table.add(registers.place(RELOAD, 2), RELOAD_NOW.into());
        table.add(space.place(CONFIG, 2), 0);
        table.add(space.place(LOCK, 1), 0);
    }
    pair.race(&table, || {
        space.write8(LOCK, ENABLED);
        watchdog::unlock(registers);
        registers.write16(RELOAD, RELOAD_NOW);
        registers.read32(RELOAD);
        watchdog::unlock(registers);
        registers.write32(PRELOAD_2, u32::MAX);
        space.read8(LOCK);
        space.write8(LOCK, 0);
    });
    space.write8(LOCK, 0);
    assert_eq!(space.read8(LOCK) & ENABLED, 0);
}

fn no_panic(pair: &Pair<'_>) {
    let port = panic_device::PORT;
    let before = io::inb(port);
    let mut table = Table::new();
    table.add_port8(port, NO_EVENT);
    table.add_port32(port, 0xf8f8_f8f8);
    pair.race(&table, || {
        io::outb(port, NO_EVENT);
        io::outw(port, 0xf8f8);
        io::inb(port);
        io::inl(port);
    });
    assert_eq!(io::inb(port), before);
}

fn no_panic_by_pci(register: &Registers, pair: &Pair<'_>) {
    let before = register.read8(0);
    let mut table = Table::new();
    for bytes in [1, 2, 4, 8] {
        for offset in 0..4 {
            table.add(register.place(offset, bytes), 0xf8f8_f8f8_f8f8_f8f8);
        }
    }
    pair.race(&table, || {
        register.write8(0, NO_EVENT);
        register.read32(0);
    });
    assert_eq!(register.read8(0), before);
}

//! Watchdog and panic devices: registers written everywhere, short of what ends the machine.

use super::outcome::Outcome::Ignored;
use crate::clock::Clock;
use crate::io;
use crate::memory::Registers;
use crate::panic_device;
use crate::pci::{COMMAND, Ecam, Function};
use crate::report::Report;
use crate::watchdog::{self, CONFIG, ENABLED, LOCK, PRELOAD_1, PRELOAD_2, RELOAD, RELOAD_NOW};

const STORM: usize = 500;
const HEADER_BYTES: usize = 256;
const VALUES: [u64; 4] = [0, u64::MAX, 0x5555_5555_5555_5555, 0xaaaa_aaaa_aaaa_aaaa];
const MEMORY_ON: u16 = 1 << 1;
/// Bits of the panic devices' register that mean nothing.
const NO_EVENT: u64 = 0xf8f8_f8f8_f8f8_f8f8;

/// Runs what there are devices for; that the lines are printed is the proof, and that the machine has not
/// ended.
pub fn run(ecam: &Ecam, clock: &Clock, report: &mut Report) {
    let mut one = |name: &str, attack: &dyn Fn()| {
        let start = clock.now();
        attack();
        let ms = clock.ns_since(start) / 1_000_000;
        report.attack(true, format_args!("{name}: {Ignored} ms={ms}"));
    };
    if let Some((function, registers)) = watchdog::find(ecam) {
        one("i6300esb watchdog-written-everywhere", &|| {
            written_everywhere(&registers);
        });
        one(
            "i6300esb watchdog-configuration-written-everywhere",
            &|| {
                configuration(&function);
            },
        );
        one("i6300esb watchdog-armed-and-disarmed", &|| {
            armed_and_disarmed(&function, &registers);
        });
    }
    one("pvpanic panic-events-that-do-not-exist", &no_panic);
    if let Some(register) = panic_device::find(ecam) {
        one("pvpanic-pci panic-events-that-do-not-exist", &|| {
            no_panic_by_pci(&register);
        });
    }
}

/// Of every size at every offset, locked and unlocked.
fn written_everywhere(registers: &Registers) {
    for value in VALUES {
        for bytes in [1, 2, 4, 8] {
            let ends = registers.bytes() - 16..registers.bytes();
            for offset in (0..0x40).chain(ends) {
                watchdog::unlock(registers);
                registers.poke(offset, bytes, value);
                registers.poke(offset, bytes, value);
                registers.peek(offset, bytes);
            }
        }
    }
}

/// All but the register that arms it, and locks that until the next reset.
fn configuration(function: &Function) {
    let space = function.configuration();
    let command = space.read16(COMMAND);
    let bar = space.read32(crate::pci::BAR0);
    for value in VALUES {
        for bytes in [1, 2, 4] {
            for offset in (0..HEADER_BYTES).step_by(bytes) {
                if !(offset..offset + bytes).contains(&LOCK) {
                    space.poke(offset, bytes, value);
                }
                space.peek(offset, bytes);
            }
        }
    }
    space.write32(crate::pci::BAR0, bar);
    space.write16(COMMAND, command | MEMORY_ON);
}

/// With its longest times, by every order of arming, reloading and disarming.
fn armed_and_disarmed(function: &Function, registers: &Registers) {
    let space = function.configuration();
    space.write16(CONFIG, 0);
    for preload in [PRELOAD_1, PRELOAD_2] {
        watchdog::unlock(registers);
        registers.write32(preload, u32::MAX);
    }
    for round in 0..STORM {
        space.write8(LOCK, ENABLED);
        watchdog::unlock(registers);
        registers.write16(RELOAD, RELOAD_NOW);
        if round % 3 == 0 {
            // Shorter times count from the next start of a stage on.
            watchdog::unlock(registers);
            registers.write32(PRELOAD_1, u32::MAX);
        }
        space.write8(LOCK, 0);
    }
}

fn no_panic() {
    let port = panic_device::PORT;
    for _ in 0..STORM {
        io::outb(port, 0xf8);
        io::outw(port, 0xf8f8);
        io::outl(port, 0xf8f8_f8f8);
        io::inb(port);
        io::inw(port);
        io::inl(port);
    }
}

fn no_panic_by_pci(register: &Registers) {
    for bytes in [1, 2, 4, 8] {
        let ends = register.bytes() - 16..register.bytes();
        for offset in (0..64).chain(ends) {
            register.poke(offset, bytes, NO_EVENT);
            register.peek(offset, bytes);
        }
    }
}

//! The i6300esb watchdog, driven as Linux does (`drivers/watchdog/i6300esb.c`), and left alone.

use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::memory::Registers;
use crate::pci::{Ecam, Function};
use crate::serial::console_line;
use crate::{io, power};

const IDS: (u16, u16) = (0x8086, 0x25ab);
/// In configuration space.
pub(crate) const CONFIG: usize = 0x60;
pub(crate) const LOCK: usize = 0x68;
const NO_INTERRUPT: u16 = 3;
pub(crate) const ENABLED: u8 = 1 << 1;
/// In the BAR.
pub(crate) const PRELOAD_1: usize = 0x00;
pub(crate) const PRELOAD_2: usize = 0x04;
pub(crate) const RELOAD: usize = 0x0c;
pub(crate) const RELOAD_NOW: u16 = 1 << 8;
const TIMED_OUT: u16 = 1 << 9;

const POWER_BUTTON: u16 = 1 << 8;
/// How often the power button is looked at.
const POLL_MS: u64 = 10;

/// Arms the watchdog with its shortest times and waits for what comes of it: the power button, which is
/// obeyed, or something that this guest does not learn of. A guest that finds that the watchdog ran out
/// before switches the power off.
pub fn run(acpi: Option<&Acpi>, clock: &Clock) -> ! {
    let ecam = acpi.and_then(|acpi| Ecam::map(acpi.ecam.as_ref()?));
    let found = acpi.zip(ecam.as_ref().and_then(find));
    let Some((acpi, (function, registers))) = found else {
        console_line!("TESTGUEST watchdog FAIL error=\"no i6300esb\"");
        power::off()
    };
    if registers.read16(RELOAD) & TIMED_OUT != 0 {
        unlock(&registers);
        registers.write16(RELOAD, TIMED_OUT | RELOAD_NOW);
        let kept = registers.read16(RELOAD) & TIMED_OUT != 0;
        console_line!("TESTGUEST watchdog ok timed_out=1 kept={}", u8::from(kept));
        power::off()
    }
    probe(&function, &registers);
    arm(&function, &registers);
    console_line!("TESTGUEST watchdog armed pci={function}");
    obey_button(acpi, clock)
}

/// Waits for the power button, and switches the power off then.
pub fn wait_for_button(acpi: Option<&Acpi>, clock: &Clock) -> ! {
    let Some(acpi) = acpi else {
        console_line!("TESTGUEST button FAIL error=\"no ACPI\"");
        power::off()
    };
    console_line!("TESTGUEST button awaited");
    obey_button(acpi, clock)
}

fn obey_button(acpi: &Acpi, clock: &Clock) -> ! {
    loop {
        if button_is_pressed(acpi) {
            console_line!("TESTGUEST power-button ok");
            power::off()
        }
        clock.sleep_until(clock.after_ms(POLL_MS));
    }
}

/// The watchdog and its registers, switched on.
pub(crate) fn find(ecam: &Ecam) -> Option<(Function, Registers)> {
    let function = ecam.find(IDS)?;
    let registers = Registers::map(function.bar_address(0)?, 0x1000)?;
    function.enable();
    Some((function, registers))
}

/// Accesses of widths and places that no register has, while the watchdog is off.
fn probe(function: &Function, registers: &Registers) {
    let configuration = function.configuration();
    for offset in 0x5e..0x6c {
        configuration.write8(offset, 0);
        configuration.read8(offset);
    }
    configuration.write32(CONFIG, 0xffff_fff8);
    for offset in 0..0x18 {
        registers.write8(offset, 0xff);
        registers.write16(offset, 0xffff);
        registers.write32(offset, 0xffff_ffff);
        registers.read32(offset);
    }
    registers.write32(0xffc, 0);
}

fn arm(function: &Function, registers: &Registers) {
    let configuration = function.configuration();
    configuration.write8(LOCK, 0);
    configuration.write16(CONFIG, NO_INTERRUPT);
    for preload in [PRELOAD_1, PRELOAD_2] {
        unlock(registers);
        registers.write32(preload, 0);
    }
    unlock(registers);
    registers.write16(RELOAD, RELOAD_NOW);
    configuration.write8(LOCK, ENABLED);
}

pub(crate) fn unlock(registers: &Registers) {
    registers.write8(RELOAD, 0x80);
    registers.write8(RELOAD, 0x86);
}

fn button_is_pressed(acpi: &Acpi) -> bool {
    let port = acpi.fadt.map_or(0, |fadt| fadt.pm1a_event);
    port != 0 && io::inw(port) & POWER_BUTTON != 0
}

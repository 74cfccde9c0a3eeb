//! The ends of a machine: power off, reset, triple fault.

use core::arch::asm;

use crate::serial::console_line;
use crate::{acpi, io, trap};

/// PM1 control register (ACPI 6.5, 4.8.3.2.1).
const SCI_EN: u16 = 1;
const SLP_EN: u16 = 1 << 13;
const SLP_TYP_SHIFT: u32 = 10;
const SLP_TYP_MASK: u16 = 7 << SLP_TYP_SHIFT;

/// The chipset's reset control register: full reset.
const RESET_CONTROL: u16 = 0xcf9;
const RESET_ARM: u8 = 0x02;
const RESET_FULL: u8 = 0x06;
const KEYBOARD_COMMAND: u16 = 0x64;
const KEYBOARD_PULSE_RESET: u8 = 0xfe;

/// Reads of a port that give a slow VMM time to act on what was written.
const GRACE_READS: u32 = 20_000;

/// Switches ACPI mode on where firmware has not (4.8.2.5).
pub fn enter_acpi_mode(fadt: &testguest_lib::tables::Fadt) {
    if fadt.smi_command == 0 || fadt.acpi_enable == 0 || fadt.pm1a_control == 0 {
        return;
    }
    if io::inw(fadt.pm1a_control) & SCI_EN == 0 {
        io::outb(fadt.smi_command, fadt.acpi_enable);
    }
}

/// S5 through PM1a_CNT; the machine's end. Without ACPI, or if the machine ignores it, says so and
/// sleeps for ever.
pub fn off() -> ! {
    if let Some((port, sleep_type)) = acpi::power_registers() {
        for sleep_type in [sleep_type, 0] {
            let kept = io::inw(port) & !(SLP_TYP_MASK | SLP_EN);
            let typed = kept | u16::from(sleep_type) << SLP_TYP_SHIFT & SLP_TYP_MASK;
            io::outw(port, typed);
            io::outw(port, typed | SLP_EN);
            wait_a_little();
        }
        console_line!("TESTGUEST poweroff FAIL error=\"PM1a_CNT at {port:#x} was ignored\"");
    } else {
        console_line!("TESTGUEST poweroff FAIL error=\"no PM1a_CNT\"");
    }
    sleep_for_ever()
}

/// Resets the machine: the FADT's reset register, the chipset's, the keyboard controller's.
pub fn reset(register: Option<(u16, u8)>) -> ! {
    if let Some((port, value)) = register {
        io::outb(port, value);
        wait_a_little();
    }
    io::outb(RESET_CONTROL, RESET_ARM);
    io::outb(RESET_CONTROL, RESET_FULL);
    wait_a_little();
    io::outb(KEYBOARD_COMMAND, KEYBOARD_PULSE_RESET);
    wait_a_little();
    console_line!("TESTGUEST reboot FAIL error=\"no reset register worked\"");
    triple_fault()
}

/// Shuts the CPU down by an exception that nobody can take.
pub fn triple_fault() -> ! {
    trap::remove_all_gates();
    loop {
        // SAFETY: ends this machine, which is what is asked for.
        unsafe { asm!("ud2") };
    }
}

/// Sleeps; costs no CPU time as long as nothing interrupts.
pub fn sleep_for_ever() -> ! {
    trap::disable_interrupts();
    loop {
        trap::wait_for_interrupt();
    }
}

fn wait_a_little() {
    for _ in 0..GRACE_READS {
        io::inb(0x80);
    }
}

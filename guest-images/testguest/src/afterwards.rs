//! What the guest does when its tests are over.

use testguest_lib::command_line::{Afterwards, Settings};

use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::console_lines::ConsoleLines;
use crate::panic_device::{self, PanicRegister};
use crate::pci::Ecam;
use crate::serial::console_line;
use crate::virtio::{net, numbers};
use crate::{attack, generation, power, virtio, watchdog};

/// How often the console is looked at for input while there is none.
const ECHO_POLL_MS: u64 = 10;

/// Does what the command line asks for; the machine's end, or for ever.
pub fn run(settings: &Settings, clock: &Clock, acpi: Option<&Acpi>) -> ! {
    match settings.afterwards {
        Afterwards::PowerOff => power::off(),
        Afterwards::Idle => {
            console_line!("TESTGUEST idle");
            power::sleep_for_ever()
        }
        Afterwards::Tick => tick(settings, clock),
        Afterwards::Button => watchdog::wait_for_button(acpi, clock),
        Afterwards::Echo => echo(clock),
        Afterwards::Frames => net::frames::run(acpi, clock, settings),
        Afterwards::Reboot => {
            console_line!("TESTGUEST reboot");
            let register = acpi.and_then(|acpi| acpi.fadt?.reset);
            power::reset(register)
        }
        Afterwards::Panic => {
            console_line!("TESTGUEST triple-fault");
            power::triple_fault()
        }
        Afterwards::Watchdog => watchdog::run(acpi, clock),
        Afterwards::Generation => generation::run(acpi, clock),
        Afterwards::Detach => {
            detach(acpi);
            tick(settings, clock)
        }
        Afterwards::Storm => attack::storm(acpi, clock),
        Afterwards::Numbers => numbers::run(acpi, clock, settings),
        Afterwards::PvpanicPort => panic_device::run(acpi, PanicRegister::Port, settings.pvpanic),
        Afterwards::PvpanicPci => panic_device::run(acpi, PanicRegister::Pci, settings.pvpanic),
    }
}

/// Takes from all virtio devices the right to access memory, as a kernel does that starts another one, and
/// prints their status before and after.
fn detach(acpi: Option<&Acpi>) {
    let Some(bus) = acpi.and_then(|acpi| Ecam::map(acpi.ecam.as_ref()?)) else {
        return console_line!("TESTGUEST detach without PCI");
    };
    bus.for_each(|function| {
        let Some(status) = virtio::status(&function) else {
            return;
        };
        console_line!("TESTGUEST detach {function} status={status}");
        function.forbid_memory_access();
        let status = virtio::status(&function).unwrap_or(0);
        console_line!("TESTGUEST detached {function} status={status}");
    });
}

/// Counts on the console. Each deadline follows from the first, so that lines do not drift; after
/// a pause of the whole machine the missed ones come at once.
fn tick(settings: &Settings, clock: &Clock) -> ! {
    let start = clock.now();
    let mut count: u64 = 0;
    while settings.ticks == 0 || count < settings.ticks {
        count += 1;
        clock.sleep_until(start.plus_ms(count.saturating_mul(settings.tick_ms)));
        console_line!(
            "TESTGUEST tick count={count} ms={}",
            clock.ns_since(start) / 1_000_000
        );
    }
    power::off()
}

/// Answers each received line, and switches the power off after `poweroff`.
fn echo(clock: &Clock) -> ! {
    console_line!("TESTGUEST echo");
    let mut lines = ConsoleLines::new();
    loop {
        let answer = |text: &str| {
            console_line!("TESTGUEST echo line=\"{text}\"");
            if text == "poweroff" {
                power::off();
            }
        };
        if !lines.poll(answer) {
            clock.sleep_until(clock.after_ms(ECHO_POLL_MS));
        }
    }
}

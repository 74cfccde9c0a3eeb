//! The generation id (VMGenID): read, and read again when the machine tells that it is another.

use core::fmt;

use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::memory::Registers;
use crate::serial::console_line;
use crate::{io, power};

const ID_BYTES: usize = 16;
const POLL_MS: u64 = 10;

/// Prints the id, waits for the event that tells of another, prints that and switches the power off.
pub fn run(acpi: Option<&Acpi>, clock: &Clock) -> ! {
    let found = acpi.and_then(|acpi| {
        let address = acpi.generation_id?;
        let id = Registers::map(address, ID_BYTES as u64)?;
        Some((acpi.fadt?.gpe0, address, id))
    });
    let Some(((block, bytes), address, id)) = found else {
        console_line!("TESTGUEST generation FAIL error=\"no generation id\"");
        power::off()
    };
    let half = u16::from(bytes / 2);
    // What happened before is of no concern.
    for port in block..block + half {
        io::outb(port, 0xff);
    }
    console_line!("TESTGUEST generation ok at={address:#x} id={}", Hex(&id));
    loop {
        if (block..block + half).any(|port| io::inb(port) != 0) {
            console_line!("TESTGUEST generation-changed ok id={}", Hex(&id));
            power::off()
        }
        clock.sleep_until(clock.after_ms(POLL_MS));
    }
}

struct Hex<'a>(&'a Registers);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (0..ID_BYTES).try_for_each(|at| write!(f, "{:02x}", self.0.read8(at)))
    }
}

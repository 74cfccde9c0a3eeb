//! The end of a guest that made a mistake.

use crate::power;
use crate::serial::console_line;

/// Where an exception continues, at CPL 3 and with interrupts off. Powers off: whoever waits for
/// this guest learns of the failure at once.
#[unsafe(no_mangle)]
extern "C" fn exception_report(
    vector: u64,
    error: u64,
    rip: u64,
    cr2: u64,
    cs: u64,
    rsp: u64,
) -> ! {
    console_line!(
        "TESTGUEST exception FAIL vector={vector} error={error:#x} rip={rip:#x} cr2={cr2:#x} cpl={} rsp={rsp:#x}",
        cs & 3
    );
    power::off()
}

//! A guest without an operating system. It looks at the machine from the inside (ACPI, PCI,
//! virtio), reports on the serial console and switches the power off. See `README.md`.
//!
//! `entry` comes in by PVH or by the 64-bit Linux protocol and drops to CPL 3, where everything
//! in Rust runs.
#![no_std]
#![no_main]

mod acpi;
mod afterwards;
mod attack;
mod boot;
mod builtins;
mod clock;
mod console_lines;
mod device_tests;
mod entry;
mod exception;
mod generation;
mod io;
mod lapic;
mod memory;
mod panic_device;
mod pci;
mod power;
mod report;
mod second_cpu;
mod serial;
mod trap;
mod virtio;
mod watchdog;

use core::panic::PanicInfo;

use testguest_lib::command_line::Settings;

use acpi::Acpi;
use boot::BootInformation;
use clock::Clock;
use lapic::Lapic;
use report::Report;
use serial::console_line;

/// When the timer goes off in the test of the CPU.
const TIMER_TEST_MS: u64 = 5;
/// How late it may be while the CPU runs.
const TIMER_PATIENCE_MS: u64 = 1_000;

/// Where `entry.rs` continues at CPL 3: the boot protocol, its information, and whether the local
/// APIC is in x2APIC mode.
#[unsafe(no_mangle)]
extern "C" fn payload_main(protocol: u64, information: u64, x2apic: u64) -> ! {
    trap::install();
    serial::initialise();
    let boot = boot::information(protocol, information);
    // Firmware may have left the cursor in the middle of a line.
    console_line!(
        "\nTESTGUEST start protocol={} cmdline=\"{}\"",
        boot.protocol,
        boot.command_line
    );
    let mut report = Report::default();
    let settings = Settings::parse(boot.command_line, |word| {
        report.fail("cmdline", format_args!("bad value: {word}"));
    });

    let acpi = read_acpi(&boot, &mut report);
    let fadt = acpi.as_ref().and_then(|acpi| acpi.fadt);
    let Some(lapic) = Lapic::enable(x2apic != 0) else {
        report.fail("cpu", "no local APIC");
        report.done();
        power::off();
    };
    let clock = Clock::calibrate(lapic, fadt.as_ref());
    trap::enable_interrupts();
    test_timer(&clock, &mut report);
    if let Some(acpi) = &acpi {
        attack::run(acpi, &clock, settings.attacks, &mut report);
        device_tests::run(acpi, &clock, &settings, &mut report);
        virtio::load::run(acpi, &clock, &settings, &mut report);
    }
    report.done();
    afterwards::run(&settings, &clock, acpi.as_ref())
}

fn read_acpi(boot: &BootInformation, report: &mut Report) -> Option<Acpi> {
    let Some(acpi) = acpi::read(boot.rsdp) else {
        report.fail("acpi", "no usable RSDP or root table");
        return None;
    };
    acpi::publish_power_registers(&acpi);
    if acpi.bad_checksums > 0 {
        report.fail(
            "acpi",
            format_args!("{} tables with a wrong checksum", acpi.bad_checksums),
        );
        return Some(acpi);
    }
    let fadt = acpi.fadt.unwrap_or_default();
    if fadt.pm1a_control == 0 {
        report.fail("acpi", "no PM1a_CNT in the FADT");
        return Some(acpi);
    }
    power::enter_acpi_mode(&fadt);
    report.ok(
        "acpi",
        format_args!(
            "rsdp={:#x} tables={} cpus={} ecam={:#x} pm1a_cnt={:#x} s5={} s5_from={} pm_timer={:#x}",
            acpi.rsdp,
            acpi.tables,
            acpi.cpus,
            acpi.ecam.map_or(0, |window| window.base),
            fadt.pm1a_control,
            acpi.sleep_type(),
            if acpi.s5_sleep_type.is_some() { "dsdt" } else { "default" },
            fadt.pm_timer,
        ),
    );
    Some(acpi)
}

/// Has the local APIC's timer interrupt the payload once while it sleeps and once while it runs.
fn test_timer(clock: &Clock, report: &mut Report) {
    let start = clock.now();
    clock.sleep_through_timer(TIMER_TEST_MS);
    let slept_us = clock.ns_since(start) / 1000;
    let start = clock.now();
    if !clock.run_until_timer(TIMER_TEST_MS, TIMER_PATIENCE_MS) {
        report.fail("cpu", "no timer interrupt reaches a running CPU");
        return;
    }
    report.ok(
        "cpu",
        format_args!(
            "apic={} tsc_khz={} clock={} slept_us={slept_us} ran_us={}",
            clock.lapic().name(),
            clock.tsc_khz(),
            clock.reference(),
            clock.ns_since(start) / 1000,
        ),
    );
}

#[panic_handler]
fn panic(info: &PanicInfo<'_>) -> ! {
    console_line!(
        "TESTGUEST panic FAIL error=\"{}\" at={:?}",
        info.message(),
        info.location()
    );
    power::off()
}

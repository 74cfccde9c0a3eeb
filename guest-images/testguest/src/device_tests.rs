//! Finds the devices, tests each, and puts what came out into result lines.

use core::fmt;

use testguest_lib::command_line::{Mode, Settings};

use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::pci::{Ecam, Function};
use crate::report::{Mac, PaddedText, Report};
use crate::virtio::{self, DeviceError, Kind, balloon, blk, console, net, rng, vsock};

const KINDS: [Kind; 6] = [
    Kind::Blk,
    Kind::Net,
    Kind::Rng,
    Kind::Console,
    Kind::Balloon,
    Kind::Vsock,
];

/// Runs the tests that `settings` ask for on every device there is.
pub fn run(acpi: &Acpi, clock: &Clock, settings: &Settings, report: &mut Report) {
    let Some(ecam) = acpi.ecam.as_ref().and_then(Ecam::map) else {
        report.fail("pci", "no ECAM window in an MCFG");
        return;
    };
    let mut functions = 0;
    let mut devices = [0u32; KINDS.len()];
    ecam.for_each(|function| {
        functions += 1;
        if let Some(index) = virtio::kind(&function).and_then(position) {
            devices[index] += 1;
        }
    });
    let [blk, net, rng, console, balloon, vsock] = devices;
    report.ok(
        "pci",
        format_args!(
            "functions={functions} blk={blk} net={net} rng={rng} console={console} balloon={balloon} vsock={vsock}"
        ),
    );
    ecam.for_each(|function| {
        if let Some(kind) = virtio::kind(&function).filter(|kind| wanted(*kind, settings)) {
            test(kind, &function, clock, settings, report);
        }
    });
    for (kind, count) in KINDS.into_iter().zip(devices) {
        if count == 0 && wanted(kind, settings) {
            report.skip(kind, "no such device");
        }
    }
}

fn position(kind: Kind) -> Option<usize> {
    KINDS.iter().position(|known| *known == kind)
}

fn wanted(kind: Kind, settings: &Settings) -> bool {
    match kind {
        Kind::Net => settings.net,
        Kind::Blk => settings.blk,
        Kind::Rng => settings.rng,
        Kind::Console => settings.console,
        Kind::Balloon => settings.balloon,
        Kind::Vsock => settings.vsock,
    }
}

fn test(kind: Kind, function: &Function, clock: &Clock, settings: &Settings, report: &mut Report) {
    let start = clock.now();
    let outcome = match kind {
        Kind::Blk => blk::test(function, clock, settings.mode, settings.blk_kib).map(Summary::Blk),
        Kind::Net => net::test(function, clock, settings).map(Summary::Net),
        Kind::Rng => rng::test(function, clock, settings.mode).map(Summary::Rng),
        Kind::Console => console::test(function, clock, settings).map(Summary::Console),
        Kind::Balloon => balloon::test(function, clock, settings.mode).map(Summary::Balloon),
        Kind::Vsock => vsock::test(function, clock, settings).map(Summary::Vsock),
    };
    let us = clock.ns_since(start) / 1000;
    match outcome {
        Ok(summary) => {
            let mode = mode_name(settings.mode);
            let registers = virtio::registers_address(function);
            report.ok(
                kind,
                format_args!(
                    "pci={function} registers={registers:#x} mode={mode} us={us} {summary}"
                ),
            );
        }
        Err(error) => report.fail(kind, Located { function, error }),
    }
}

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Irq => "irq",
        Mode::Poll => "poll",
    }
}

struct Located<'a> {
    function: &'a Function,
    error: DeviceError,
}

impl fmt::Display for Located<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pci {}: {}", self.function, self.error)
    }
}

enum Summary {
    Blk(blk::BlkSummary),
    Net(net::NetSummary),
    Rng(rng::RngSummary),
    Console(console::ConsoleSummary),
    Balloon(balloon::BalloonSummary),
    Vsock(vsock::VsockSummary),
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Blk(blk) => write!(
                f,
                "capacity_bytes={} id=\"{}\" verified_bytes={} read_only={} flush={} irqs={}",
                blk.capacity_bytes,
                PaddedText(&blk.id),
                blk.verified_bytes,
                blk.read_only,
                blk.flush,
                blk.irqs,
            ),
            Self::Net(net) => write!(
                f,
                "mac={} frames={} retries={} merged={} irqs={}",
                Mac(net.mac),
                net.frames,
                net.retries,
                net.merged,
                net.irqs,
            ),
            Self::Rng(rng) => write!(f, "bytes={} irqs={}", rng.bytes, rng.irqs),
            Self::Console(console) => console.fmt(f),
            Self::Balloon(balloon) => write!(
                f,
                "inflated_bytes={} reported_bytes={} stats_reports={} irqs={}",
                balloon.inflated_bytes, balloon.reported_bytes, balloon.stats_reports, balloon.irqs,
            ),
            Self::Vsock(vsock) => write!(f, "{vsock}"),
        }
    }
}

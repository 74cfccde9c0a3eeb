//! Attack mode: what a driver without scruples does to each device, case by case. After each case the
//! device is reset and has to serve one honest request. See `docs/hostile-guest.md`.

mod balloon;
mod bars;
mod blk;
mod bridges;
mod case;
mod chips;
mod configuration;
mod console;
mod execute;
mod guards;
mod honest;
mod msix;
mod net;
mod outcome;
mod races;
mod registers;
mod requests;
mod rings;
mod rng;
mod storms;
mod tables;
mod two_cpus;
mod victim;
mod vsock;

use testguest_lib::command_line::{Attack, Attacks};

use crate::acpi::Acpi;
use crate::clock::Clock;
use crate::pci::{Ecam, Function};
use crate::report::Report;
use crate::virtio::{self, Kind};
use case::Case;
use outcome::Outcome;
pub use races::storm;
use victim::{Memory, Victim};

/// Runs what is asked for on all devices there are.
pub fn run(acpi: &Acpi, clock: &Clock, attacks: Attacks, report: &mut Report) {
    if attacks == Attacks::default() {
        return;
    }
    let ecam = acpi.ecam.as_ref().and_then(Ecam::map);
    let (Some(ecam), Some(memory)) = (ecam, Memory::new(acpi)) else {
        report.fail("attack", "no ECAM window or no memory");
        return;
    };
    ecam.for_each(|function| {
        let kind = virtio::kind(&function).filter(|kind| attacks.contain(attack_on(*kind)));
        if let Some(kind) = kind {
            let by_vhost = kind == Kind::Net && attacks.contain(Attack::Vhost);
            attack((kind, by_vhost), &function, clock, &memory, report);
        }
    });
    let pair = two_cpus::Pair::of(acpi, clock);
    if attacks.contain(Attack::Chips) {
        chips::run(&ecam, acpi, clock, report);
        guards::run(&ecam, clock, report);
        if let Some(pair) = &pair {
            two_cpus::run(&ecam, acpi, pair, report);
        }
    }
    if attacks.contain(Attack::Bridges) {
        bridges::run(&ecam, clock, pair.as_ref(), report);
    }
    if attacks.contain(Attack::Execute) {
        execute::run(&ecam);
    }
}

fn attack_on(kind: Kind) -> Attack {
    match kind {
        Kind::Net => Attack::Net,
        Kind::Blk => Attack::Blk,
        Kind::Rng => Attack::Rng,
        Kind::Console => Attack::Console,
        Kind::Balloon => Attack::Balloon,
        Kind::Vsock => Attack::Vsock,
    }
}

fn attack(
    (kind, by_vhost): (Kind, bool),
    function: &Function,
    clock: &Clock,
    memory: &Memory,
    report: &mut Report,
) {
    let mut victim = match Victim::open(kind, function, clock, memory) {
        Ok(victim) => victim,
        Err(error) => return report.fail("attack", error),
    };
    let expected = |case: &Case| {
        let mut otherwise = net::BY_VHOST.iter().filter(|_| by_vhost);
        let otherwise = otherwise.find(|(name, _)| *name == case.name);
        otherwise.map_or(case.expected, |(_, expected)| expected)
    };
    let own: &[Case] = match kind {
        Kind::Blk => blk::CASES,
        Kind::Net => net::CASES,
        Kind::Console => console::CASES,
        Kind::Balloon => balloon::CASES,
        Kind::Vsock => vsock::CASES,
        Kind::Rng => rng::CASES,
    };
    let of_two_cpus = memory.second_cpu.map_or(&[][..], |_| races::CASES);
    let common = [
        tables::CASES,
        rings::CASES,
        requests::CASES,
        registers::CASES,
        configuration::CASES,
        msix::CASES,
        bars::CASES,
        storms::CASES,
        of_two_cpus,
    ];
    for case in common.into_iter().flatten().chain(own) {
        one(case, expected(case), &mut victim, report);
    }
    leave_broken(&mut victim, report);
}

/// Runs a case on the device as a driver leaves it that has set it up, then sees to it that it can be
/// set up again.
fn one(case: &Case, expected: &[Outcome], victim: &mut Victim<'_>, report: &mut Report) {
    let (kind, name) = (victim.kind, case.name);
    let start = victim.clock.now();
    let outcome = victim
        .start()
        .and_then(|()| {
            victim.is_patient = !expected.contains(&Outcome::Ignored);
            match (case.run)(victim) {
                // It gave up before the end of a case that it might have served.
                Err(_) if victim.needs_reset() && expected.contains(&Outcome::NeedsReset) => {
                    Ok(Outcome::NeedsReset)
                }
                done => done,
            }
        })
        .and_then(|outcome| {
            victim.start()?;
            honest::request(victim)?;
            Ok(outcome)
        });
    let ms = victim.clock.ns_since(start) / 1_000_000;
    match outcome {
        Ok(outcome) => {
            let as_expected = expected.contains(&outcome);
            let mark = if as_expected { "" } else { " FAIL" };
            report.attack(
                as_expected,
                format_args!("{kind} {name}: {outcome}{mark} ms={ms}"),
            );
        }
        Err(error) => report.attack(
            false,
            format_args!("{kind} {name}: FAIL error=\"{error}\" ms={ms}"),
        ),
    }
}

/// The last case has no reset behind it: what a guest that gave up leaves must cost the host nothing.
fn leave_broken(victim: &mut Victim<'_>, report: &mut Report) {
    let outcome = victim.start().and_then(|()| {
        victim.is_patient = true;
        rings::jump(victim, victim.main_queue(), 0x8000)
    });
    match outcome {
        Ok(outcome) => {
            let broken = outcome == Outcome::NeedsReset;
            let mark = if broken { "" } else { " FAIL" };
            let kind = victim.kind;
            report.attack(broken, format_args!("{kind} left-broken: {outcome}{mark}"));
        }
        Err(error) => report.fail("attack", error),
    }
}

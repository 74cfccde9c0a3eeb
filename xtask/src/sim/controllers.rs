//! The controllers of machines and of replica sets, whose properties are tests of their crate, over many seeds.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, ensure};

use crate::test::list::{self, Test};

/// The crate, and the files of its tests.
const PACKAGE: &str = "agent-controllers";
const FILES: [&str; 2] = ["virtual_machines", "replica_sets"];

/// Properties, which take seeds of [`VARIABLE`].
const PROPERTIES: [&str; 4] = [
    "whatever_fails_no_start_is_unasked_and_no_stop_is_lost",
    "what_was_asked_for_last_is_so_in_the_end",
    "never_more_replicas_than_wanted_and_none_is_killed_whatever_fails",
    "a_set_comes_to_what_was_wanted_last_whatever_was_wanted_before",
];
const VARIABLE: &str = "KVMLET_SEEDS";

/// Seeds that are tried before anything is printed.
const SLICE: u64 = 5_000;

/// Tries each property with `count` seeds from `seed` on.
///
/// # Errors
/// The first seed with which one does not hold.
pub(super) fn campaign(root: &Path, seed: u64, count: u64) -> anyhow::Result<()> {
    let tests = list::of_package(root, PACKAGE, &FILES)?;
    for property in PROPERTIES {
        let found = tests.iter().find(|test| test.function == property);
        let test = found.with_context(|| format!("{PACKAGE} has no test {property}"))?;
        let (mut from, end) = (seed, seed.saturating_add(count));
        while from < end {
            let to = from.saturating_add(SLICE).min(end);
            slice(test, from, to)?;
            println!("{property}: seeds {seed} to {to}");
            from = to;
        }
    }
    println!(
        "{count} schedules of each of {} properties of controllers from seed {seed} on",
        PROPERTIES.len()
    );
    Ok(())
}

/// Tries seeds on all processors at once.
fn slice(test: &Test, from: u64, to: u64) -> anyhow::Result<()> {
    let processors = thread::available_parallelism()?.get() as u64;
    let share = (to - from).div_ceil(processors).max(1);
    let mut begun = Vec::new();
    let mut first = from;
    while first < to {
        let last = first.saturating_add(share).min(to);
        begun.push((first, last, start(test, first, last)?));
        first = last;
    }
    // All of them, so that none goes on when another has failed.
    let ended = begun.into_iter().map(|(first, last, child)| {
        let output = child.wait_with_output()?;
        Ok((first, last, output))
    });
    let ended: Vec<std::io::Result<_>> = ended.collect();
    for outcome in ended {
        let (first, last, output) = outcome?;
        let (status, said) = (output.status, String::from_utf8_lossy(&output.stdout));
        ensure!(
            status.success(),
            "{} with {VARIABLE}={first}..{last}: {status}\n{said}",
            test.program.display()
        );
    }
    Ok(())
}

fn start(test: &Test, from: u64, to: u64) -> anyhow::Result<Child> {
    Command::new(&test.program)
        .current_dir(&test.directory)
        .args(["--exact", &test.function])
        .env(VARIABLE, format!("{from}..{to}"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("{} does not start", test.program.display()))
}

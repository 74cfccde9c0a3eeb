//! `cargo xtask bench io`: 4 KiB random reads by a guest, and by io_uring without one, of the same
//! file in the same run, in turn.
//!
//! The guest is `testguest` on this machine's own KVM with one vCPU and one queue. The ring without a
//! guest is the one that disks use, with the same flags.

mod place;
mod table;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use integration::disk_load::{self, Done, Learning, Load};
use integration::event_count::{self, EventCount, SYSTEM_CALLS};
use integration::raw_io::{Access, RawIo};
use integration::skip;

use super::figure;
use crate::progress::step;
use place::TestFile;
use table::{Row, as_f64};

const BLOCK_BYTES: u32 = 4096;
const DEPTHS: [u32; 2] = [1, 32];
/// So many requests are counted, one by one in flight and many.
const COUNTED: [u32; 2] = [20_000, 100_000];
/// Counted requests take no longer.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long and how often.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct IoOptions {
    /// Rounds, in each of which everything is measured once.
    #[arg(long, default_value_t = 5)]
    rounds: u32,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 1000)]
    ms: u32,
}

/// Measures and prints.
///
/// # Errors
/// When something cannot be built or measured.
pub fn run(root: &Path, options: IoOptions, json: Option<PathBuf>) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_kvm() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let places = step("files", place::all)?;
    let mut rows = rows(&places);
    for round in 0..options.rounds {
        let name = format!("round {} of {}", round + 1, options.rounds);
        step(&name, || {
            let time = Duration::from_millis(options.ms.into());
            rows.iter_mut()
                .try_for_each(|row| measure(row, time, round % 2 == 1))
        })?;
    }
    match event_count::missing() {
        Some(reason) => eprintln!("exits and system calls: NOT COUNTED, {reason}"),
        None => step("exits and system calls", || {
            rows.iter_mut().try_for_each(count)
        })?,
    }
    table::print(&rows);
    match json {
        Some(path) => figure::write(&table::figures(&rows), &path),
        None => Ok(()),
    }
}

fn rows(places: &[TestFile]) -> Vec<Row<'_>> {
    let of = |place| DEPTHS.map(|depth| Row::new(place, depth));
    places.iter().flat_map(of).collect()
}

/// One round: each in turn, in another order in every second round.
fn measure(row: &mut Row<'_>, time: Duration, is_odd: bool) -> anyhow::Result<()> {
    if is_odd {
        row.sleeps
            .push(iops(guest(row, Learning::Sleeps, time, None)?));
        row.polls
            .push(iops(guest(row, Learning::Polls, time, None)?));
        row.raw.push(without_guest(row, time)?);
    } else {
        row.raw.push(without_guest(row, time)?);
        row.polls
            .push(iops(guest(row, Learning::Polls, time, None)?));
        row.sleeps
            .push(iops(guest(row, Learning::Sleeps, time, None)?));
    }
    Ok(())
}

fn iops(done: Done) -> f64 {
    done.requests / done.seconds
}

fn guest(
    row: &Row<'_>,
    learning: Learning,
    time: Duration,
    requests: Option<u32>,
) -> anyhow::Result<Done> {
    let load = load(row, learning, time, requests);
    disk_load::put_on(row.place.image(), row.place.disk_options(), &load)
}

fn load(row: &Row<'_>, learning: Learning, time: Duration, requests: Option<u32>) -> Load {
    Load {
        access: "randread",
        depth: row.depth,
        learning,
        time,
        requests,
    }
}

/// The same without a guest, in requests a second.
fn without_guest(row: &Row<'_>, time: Duration) -> anyhow::Result<f64> {
    let (requests, seconds) = ring(row, time)?;
    Ok(requests / seconds)
}

fn ring(row: &Row<'_>, time: Duration) -> anyhow::Result<(f64, f64)> {
    let depth = usize::try_from(row.depth)?;
    let mut ring = RawIo::new(row.place.open()?, BLOCK_BYTES, depth)?;
    let begun = Instant::now();
    let requests = ring.run(Access::RandomRead, time)?;
    Ok((f64::from(requests), begun.elapsed().as_secs_f64()))
}

/// Exits and system calls for so many requests.
fn count(row: &mut Row<'_>) -> anyhow::Result<()> {
    let [few, many] = COUNTED;
    let requests = if row.depth == 1 { few } else { many };
    for learning in [Learning::Polls, Learning::Sleeps] {
        let load = load(row, learning, PATIENCE, Some(requests));
        let counted = disk_load::count_on(row.place.image(), row.place.disk_options(), &load)?;
        match learning {
            Learning::Polls => row.polls_cost = Some(counted),
            Learning::Sleeps => row.sleeps_cost = Some(counted),
        }
    }
    let calls = EventCount::begin(SYSTEM_CALLS, std::process::id())?;
    let before = calls.so_far()?;
    let (requests, _) = ring(row, Duration::from_millis(500))?;
    let calls = calls.so_far()? - before;
    row.raw_calls = Some(as_f64(calls)? / requests);
    Ok(())
}

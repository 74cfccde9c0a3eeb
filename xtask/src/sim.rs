//! `cargo xtask sim` and `cargo xtask soak sim`: the planner against a simulated host on its worst day.

mod controllers;

use std::path::Path;

use anyhow::ensure;
use integration::sim;

/// Seeds that fail are named up to here.
const NAMED: usize = 10;

/// How many schedules, from which seed on.
#[derive(clap::Args)]
pub struct SimOptions {
    /// The first seed.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Number of seeds to run.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
    /// The controllers of machines and replica sets alone.
    #[arg(long)]
    controllers: bool,
}

/// Shows one schedule step by step.
///
/// # Errors
/// When an invariant does not hold in it.
pub fn replay(seed: u64, cluster: bool) -> anyhow::Result<()> {
    if cluster {
        let tally = sim::cluster::run(seed, true).map_err(anyhow::Error::msg)?;
        println!("cluster seed {seed}: every invariant holds; {tally:?}");
        return Ok(());
    }
    let tally = sim::run(seed, true).map_err(anyhow::Error::msg)?;
    println!("seed {seed}: every invariant holds; {tally:?}");
    Ok(())
}

/// Runs many schedules and prints what they came to.
///
/// # Errors
/// When an invariant does not hold in one of them.
pub fn campaign(root: &Path, options: &SimOptions) -> anyhow::Result<()> {
    let SimOptions { seed, count, .. } = *options;
    if !options.controllers {
        planners(seed, count)?;
    }
    controllers::campaign(root, seed, count)
}

fn planners(seed: u64, count: u64) -> anyhow::Result<()> {
    let (total, mut violations) = sim::campaign(seed, count);
    println!("{count} schedules of a VMI from seed {seed} on: {total:?}");
    let (total, more) = sim::cluster::campaign(seed, count);
    println!("{count} schedules of control planes from seed {seed} on: {total:?}");
    violations.extend(more);
    ensure!(
        violations.is_empty(),
        "an invariant does not hold in {} of them; `cargo xtask sim --seed N` (--cluster) shows one step by step:\n{}",
        violations.len(),
        violations
            .iter()
            .take(NAMED)
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join("\n")
    );
    Ok(())
}

//! `cargo xtask sim` and `cargo xtask soak sim`: the planner against a simulated host on its worst day.

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
    /// How many seeds.
    #[arg(long, default_value_t = 100_000)]
    count: u64,
}

/// Shows one schedule step by step.
///
/// # Errors
/// When an invariant does not hold in it.
pub fn replay(seed: u64) -> anyhow::Result<()> {
    let tally = sim::run(seed, true).map_err(anyhow::Error::msg)?;
    println!("seed {seed}: every invariant holds; {tally:?}");
    Ok(())
}

/// Runs many schedules and prints what they came to.
///
/// # Errors
/// When an invariant does not hold in one of them.
pub fn campaign(options: &SimOptions) -> anyhow::Result<()> {
    let SimOptions { seed, count } = *options;
    let (total, violations) = sim::campaign(seed, count);
    println!("{count} schedules from seed {seed} on: {total:?}");
    ensure!(
        violations.is_empty(),
        "an invariant does not hold in {} of them; `cargo xtask sim --seed N` shows one step by step:\n{}",
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

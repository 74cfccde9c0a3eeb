//! `cargo xtask soak scheduler`.

use std::path::Path;

use integration::soak::scheduler::three_nodes;
use integration::{host, skip, tools};

use crate::progress::step;

/// Runs the campaign and prints its steps and their times.
///
/// # Errors
/// At the first thing that is not as it should be.
pub fn run(root: &Path) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node().or_else(host::without_host) {
        anyhow::bail!("SKIPPED, {reason}");
    }
    tools::ensure(tools::TESTS)?;
    step("build", || crate::build::run(root))?;
    let tally = step("scheduler", || {
        three_nodes(&mut |step, took| println!("    {step}: {:.0} s", took.as_secs_f64()))
    })?;
    println!(
        "{} placements; VMMs of all nodes were counted {} times, and no VMI ever had two",
        tally.placements, tally.checks
    );
    Ok(())
}

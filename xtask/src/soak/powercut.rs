//! `cargo xtask soak powercut`.

use std::path::Path;

use integration::skip;
use integration::soak::powercut::{Campaign, Tally, power_cuts};

use super::resumed::Progress;
use crate::progress::step;

/// After so many cuts the node itself starts again.
const RESTART_EVERY: u32 = 20;

/// How long it goes on.
#[derive(clap::Args)]
pub struct PowercutOptions {
    /// From which moments and what is left of the disks' caches follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Cuts of this seed in all, those of earlier runs included; each is one of every cache mode.
    #[arg(long, default_value_t = 200)]
    cuts: u32,
}

/// Runs what earlier runs of the same seed have left of the campaign, and prints its result.
///
/// # Errors
/// At the first acknowledged block that is lost.
pub fn run(root: &Path, options: &PowercutOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let campaign = Campaign {
        seed: options.seed,
        cuts: options.cuts,
        restart_every: RESTART_EVERY,
    };
    let progress = Progress::of("powercut", options.seed)?;
    let before: Tally = progress.read()?;
    if before.cuts >= options.cuts {
        progress.print_done();
        println!("{}", line(&before));
        return Ok(());
    }
    let tally = step("powercut", || {
        power_cuts(campaign, before, |tally| {
            eprintln!("    {}", line(tally));
            progress.write(tally)
        })
    })?;
    println!("{}", line(&tally));
    Ok(())
}

fn line(tally: &Tally) -> String {
    let Tally {
        cuts,
        restarts,
        found,
        lost,
    } = tally;
    let controls: Vec<String> = lost
        .iter()
        .map(|(name, lost)| format!("{name} lost {lost}"))
        .collect();
    format!(
        "{cuts} cuts, the node started again after {restarts}, {found} acknowledged blocks found, none lost; controls: {}",
        controls.join(", ")
    )
}

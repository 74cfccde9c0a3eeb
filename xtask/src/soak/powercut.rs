//! `cargo xtask soak powercut`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context;
use integration::soak::powercut::{Campaign, Tally, power_cuts};
use integration::{cache, skip};

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

/// Runs what earlier runs of the same seed have left of the campaign, and prints what came of it.
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
    let _held = cache::lock(&format!("powercut-{}", options.seed))?;
    let file = cache::root().join(format!("soak/powercut-{}.json", options.seed));
    let before = read(&file)?;
    if before.cuts >= options.cuts {
        println!("done before; {} has it", file.display());
        println!("{}", line(&before));
        return Ok(());
    }
    let tally = step("powercut", || {
        power_cuts(campaign, before, |tally| {
            eprintln!("    {}", line(tally));
            write(&file, tally)
        })
    })?;
    println!("{}", line(&tally));
    Ok(())
}

fn read(file: &Path) -> anyhow::Result<Tally> {
    match fs::read(file) {
        Ok(bytes) => serde_json::from_slice(&bytes)
            .with_context(|| format!("{} is no progress of a campaign; remove it", file.display())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Tally::default()),
        Err(error) => Err(error).with_context(|| file.display().to_string()),
    }
}

/// A run that is interrupted leaves the old file or the new one.
fn write(file: &Path, tally: &Tally) -> anyhow::Result<()> {
    let partial: PathBuf = file.with_extension("partial");
    if let Some(directory) = file.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(&partial, serde_json::to_vec(tally)?)
        .and_then(|()| fs::rename(&partial, file))
        .with_context(|| file.display().to_string())
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

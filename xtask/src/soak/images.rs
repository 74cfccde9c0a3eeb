//! `cargo xtask soak images`.

use std::path::Path;

use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::soak::images::{Campaign, Tally, images, kills};

use crate::progress::step;

/// How long it goes on.
#[derive(clap::Args)]
pub struct ImagesOptions {
    /// From which moments and victims follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often the agent, or a process that works for it, is killed.
    #[arg(long, default_value_t = 500)]
    kills: u32,
}

/// Runs a campaign and prints what came of it.
///
/// # Errors
/// At the first disk that is not that of its digest, and at the first image that cannot be pulled afterwards.
pub(super) fn run(root: &Path, options: &ImagesOptions) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let tally = step("kills", || {
        let host = Host::enter()?;
        let agent = Agent::prepare(&host)?;
        host.sh(&format!("cp -r {} /run/images", images()?.display()))?;
        let campaign = Campaign {
            seed: options.seed,
            kills: options.kills,
        };
        kills(&host, &agent, "/run/images", campaign, &mut |tally| {
            eprintln!("    {}", line(tally));
        })
    })?;
    println!("{}", line(&tally));
    for (moment, count) in &tally.moments {
        println!("    {count:4} {moment}");
    }
    Ok(())
}

fn line(tally: &Tally) -> String {
    let Tally {
        kills,
        disks,
        parts,
        settled,
        ..
    } = tally;
    format!(
        "{kills} kills, {disks} disks and {parts} parts of layers looked at and right, all images pulled {settled} times"
    )
}

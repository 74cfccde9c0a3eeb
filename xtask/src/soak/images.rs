//! `cargo xtask soak images`.

use std::path::Path;

use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::skip;
use integration::soak::images::cuts::{CutCampaign, CutTally, power_cuts};
use integration::soak::images::{Campaign, Tally, images, kills};

use super::resumed::Progress;
use crate::progress::step;

/// How long it goes on.
#[derive(clap::Args)]
pub struct ImagesOptions {
    /// From which moments and victims follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often the agent, or a process that works for it, is killed; kills of earlier runs of the seed count.
    #[arg(long, default_value_t = 500)]
    kills: u32,
    /// How often the power of a node is cut in each of pull, unpacking and collection; cuts of earlier runs count.
    #[arg(long, default_value_t = 50)]
    cuts: u32,
}

/// After so many power cuts the node starts again from what the last one left.
const RESTART_EVERY: u32 = 5;

/// Runs what earlier runs of the same seed have left of both campaigns, each unless it is of none, and prints their
/// results.
///
/// # Errors
/// At the first disk that is not that of its digest, and at the first image that cannot be pulled afterwards.
pub(super) fn run(root: &Path, options: &ImagesOptions) -> anyhow::Result<()> {
    step("build", || crate::build::run(root))?;
    if options.kills > 0 {
        run_kills(options)?;
    }
    if options.cuts > 0 {
        run_cuts(options)?;
    }
    Ok(())
}

fn run_kills(options: &ImagesOptions) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("kills: SKIPPED, {reason}");
    }
    let progress = Progress::of("images-kills", options.seed)?;
    let before: Tally = progress.read()?;
    if before.kills >= options.kills {
        progress.print_done();
        show(options, &before);
        return Ok(());
    }
    let tally = step("kills", || {
        let host = Host::enter()?;
        let agent = Agent::prepare(&host)?;
        host.sh(&format!("cp -r {} /run/images", images()?.display()))?;
        let campaign = Campaign {
            seed: options.seed,
            kills: options.kills,
        };
        kills(
            &host,
            &agent,
            "/run/images",
            campaign,
            before,
            &mut |tally| {
                eprintln!("    {}", line(tally));
                progress.write(tally)
            },
        )
    })?;
    show(options, &tally);
    Ok(())
}

fn show(options: &ImagesOptions, tally: &Tally) {
    println!("seed {}: {}", options.seed, line(tally));
    for (moment, count) in &tally.moments {
        println!("    {count:4} {moment}");
    }
}

fn run_cuts(options: &ImagesOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("power cuts: SKIPPED, {reason}");
    }
    let progress = Progress::of("images-cuts", options.seed)?;
    let before: CutTally = progress.read()?;
    let campaign = CutCampaign {
        seed: options.seed,
        of_each: options.cuts,
        restart_every: RESTART_EVERY,
    };
    if campaign.is_done(&before) {
        progress.print_done();
        println!("seed {}: {}", options.seed, line_of_cuts(&before));
        return Ok(());
    }
    let tally = step("power cuts", || {
        power_cuts(campaign, before, |tally| {
            eprintln!("    {}", line_of_cuts(tally));
            progress.write(tally)
        })
    })?;
    println!("seed {}: {}", options.seed, line_of_cuts(&tally));
    Ok(())
}

fn line_of_cuts(tally: &CutTally) -> String {
    let of = |(stage, count): (&String, &u32)| format!("{count} during {stage}");
    let stages: Vec<String> = tally.cuts.iter().map(of).collect();
    format!(
        "{} power cuts, {}; {} disks checked and right, all images pulled after {} restarts; {} times the work was over too early",
        tally.all(),
        stages.join(", "),
        tally.disks,
        tally.restarts,
        tally.late
    )
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
        "{kills} kills, {disks} disks and {parts} parts of layers checked and right, all images pulled {settled} times"
    )
}

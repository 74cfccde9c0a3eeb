//! `cargo xtask soak overlay`.

use std::path::Path;

use integration::skip;
use integration::soak::overlay::{Tally, verified_writes};

use crate::progress::step;

/// How long it goes on.
#[derive(clap::Args)]
pub struct OverlayOptions {
    /// How often the machine is paused, and goes on in another process.
    #[arg(long, default_value_t = 20)]
    rounds: u32,
}

/// Runs the campaign and prints its result.
///
/// # Errors
/// At the first byte that is not what the guest wrote or the base has.
pub(super) fn run(root: &Path, options: &OverlayOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let tally = step("fio over a base", || {
        verified_writes(options.rounds, |tally| eprintln!("    {}", line(tally)))
    })?;
    println!("{}", line(&tally));
    Ok(())
}

fn line(tally: &Tally) -> String {
    let Tally {
        pauses,
        restores,
        verified,
        requests,
    } = tally;
    format!(
        "{pauses} pauses, {restores} restores in another process, {requests} requests: all that was written verified {verified} times, no mismatch"
    )
}

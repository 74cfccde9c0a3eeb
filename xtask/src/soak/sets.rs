//! `cargo xtask soak sets`.

use std::path::Path;

use integration::agent::Agent;
use integration::host::{self, Host};
use integration::soak::sets::{Campaign, Tally, scaled};

use crate::progress::step;

/// How many sets of how many guests.
#[derive(clap::Args)]
pub struct SetsOptions {
    /// From which the moments of kills follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Sets beside each other.
    #[arg(long, default_value_t = 20)]
    sets: u32,
    /// Guests of each.
    #[arg(long, default_value_t = 10)]
    replicas: u32,
}

/// Runs a campaign and prints its result.
///
/// # Errors
/// When a set has too many guests or too few, or writes for ever.
pub(super) fn run(root: &Path, options: &SetsOptions) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let tally = step("sets that are scaled", || {
        let host = Host::enter()?;
        let agent = Agent::prepare(&host)?;
        agent.add_image("/run/bin/testguest", "testguest")?;
        agent.start()?;
        let campaign = Campaign {
            seed: options.seed,
            sets: options.sets,
            replicas: options.replicas,
        };
        scaled(&host, &agent, campaign, &mut |tally| {
            eprintln!("    {}", line(tally));
        })
    })?;
    println!("{}", line(&tally));
    Ok(())
}

fn line(tally: &Tally) -> String {
    let Tally {
        transitions,
        kills,
        writes_up,
        writes_down,
        quiet,
    } = tally;
    format!(
        "{transitions} transitions, {kills} kills; {writes_up} writes of objects for guests that came, {writes_down} for those \
         that went; nothing was written {quiet} times once all was as wanted"
    )
}

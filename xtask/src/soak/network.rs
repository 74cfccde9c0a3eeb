//! `cargo xtask soak network`.

use std::path::Path;

use integration::agent::Agent;
use integration::host::{self, Host};
use integration::soak::network::{Campaign, Tally, leftovers};

use crate::progress::step;

/// How long it goes on.
#[derive(clap::Args)]
pub struct NetworkOptions {
    /// From which names and moments follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How many guests come and go.
    #[arg(long, default_value_t = 1000)]
    cycles: u32,
}

/// Runs a campaign and prints its result.
///
/// # Errors
/// When something is left on the node.
pub(super) fn run(root: &Path, options: &NetworkOptions) -> anyhow::Result<()> {
    if let Some(reason) = host::without_host() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let tally = step("guests that come and go", || {
        let host = Host::enter()?;
        let agent = Agent::prepare(&host)?;
        agent.add_image("/run/bin/testguest", "testguest")?;
        let campaign = Campaign {
            seed: options.seed,
            cycles: options.cycles,
        };
        leftovers(&host, &agent, campaign, &mut |tally| {
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
        cycles,
        kills,
        checks,
        addresses,
        ..
    } = tally;
    format!(
        "{cycles} guests came and went, {kills} kills, the node as before at {checks} checks, {addresses} addresses free for others"
    )
}

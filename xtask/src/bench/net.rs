//! `cargo xtask bench net`: what the pod network adds to starts, on this machine's own KVM, and what masquerade costs
//! connections, in a node in a box, where guests have a kernel that speaks TCP.

mod starts;
mod streams;

use std::path::{Path, PathBuf};

use integration::{host, skip};

use super::figure;
use crate::progress::step;

/// Options of `cargo xtask bench net`.
#[derive(clap::Args)]
pub struct NetOptions {
    /// Guests that are started at once.
    #[arg(long, default_value_t = 100)]
    guests: u32,
    /// Rounds in which guests of the node talk to it, one after the other, by each test.
    #[arg(long, default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// How long each test of a connection goes on in each round.
    #[arg(long, default_value_t = 700, value_parser = clap::value_parser!(u32).range(1..))]
    ms: u32,
}

/// Measures, prints a table, and with `json` writes the figures there.
///
/// # Errors
/// When something cannot be built or measured.
pub fn run(root: &Path, options: &NetOptions, json: Option<PathBuf>) -> anyhow::Result<()> {
    step("build", || crate::build::run(root))?;
    let mut figures = Vec::new();
    match host::without_host() {
        Some(reason) => eprintln!("guests on this machine's KVM: SKIPPED, {reason}"),
        None => figures.extend(step("guests on this machine's KVM", || {
            starts::figures(options.guests)
        })?),
    }
    match skip::without_node() {
        Some(reason) => eprintln!("guests of a node: SKIPPED, {reason}"),
        None => figures.extend(step("guests of a node", || {
            streams::figures(options.rounds, options.ms)
        })?),
    }
    figure::print(&figures);
    match json {
        Some(path) => figure::write(&figures, &path),
        None => Ok(()),
    }
}

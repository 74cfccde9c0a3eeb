//! A machine that runs to its end, and what its guest reported.

use std::time::Duration;

use anyhow::ensure;
use integration::commands::Commands;
use integration::node::Node;

use crate::report::Report;

pub use integration::linux_machine::{PATIENCE, SCRATCH, flags, node, node_with, small};

/// Runs a machine until its guest powers off.
pub fn run(node: &Node, flags: &[String]) -> anyhow::Result<Report> {
    // What the guest printed until then is worth more than the time.
    let limit = PATIENCE.as_secs().to_string();
    let mut argv = vec!["timeout", limit.as_str(), "vmm-front", "run"];
    argv.extend(flags.iter().map(String::as_str));
    let output = node.run_for(&argv, PATIENCE + Duration::from_secs(20))?;
    ensure!(
        output
            .stderr
            .contains("vmm-front: ended: EXIT_REASON_GUEST_POWEROFF"),
        "{output}"
    );
    Ok(Report::read(&output.stdout))
}

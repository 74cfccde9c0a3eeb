//! This program as the agent of a host, and what `kvmctl` says there.

use anyhow::ensure;
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::Host;

/// What the agent serves that is started with this: kinds of this release under other names.
pub const RENAMED: &str = "KVMLET_TEST_RENAMED";

pub fn succeed(agent: &Agent<'_, Host>, arguments: &str) -> anyhow::Result<String> {
    let output = agent.kvmctl(arguments)?;
    ensure!(
        output.code == Some(0),
        "kvmctl {arguments}: {output}\n{}",
        agent.log()
    );
    Ok(output.stdout)
}

/// Starts this program as the agent, with one variable of its environment set.
pub fn start(host: &Host, agent: &Agent<'_, Host>, variable: &str) -> anyhow::Result<()> {
    host.sh(&format!(
        "{variable} setsid kvmlet --config {} </dev/null >>{} 2>&1 &",
        integration::agent::CONFIG,
        integration::agent::LOG
    ))?;
    agent.wait_until_it_answers()
}

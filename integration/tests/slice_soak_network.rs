//! A slice of `cargo xtask soak network`: twenty guests of the pod network come and go on this machine's own KVM while
//! their agent is killed.

#![forbid(unsafe_code)]

use anyhow::ensure;
use integration::agent::Agent;
use integration::host::{self, Host};
use integration::skip_if;
use integration::soak::network::{Campaign, leftovers};

#[test]
fn guests_that_come_and_go_while_their_agent_is_killed_leave_the_node_as_it_was()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let campaign = Campaign {
        seed: 7,
        cycles: 20,
    };
    let tally = leftovers(&host, &agent, campaign, &mut |_| {})?;
    ensure!(tally.cycles == 20 && tally.checks == 2, "{tally:?}");
    // Otherwise it shows nothing.
    ensure!(tally.kills >= 5 && tally.moments.len() >= 3, "{tally:?}");
    Ok(())
}

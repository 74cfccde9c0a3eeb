//! A slice of `cargo xtask soak images`: kills of the agent and of what works for it, and power cuts of a node.

use anyhow::ensure;
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::Host;
use integration::soak::images::cuts::{CutCampaign, CutTally, power_cuts};
use integration::soak::images::{Campaign, Tally, images, kills};
use integration::{skip, skip_if};

use super::missing;

#[test]
fn a_kill_leaves_no_disk_under_the_digest_of_another_and_nothing_that_a_pull_stumbles_over()
-> anyhow::Result<()> {
    skip_if!(missing(), Ok(()));
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    host.sh(&format!(
        "cp -r {} /run/images && chmod -R a+rX /run/images",
        images()?.display()
    ))?;
    let campaign = Campaign { seed: 3, kills: 25 };
    let begun = Tally::default();
    let tally = kills(&host, &agent, "/run/images", campaign, begun, &mut |_| {
        Ok(())
    })?;
    ensure!(
        tally.kills == 25 && tally.settled == 1 && tally.disks >= 4,
        "{tally:?}"
    );
    // Otherwise it shows nothing.
    let in_mid_work = |what: &&String| !what.ends_with("nothing");
    let moments = tally.moments.keys().filter(in_mid_work).count();
    ensure!(moments >= 2, "{tally:?}");
    Ok(())
}

#[test]
fn a_power_cut_leaves_no_disk_under_the_digest_of_another_and_pulls_go_on_afterwards()
-> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let campaign = CutCampaign {
        seed: 3,
        of_each: 1,
        restart_every: 1,
    };
    let tally = power_cuts(campaign, CutTally::default(), |_| Ok(()))?;
    ensure!(tally.all() == 3 && tally.restarts == 3, "{tally:?}");
    Ok(())
}

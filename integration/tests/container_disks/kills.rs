//! A slice of `cargo xtask soak images`: kills of the agent and of what works for it.

use anyhow::ensure;
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::Host;
use integration::skip_if;
use integration::soak::images::{Campaign, images, kills};

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
    let tally = kills(&host, &agent, "/run/images", campaign, &mut |_| {})?;
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

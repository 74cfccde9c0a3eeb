//! A slice of `cargo xtask soak kills`: twenty kills of the agent at random moments while two stock guests
//! start, run and stop in a node.

#![forbid(unsafe_code)]

use integration::agent::Agent;
use integration::image::busybox;
use integration::node::{Flavour, Node, NodeSpec};
use integration::soak::{Campaign, Kind, kills};
use integration::{skip, skip_if};

#[test]
fn no_guest_is_lost_doubled_or_disturbed_by_twenty_kills_of_its_agent() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = Node::boot(
        NodeSpec::bare(Flavour::Busybox)
            .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
            .with(busybox::guest()?.directory, "images/busybox"),
    )?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    agent.start()?;
    let campaign = Campaign {
        seed: 20,
        kills: 20,
        guests: 2,
        kind: Kind::Stock,
    };
    let tally = kills(&node, &agent, campaign, |_| {})?;
    assert_eq!(tally.kills, 20);
    // Reading itself fails unless a guest counted on since; every guest is read at the end at least.
    assert!(tally.numbers >= u64::from(campaign.guests), "{tally:?}");
    Ok(())
}

//! `cargo xtask soak transfer`.

use std::path::Path;
use std::time::Duration;

use integration::agent::{Agent, GuestSpec};
use integration::image::busybox::{self, GuestImage};
use integration::node::{Flavour, Node, NodeSpec};
use integration::skip;
use integration::soak::transfer::{Campaign, Tally, outlives_kills};
use integration::testguest;

use crate::progress::step;

/// Until the guest has its address.
const PATIENCE: Duration = Duration::from_secs(300);

/// How long it goes on.
#[derive(clap::Args)]
pub struct TransferOptions {
    /// From which moments follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often the agent is killed.
    #[arg(long, default_value_t = 20)]
    kills: u32,
    /// MiB that are transferred at least, with the kills spread over them.
    #[arg(long, default_value_t = 1024)]
    mib: u32,
    /// Other guests that come and go in each round of kills, of which there are about half as many as kills.
    #[arg(long, default_value_t = 8)]
    others: u32,
}

/// Runs a campaign and prints its result.
///
/// # Errors
/// When a byte is lost, or the connection is.
pub(super) fn run(root: &Path, options: &TransferOptions) -> anyhow::Result<()> {
    if let Some(reason) = skip::without_node() {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let Tally {
        kills,
        others,
        bytes,
    } = step("transfer", || transfer(options))?;
    println!(
        "{bytes} bytes came as they were sent by one connection, over {kills} kills of the agent and {others} guests that came and went"
    );
    Ok(())
}

fn transfer(options: &TransferOptions) -> anyhow::Result<Tally> {
    let spec =
        NodeSpec::bare(Flavour::Busybox).with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?;
    let spec = spec
        .with(busybox::guest()?.directory, "images/busybox")
        .with(testguest::elf()?, "images/testguest");
    let node = Node::boot(spec)?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/testguest", "testguest")?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    agent.start()?;
    let guest = GuestSpec::busybox("web", "quiet").on_pod_network();
    agent.apply(&guest.manifest())?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    let mut console = agent.console("web")?;
    console.read_until(GuestImage::PROMPT, PATIENCE)?;
    console.write(b"until ip route | grep -q ^default; do usleep 100000; done\n")?;
    console.read_until(GuestImage::PROMPT, PATIENCE)?;
    let campaign = Campaign {
        seed: options.seed,
        kills: options.kills,
        bytes: u64::from(options.mib) << 20,
        others: options.others,
    };
    outlives_kills(&node, &agent, &mut console, campaign)
}

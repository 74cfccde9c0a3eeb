//! `cargo xtask soak`: the long campaigns.

mod clients;
mod container_disk;
mod examples;
mod firmware;
mod fuzz;
mod images;
mod liar;
mod network;
mod overlay;
mod powercut;
mod resumed;
mod scheduler;
mod sets;
mod strikes;
mod transfer;
mod virtctl;

use std::path::Path;

use anyhow::Context;
use integration::agent::Agent;
use integration::commands::Commands;
use integration::host::{self, Host};
use integration::image::busybox;
use integration::node::{Flavour, Node, NodeSpec};
use integration::skip;
use integration::soak::{Campaign, Kind, Tally, kills};

use crate::progress::step;

/// Campaigns of `cargo xtask soak`.
#[derive(clap::Subcommand)]
pub enum Soak {
    /// Kill the agent at random moments while guests start, run and stop; none may notice.
    Kills(KillsOptions),
    /// Apply manifests that others wrote on a node, whose mirror has one small image for all of theirs.
    Examples(examples::ExamplesOptions),
    /// Debian's clients of DHCP in stock guests on the networks of a node with the package: addresses, names, and both ways.
    Clients(clients::ClientsOptions),
    /// buildah makes an image of a stock Debian disk and pushes it to a registry with TLS and passwords: firmware boots it,
    /// cloud-init sets name, user, key and network, ssh logs in over the pod network.
    ContainerDisk(container_disk::ContainerDiskOptions),
    /// A stock Debian disk through SeaBIOS and OVMF: login, cloud-init, reboot, power-off.
    Firmware(firmware::FirmwareOptions),
    /// Feed all fuzz targets in turn, guided by coverage; goes on where it ended.
    Fuzz(fuzz::FuzzOptions),
    /// Kill the agent and what works for it, and cut a node's power, while images are pulled, unpacked and collected; goes on
    /// where it ended.
    Images(images::ImagesOptions),
    /// A stock guest with Debian's scapy lies to its neighbours in each way: each lie is dropped and counted.
    Liar,
    /// Guests of the pod network come and go while the agent is killed; the node is as before, and all addresses are free.
    Network(network::NetworkOptions),
    /// fio in a stock guest writes over a base and verifies, while its machine is paused, saved and restored.
    Overlay(overlay::OverlayOptions),
    /// A guest writes numbered blocks while its node's disks lose their power, again and again; goes on where it ended.
    Powercut(powercut::PowercutOptions),
    /// The reference scheduler over three nodes: one is drained, one loses its power, one its network.
    Scheduler,
    /// Sets of guests are scaled from nothing and back while the agent is killed at each step.
    Sets(sets::SetsOptions),
    /// A thousand guests of one image of 2 GiB at once: what they take of disk, page cache and memory, beside the budgets.
    Shared(crate::bench::images::SharedOptions),
    /// The planner against a simulated host that loses, repeats and delays, and an agent that is killed; controllers against
    /// a store that does.
    Sim(crate::sim::SimOptions),
    /// The story of `demo --story` with a stock Debian disk.
    Story,
    /// A machine with a stock Debian disk under each run strategy is restarted, crashes, and loses its VMM and its node's
    /// power: it answers again where its strategy says so.
    Strikes(strikes::StrikesOptions),
    /// A guest receives by one connection through masquerade while the agent is killed and other guests come and go.
    Transfer(transfer::TransferOptions),
    /// Record what a real virtctl prints and refuses, for kvmctl's tests to compare with.
    Virtctl(virtctl::VirtctlOptions),
}

/// How long it goes on, and with what.
#[derive(clap::Args)]
pub struct KillsOptions {
    /// From which moments and victims follow.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// How often the agent is killed; 1000 without --node, 500 with it.
    #[arg(long)]
    kills: Option<u32>,
    /// Guests at a time; 100 without --node, 20 with it.
    #[arg(long)]
    guests: Option<u32>,
    /// Stock Linux guests in a node, instead of testguest on this machine's own KVM.
    #[arg(long)]
    node: bool,
}

/// Runs a campaign and prints its result.
///
/// # Errors
/// At the first thing that is not as it should be.
pub fn run(root: &Path, what: &Soak) -> anyhow::Result<()> {
    match what {
        Soak::Kills(options) => run_kills(root, options),
        Soak::Examples(options) => examples::run(root, options),
        Soak::Clients(options) => clients::run(root, options),
        Soak::ContainerDisk(options) => container_disk::run(root, options),
        Soak::Firmware(options) => firmware::run(root, options),
        Soak::Fuzz(options) => fuzz::run(root, options),
        Soak::Images(options) => images::run(root, options),
        Soak::Liar => liar::run(root),
        Soak::Network(options) => network::run(root, options),
        Soak::Overlay(options) => overlay::run(root, options),
        Soak::Powercut(options) => powercut::run(root, options),
        Soak::Scheduler => scheduler::run(root),
        Soak::Sets(options) => sets::run(root, options),
        Soak::Shared(options) => crate::bench::images::sizes(root, *options),
        Soak::Sim(options) => crate::sim::campaign(root, options),
        Soak::Story => {
            crate::demo::story::run(root, crate::images::debian, Some(strikes::STORY), None)
        }
        Soak::Strikes(options) => strikes::run(root, options),
        Soak::Transfer(options) => transfer::run(root, options),
        Soak::Virtctl(options) => virtctl::run(root, options),
    }
}

fn run_kills(root: &Path, options: &KillsOptions) -> anyhow::Result<()> {
    let missing = if options.node {
        skip::without_node()
    } else {
        host::without_host()
    };
    if let Some(reason) = missing {
        anyhow::bail!("SKIPPED, {reason}");
    }
    step("build", || crate::build::run(root))?;
    let (kills, guests, kind) = if options.node {
        (500, 20, Kind::Stock)
    } else {
        (1000, 100, Kind::Testguest)
    };
    let campaign = Campaign {
        seed: options.seed,
        kills: options.kills.unwrap_or(kills),
        guests: options.guests.unwrap_or(guests),
        kind,
    };
    let tally = step("kills", || {
        if options.node {
            in_a_node(campaign)
        } else {
            on_this_machine(campaign)
        }
    })?;
    println!("{}", line(&tally));
    Ok(())
}

fn on_this_machine(campaign: Campaign) -> anyhow::Result<Tally> {
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    go(&host, &agent, campaign)
}

fn in_a_node(campaign: Campaign) -> anyhow::Result<Tally> {
    let mut spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?
        .with(busybox::guest()?.directory, "images/busybox");
    spec.memory_mib = spec.memory_mib.max(1024 + campaign.guests * 192);
    let node = Node::boot(spec)?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    go(&node, &agent, campaign)
}

fn go<M: Commands>(machine: &M, agent: &Agent<'_, M>, campaign: Campaign) -> anyhow::Result<Tally> {
    agent.start()?;
    kills(machine, agent, campaign, |tally| {
        eprintln!("    {}", line(tally))
    })
    .context("a guest noticed that its agent was killed")
}

fn line(tally: &Tally) -> String {
    let Tally {
        kills,
        early,
        made,
        deleted,
        numbers,
    } = tally;
    format!(
        "{kills} kills ({early} before the agent answered), {made} guests, {deleted} of them deleted, {numbers} numbers in order"
    )
}

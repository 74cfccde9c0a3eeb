//! The campaign of the reference scheduler: three nodes in boxes that dial it over TLS; one is drained, one loses
//! its power and comes back, one loses its network under a lease. At no moment does a VMI have two VMMs.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::Kind;
use crate::agent::{Agent, CONFIG};
use crate::authority::{Authority, DIRECTORY};
use crate::commands::Commands;
use crate::host::Host;
use crate::image::busybox;
use crate::node::{Flavour, Network, Node, NodeSpec};
use crate::scheduler::Scheduler;

/// Nodes by name; their numbers are their places from 1 on. The first carries the scheduler.
const NAMES: [&str; 3] = ["a", "b", "c"];

const PORT: u16 = 7443;

/// Where the scheduler keeps its files.
const HOME: &str = "/var/lib/north";

/// Of the lease: seconds without the scheduler, and the grace period after them.
const LEASE: (u32, u32) = (20, 5);

/// How long nothing may happen to the VMIs of a node that lost its power.
const SILENCE: Duration = Duration::from_secs(40);

/// What was looked at.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tally {
    /// How often the VMMs of all nodes were counted.
    pub checks: u32,
    /// Placements that the scheduler has given out.
    pub placements: u64,
}

struct Fleet {
    nodes: Vec<Node>,
}

impl Fleet {
    /// Boots the nodes, each with an agent that dials the scheduler to come.
    fn boot() -> anyhow::Result<Self> {
        let network = Network::new()?;
        let mut fleet = Self { nodes: Vec::new() };
        for (name, number) in NAMES.iter().zip(1..) {
            let spec = NodeSpec::bare(Flavour::Busybox)
                .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl", "scheduler"])?
                .with(busybox::guest()?.directory, "images/busybox");
            let spec = network.join(spec, number);
            let node = match fleet.nodes.first() {
                None => Node::boot(spec)?,
                Some(first) => first.boot_beside(number, spec)?,
            };
            prepare(&node, name)?;
            Network::bring_up(&node, number)?;
            fleet.nodes.push(node);
        }
        fleet.certify()?;
        for node in &fleet.nodes {
            // What was only in memory is gone with the power.
            node.sh("sync")?;
            Agent::of(node).start()?;
        }
        Ok(fleet)
    }

    /// Gives each node its certificate, and the first one that of the scheduler too.
    fn certify(&self) -> anyhow::Result<()> {
        let host = Host::enter()?;
        let authority = Authority::new(&host, "ca")?;
        let server = Network::address(1);
        authority.sign("server", "/CN=north", &format!("IP:{server}"))?;
        let give = |node: &Node, from: &str, to: &str| {
            let content = host.get(&format!("{DIRECTORY}/{from}"))?;
            node.put(to, 0o600, &content)
        };
        for name in ["server.crt", "server.key", "ca.crt"] {
            give(self.node("a")?, name, &format!("{HOME}/{name}"))?;
        }
        for name in NAMES {
            authority.sign(name, &format!("/CN={name}"), "")?;
            let node = self.node(name)?;
            give(node, &format!("{name}.crt"), "/var/lib/kvmlet/tls/node.crt")?;
            give(node, &format!("{name}.key"), "/var/lib/kvmlet/tls/node.key")?;
            give(node, "ca.crt", "/var/lib/kvmlet/tls/ca.crt")?;
        }
        Ok(())
    }

    fn node(&self, name: &str) -> anyhow::Result<&Node> {
        let at = NAMES.iter().position(|known| *known == name);
        at.and_then(|at| self.nodes.get(at))
            .with_context(|| format!("no node {name}"))
    }

    /// The nodes that have a VMM of each VMI now. A node without power has none.
    fn runners(&self) -> anyhow::Result<BTreeMap<String, Vec<&'static str>>> {
        let mut found: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
        for (name, node) in NAMES.into_iter().zip(&self.nodes) {
            if node.channel().is_err() {
                continue;
            }
            for (vmi, vmms) in Agent::of(node).living_vmms_by_name()? {
                let places = found.entry(vmi).or_default();
                places.extend(std::iter::repeat_n(name, vmms));
            }
        }
        Ok(found)
    }
}

fn prepare(node: &Node, name: &str) -> anyhow::Result<()> {
    let agent = Agent::prepare(node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    let server = Network::address(1);
    let config = format!(
        "node_name = \"{name}\"\n\n[labels]\nzone = \"{name}\"\nlost = \"{}\"\n\n[control_plane]\nname = \"north\"\n\
         endpoint = \"https://{server}:{PORT}\"\ncertificate = \"/var/lib/kvmlet/tls/node.crt\"\n\
         key = \"/var/lib/kvmlet/tls/node.key\"\nca = \"/var/lib/kvmlet/tls/ca.crt\"\nlongest_pause_seconds = 2\n",
        if name == "a" { "never" } else { "perhaps" }
    );
    node.put(CONFIG, 0o644, config.as_bytes())
}

struct Campaign<'f> {
    fleet: &'f Fleet,
    scheduler: Scheduler<'f, Node>,
    tally: Tally,
}

/// Runs the campaign; `progress` hears each step that is done.
///
/// # Errors
/// At the first thing that is not as it should be.
pub fn three_nodes(progress: &mut dyn FnMut(&str, Duration)) -> anyhow::Result<Tally> {
    let begun = Instant::now();
    let mut fleet = Fleet::boot()?;
    progress("three nodes booted", begun.elapsed());
    let begun = Instant::now();
    let mut tally = Tally::default();
    let lost = {
        let mut campaign = Campaign::on(&fleet, tally)?;
        campaign.place()?;
        progress("each node runs a guest", begun.elapsed());
        let begun = Instant::now();
        campaign.drain()?;
        progress("c was drained, and opened again", begun.elapsed());
        let lost = campaign.running_on("b")?;
        tally = campaign.tally;
        lost
    };
    let begun = Instant::now();
    fleet.nodes.get_mut(1).context("three nodes")?.power_cut();
    let token = {
        let mut campaign = Campaign::on(&fleet, tally)?;
        let token = campaign.is_unknown(&lost)?;
        tally = campaign.tally;
        token
    };
    progress(
        "b lost its power: its guest is unknown, and nowhere else",
        begun.elapsed(),
    );
    let begun = Instant::now();
    let b = fleet.nodes.get_mut(1).context("three nodes")?;
    b.restart()?;
    Agent::make_bridge(b)?;
    Network::bring_up(b, 2)?;
    Agent::of(b).start()?;
    let mut campaign = Campaign::on(&fleet, tally)?;
    campaign.comes_back(&lost, token)?;
    progress(
        "b is back with another boot: placed anew, once",
        begun.elapsed(),
    );
    let begun = Instant::now();
    campaign.lease()?;
    progress(
        "a node without network ended its leased guest, and then another runs it",
        begun.elapsed(),
    );
    let begun = Instant::now();
    campaign.end()?;
    progress("all deleted, nothing is left", begun.elapsed());
    Ok(campaign.tally)
}

impl<'f> Campaign<'f> {
    /// The scheduler that runs on the first node, or a new one.
    fn on(fleet: &'f Fleet, tally: Tally) -> anyhow::Result<Self> {
        let node = fleet.node("a")?;
        let address = format!("{}:{PORT}@{HOME}", Network::address(1));
        let scheduler = match node.sh("pidof scheduler") {
            Ok(_) => Scheduler::running_at(node, HOME, &address),
            Err(_) => Scheduler::start_at(node, HOME, &address)?,
        };
        Ok(Self {
            fleet,
            scheduler,
            tally,
        })
    }

    /// Waits for something, and counts VMMs all the while.
    fn until(
        &mut self,
        what: &str,
        is_so: impl Fn(&Scheduler<'f, Node>) -> anyhow::Result<bool>,
    ) -> anyhow::Result<()> {
        let (fleet, scheduler, checks) = (self.fleet, &self.scheduler, &mut self.tally.checks);
        scheduler.until(what, || {
            *checks += 1;
            for (vmi, nodes) in fleet.runners()? {
                ensure!(nodes.len() == 1, "{vmi} has VMMs on {nodes:?}");
            }
            is_so(scheduler)
        })
    }

    fn runs_on(&mut self, name: &str, node: &str) -> anyhow::Result<u64> {
        self.until(&format!("{name} runs on {node}"), |scheduler| {
            scheduler.is_running(name, node)
        })?;
        let log = Agent::of(self.fleet.node(node)?).kvmctl(&format!("logs {name}"))?;
        ensure!(log.code == Some(0), "{log}");
        let token = self.scheduler.place(name)?["token"].as_u64();
        token.context("a token")
    }

    /// Waits until a VMI runs on another node than this one; the answer is which.
    fn runs_elsewhere(&mut self, name: &str, not_on: &str) -> anyhow::Result<String> {
        self.until(
            &format!("{name} runs elsewhere than on {not_on}"),
            |scheduler| {
                let node = scheduler.node_of(name)?;
                Ok(node != not_on && scheduler.is_running(name, &node)?)
            },
        )?;
        self.scheduler.node_of(name)
    }

    /// The VMI that runs on a node.
    fn running_on(&self, node: &str) -> anyhow::Result<String> {
        for (vmi, nodes) in self.fleet.runners()? {
            if nodes == [node] {
                return Ok(vmi);
            }
        }
        anyhow::bail!("nothing runs on {node}")
    }

    fn place(&mut self) -> anyhow::Result<()> {
        self.scheduler.wait_for_nodes(&NAMES)?;
        for (name, node) in ["one", "two", "three"].into_iter().zip(NAMES) {
            let manifest = Kind::Stock.manifest(name);
            let there = format!("spec:\n  nodeSelector: {{zone: {node}}}\n");
            let manifest = if node == "a" {
                manifest.replace("spec:\n", &there)
            } else {
                manifest
            };
            self.scheduler.apply(&manifest, "")?;
        }
        for name in ["one", "two", "three"] {
            let node = self.scheduler.node_of(name)?;
            self.runs_on(name, &node)?;
        }
        for node in NAMES {
            self.running_on(node)?;
        }
        Ok(())
    }

    fn drain(&mut self) -> anyhow::Result<()> {
        let drained = self.running_on("c")?;
        let c = Agent::of(self.fleet.node("c")?);
        let output = c.kvmctl("drain --wait=false")?;
        ensure!(output.code == Some(0), "{output}");
        self.runs_elsewhere(&drained, "c")?;
        let left = c.living_vmms_by_name()?;
        ensure!(left.is_empty(), "c still runs {left:?}");
        let opened = c.kvmctl("uncordon")?;
        ensure!(opened.code == Some(0), "{opened}");
        Ok(())
    }

    /// The token of a VMI whose node is away: reported as unknown, and kept where it is.
    fn is_unknown(&mut self, name: &str) -> anyhow::Result<u64> {
        self.until("b is away", |scheduler| Ok(!scheduler.is_connected("b")?))?;
        let end = Instant::now() + SILENCE;
        self.until("nothing has happened", |scheduler| {
            let place = scheduler.place(name)?;
            ensure!(
                place["node"] == "b" && place["phase"] == "Unknown",
                "{place}"
            );
            Ok(Instant::now() >= end)
        })?;
        self.scheduler.place(name)?["token"]
            .as_u64()
            .context("a token")
    }

    fn comes_back(&mut self, name: &str, token: u64) -> anyhow::Result<()> {
        self.until("b is back", |scheduler| scheduler.is_connected("b"))?;
        self.until("it is placed anew", |scheduler| {
            Ok(scheduler.place(name)?["token"].as_u64() > Some(token))
        })?;
        let node = self.scheduler.node_of(name)?;
        self.runs_on(name, &node).map(drop)
    }

    /// The node's guest is gone when its lease and grace are over, before anybody else may have it.
    fn lease(&mut self) -> anyhow::Result<()> {
        let manifest = Kind::Stock
            .manifest("leased")
            .replace("spec:\n", "spec:\n  nodeSelector: {lost: perhaps}\n");
        let (seconds, grace) = LEASE;
        self.scheduler
            .apply(&manifest, &format!("stop {seconds} {grace}"))?;
        let node = self.scheduler.node_of("leased")?;
        self.runs_on("leased", &node)?;
        Network::plug(self.fleet.node(&node)?, false)?;
        let other = self.runs_elsewhere("leased", &node)?;
        ensure!(other != "a", "the label is not looked at");
        let agent = Agent::of(self.fleet.node(&node)?);
        let events = agent.kvmctl("events")?;
        ensure!(events.stdout.contains("LeaseExpired"), "{events}");
        Network::plug(self.fleet.node(&node)?, true)?;
        self.until("the node is back", |scheduler| {
            scheduler.is_connected(&node)
        })
    }

    fn end(&mut self) -> anyhow::Result<()> {
        for name in ["one", "two", "three", "leased"] {
            self.scheduler.order(&format!("delete {name}"))?;
        }
        self.until("all are gone", |scheduler| {
            let state = scheduler.state()?;
            Ok(state["vmis"]
                .as_object()
                .is_some_and(serde_json::Map::is_empty))
        })?;
        let left = self.fleet.runners()?;
        ensure!(left.is_empty(), "{left:?} run on");
        let generation = self.scheduler.state()?["generation"].as_u64();
        self.tally.placements = generation.context("a generation")?;
        Ok(())
    }
}

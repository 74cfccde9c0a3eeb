//! Connections of guests with the node, through masquerade and by a plain tap on the same bridge, with and without vhost-net:
//! four stock guests of one node, which stay up and talk in turn. A machine that does other things besides is slow for a while:
//! the two that are compared talk right after each other, and each such round is compared by itself.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::commands::{Commands, Session};
use integration::image::bench;
use integration::image::busybox::{self, GuestImage};
use integration::node::{Flavour, Node, NodeSpec};
use integration::vmm_bench::FIGURE_LINE;

use crate::bench::figure::{Better, Figure};
use crate::bench::median::Spread;

const PATIENCE: Duration = Duration::from_secs(300);

/// The node on the bridge of the pod network, where the servers are.
const NODE: &str = "10.213.0.1";

/// Where the node serves guests the program that they run.
const WWW_PORT: u16 = 8000;

/// A network of the configuration whose bridge is that of the pod network.
const PLAIN: &str = "\n[networks.plain]\nbridge = \"kvmlet0\"\n";

/// Of the pool, far from where it begins.
const PLAIN_ADDRESSES: [&str; 2] = ["10.213.255.201/16", "10.213.255.202/16"];

/// What guests print, for people; and what it has to be of the plain tap's.
const TESTS: [(&str, &str, &str, f64); 3] = [
    ("tcp_to_node", "TCP to the node", "Mbit/s", 0.85),
    ("tcp_from_node", "TCP from the node", "Mbit/s", 0.85),
    ("tcp_round_trips", "round trips by TCP", "per s", 0.8),
];

/// A guest that waits at its prompt, with the program.
struct Guest {
    console: Session,
}

/// What both of a pair came to by one test, round by round.
#[derive(Default)]
struct Rounds {
    masquerade: Vec<f64>,
    plain: Vec<f64>,
}

/// The two that are compared.
struct Pair {
    masquerade: Guest,
    plain: Guest,
    /// By the name of the test.
    rounds: BTreeMap<&'static str, Rounds>,
}

pub(super) fn figures(rounds: u32, ms: u32) -> anyhow::Result<Vec<Figure>> {
    let directory = tempfile::tempdir()?;
    let program = directory.path().join("bench-guest");
    std::fs::write(&program, bench::work_program()?)?;
    let spec = NodeSpec::bare(Flavour::Busybox)
        .with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl", "vmm-bench"])?
        .with(busybox::guest()?.directory, "images/busybox")
        .with(program, "www/bench-guest");
    let node = Node::boot(spec)?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    node.sh(&format!("printf '%s' '{PLAIN}' >>{CONFIG}"))?;
    agent.start()?;
    node.sh(&format!("httpd -p {WWW_PORT} -h /opt/payload/www"))?;
    node.sh("setsid vmm-bench serve </dev/null >/dev/null 2>&1 &")?;
    let measured = measure(&node, &agent, (rounds, ms));
    let [with, without] = measured.with_context(|| agent.log())?;
    Ok([with.figures("vhost-net")?, without.figures("no vhost-net")?].concat())
}

fn measure(
    node: &Node,
    agent: &Agent<'_, Node>,
    (rounds, ms): (u32, u32),
) -> anyhow::Result<[Pair; 2]> {
    let [first, second] = PLAIN_ADDRESSES;
    let with = Pair::start(agent, "vhost", first)?;
    ensure!(
        of_vhost(node)? == 2,
        "the guests' frames are moved by their VMMs"
    );
    node.sh("mv /dev/vhost-net /dev/not-vhost-net")?;
    let without = Pair::start(agent, "vmm", second)?;
    ensure!(
        of_vhost(node)? == 2,
        "the guests' frames are moved by vhost-net"
    );
    let mut pairs = [with, without];
    for round in 0..rounds {
        for pair in &mut pairs {
            pair.talk(round, ms)?;
        }
    }
    Ok(pairs)
}

/// VMMs whose frames the kernel moves. The device may have another name by now.
fn of_vhost(node: &Node) -> anyhow::Result<u32> {
    let count = node.sh("count=0; for pid in $(pidof kvmlet-vmm); do \
         ls -l /proc/$pid/fd | grep -q vhost-net && count=$((count + 1)); done; echo $count")?;
    Ok(count.trim().parse()?)
}

impl Pair {
    /// The guest on the pod network first: with it comes the bridge.
    fn start(agent: &Agent<'_, Node>, name: &str, address: &str) -> anyhow::Result<Self> {
        let masquerade =
            GuestSpec::busybox(&format!("{name}-masquerade"), "quiet").on_pod_network();
        let plain = GuestSpec::busybox(
            &format!("{name}-plain"),
            &format!("quiet kvmlet.ip={address}"),
        );
        let manifest = plain
            .bridged_manifest(None)
            .replace("pod: {}", "multus:\n      networkName: plain");
        Ok(Self {
            masquerade: Guest::start(agent, &masquerade.name, &masquerade.manifest())?,
            plain: Guest::start(agent, &plain.name, &manifest)?,
            rounds: BTreeMap::new(),
        })
    }

    /// One round. Who is first changes with its number, so that what the first leaves behind meets both alike.
    fn talk(&mut self, round: u32, ms: u32) -> anyhow::Result<()> {
        for (name, ..) in TESTS {
            let rounds = self.rounds.entry(name).or_default();
            let mut both = [
                (&mut self.masquerade, &mut rounds.masquerade),
                (&mut self.plain, &mut rounds.plain),
            ];
            if !round.is_multiple_of(2) {
                both.reverse();
            }
            for (guest, figures) in both {
                figures.push(guest.talk(name, ms)?);
            }
        }
        Ok(())
    }

    /// What both came to, and what masquerade leaves of the plain tap's.
    fn figures(&self, mode: &str) -> anyhow::Result<Vec<Figure>> {
        let mut figures = Vec::new();
        for (name, shown, unit, least) in TESTS {
            let Rounds { masquerade, plain } = self.rounds.get(name).context(name)?;
            let how = "median of rounds in which both stock guests talk right after each other, in one node in a box of one processor";
            let figure = |what: &str, rounds, unit| {
                let name = format!("{shown}, {mode}, {what}");
                Figure::of_rounds(&name, rounds, unit, Better::More).how(how)
            };
            let ratios = Spread::of_ratios(masquerade, plain);
            figures.extend([
                figure("plain tap", Spread::of(plain), unit),
                figure("masquerade", Spread::of(masquerade), unit),
                figure("masquerade against plain tap", ratios, "ratio").budget(least, least),
            ]);
        }
        Ok(figures)
    }
}

impl Guest {
    fn start(agent: &Agent<'_, Node>, name: &str, manifest: &str) -> anyhow::Result<Self> {
        agent.apply(manifest)?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        let mut guest = Self {
            console: agent.console(name)?,
        };
        guest.console.read_until(GuestImage::PROMPT, PATIENCE)?;
        let fetched = guest.ask(&format!(
            "until wget -q -O /tmp/bench http://{NODE}:{WWW_PORT}/bench-guest; do usleep 200000; done; \
             chmod +x /tmp/bench && echo it is \"there\""
        ))?;
        ensure!(fetched.contains("it is there"), "{fetched}");
        Ok(guest)
    }

    fn ask(&mut self, command: &str) -> anyhow::Result<String> {
        self.console.write(format!("{command}\n").as_bytes())?;
        self.console.read_until(GuestImage::PROMPT, PATIENCE)
    }

    /// What one test comes to. Its connection is a new one, which is up before its time begins.
    fn talk(&mut self, test: &str, ms: u32) -> anyhow::Result<f64> {
        let said = self.ask(&format!("/tmp/bench net {NODE} {test} {ms}"))?;
        let value = said.lines().find_map(|line| {
            let (name, value) = line.trim_end().strip_prefix(FIGURE_LINE)?.split_once(' ')?;
            (name == test).then_some(value)
        });
        let value = value.with_context(|| format!("{test}: {said}"))?;
        value.parse().with_context(|| said.clone())
    }
}

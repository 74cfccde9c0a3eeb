//! Starts of guests with and without the pod network, on this machine's own KVM; and what the server of addresses takes.

use std::time::Duration;

use anyhow::ensure;
use integration::agent::{Agent, GuestSpec};
use integration::commands::Commands;
use integration::host::Host;

use crate::bench::agent;
use crate::bench::figure::{Better, Figure};
use crate::bench::guests::first_instructions;
use crate::bench::median::median;

const PATIENCE: Duration = Duration::from_secs(300);

/// Starts of each kind in turn, and how often it is their turn.
const BLOCK: usize = 10;
const BLOCKS: usize = 5;

/// Guests that are deleted by one command.
const AT_ONCE: usize = 20;

const KIB: f64 = 1024.0;

/// What a guest has of networks.
#[derive(Clone, Copy)]
enum Network {
    Nothing,
    /// A tap on a bridge of the configuration.
    Bridge,
    Pod,
}

impl Network {
    const ALL: [Self; 3] = [Self::Nothing, Self::Bridge, Self::Pod];

    fn manifest(self, name: &str) -> String {
        let guest = GuestSpec::testguest(name, "tests=none then=idle").on_pod_network();
        let bridged = guest.bridged_manifest(None);
        match self {
            Self::Nothing => guest.manifest().replace(
                "      rng: {}\n",
                "      rng: {}\n      autoattachPodInterface: false\n",
            ),
            Self::Bridge => bridged.replace("pod: {}", "multus:\n      networkName: lan"),
            Self::Pod => guest.manifest(),
        }
    }

    fn manifests(self, guests: u32) -> Vec<String> {
        (0..guests)
            .map(|number| self.manifest(&format!("guest-{number}")))
            .collect()
    }
}

/// An agent in a corner of this machine, measured from the side.
pub(super) fn figures(guests: u32) -> anyhow::Result<Vec<Figure>> {
    let host = Host::enter()?;
    let _disk = agent::ledger_on_disk(&host)?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let mut figures = one_by_one(&host)?;
    figures.extend(all_at_once(&host, &agent, guests)?);
    Ok(figures)
}

/// In turn, so that what else this machine does meets all of them.
fn one_by_one(host: &Host) -> anyhow::Result<Vec<Figure>> {
    let mut ms = [const { Vec::new() }; 3];
    for _ in 0..BLOCKS {
        for (network, ms) in Network::ALL.into_iter().zip(&mut ms) {
            host.put(
                "/run/bench.yaml",
                0o644,
                network.manifest("bench").as_bytes(),
            )?;
            ms.extend(first_instructions(host, BLOCK, "/run/bench.yaml")?);
        }
    }
    let [nothing, bridge, pod] = ms.map(|ms| median(&ms));
    let how = "gRPC client's send to testguest's first port write, median of 50, ten of each kind in turn; this machine's KVM";
    let figure = |name: &str, value| Figure::new(name, value, "ms", Better::Less).how(how);
    Ok(vec![
        figure("create to first instruction, no interface", nothing),
        figure("the same with a tap on a bridge", bridge),
        figure("the same on the pod network", pod),
        figure("what the pod network adds", pod - nothing).budget(10.0, 10.0),
    ])
}

fn all_at_once(host: &Host, agent: &Agent<'_, Host>, guests: u32) -> anyhow::Result<Vec<Figure>> {
    let without = agent::apply(host, agent, &Network::Nothing.manifests(guests))?;
    delete(host, agent, guests)?;
    let with = agent::apply(host, agent, &Network::Pod.manifests(guests))?;
    let (resident, anonymous) = server_kib(host)?;
    delete(host, agent, guests)?;
    let how = "kvmctl apply -f with all of them, 16 MiB each, until kvmctl get shows all Running";
    let figure = |name: &str, value| {
        let name = format!("{guests} at once{name}");
        Figure::new(&name, value, "s", Better::Less).how(how)
    };
    let server = |name: &str, kib: f64| {
        let name = format!("DHCP server of {guests} guests, {name}");
        Figure::new(&name, kib / KIB, "MiB", Better::Less)
            .how("VmRSS and RssAnon of kvmlet-dhcp while all of them run")
    };
    let most = 4.0 + f64::from(guests) / KIB;
    Ok(vec![
        figure(", no interface", without),
        figure(" on the pod network", with),
        figure(", what the pod network adds", with - without).budget(2.0, 2.0),
        server("resident memory", resident).budget(most, most),
        server("anonymous memory", anonymous),
    ])
}

/// KiB of the server of addresses: resident, and the anonymous part of it.
fn server_kib(host: &Host) -> anyhow::Result<(f64, f64)> {
    let script = "for process in /proc/[0-9]*; do \
         case $(readlink $process/exe) in */kvmlet-dhcp) \
         awk '/^VmRSS|^RssAnon/ {print $1, $2}' $process/status;; esac; done";
    let status = host.sh(script)?;
    let value = |name: &str| -> anyhow::Result<f64> {
        let lines: Vec<&str> = status
            .lines()
            .filter_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
            .collect();
        ensure!(lines.len() == 1, "there is not one server: {status:?}");
        Ok(lines.concat().parse()?)
    };
    Ok((value("VmRSS")?, value("RssAnon")?))
}

fn delete(host: &Host, agent: &Agent<'_, Host>, guests: u32) -> anyhow::Result<()> {
    let names: Vec<String> = (0..guests)
        .map(|number| format!("guest-{number}"))
        .collect();
    for some in names.chunks(AT_ONCE) {
        let order = format!("delete vmi {} --grace-period 0", some.join(" "));
        let deleted = agent.kvmctl(&order)?;
        ensure!(deleted.code == Some(0), "{order}: {deleted}");
    }
    host.wait_for("! pidof kvmlet-vmm", PATIENCE).map(drop)
}

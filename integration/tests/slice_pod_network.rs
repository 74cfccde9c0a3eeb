//! The pod network in a busybox node: a stock guest that names no network has an address, reaches the node, is reached
//! from it, and keeps its address.

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::{Context, ensure};
use integration::agent::{Agent, GuestSpec};
use integration::commands::{Commands, Session};
use integration::image::busybox::{self, GuestImage};
use integration::node::{Flavour, Node, NodeSpec};
use integration::soak::transfer::{self, Campaign};
use integration::testguest;
use integration::{skip, skip_if};

const PATIENCE: Duration = Duration::from_secs(300);

/// What the guest does until it has its address.
const HAS_ADDRESS: &str =
    "until ip addr show eth0 | grep -q 'inet 10.0.2.2/24'; do usleep 100000; done";

fn spec() -> anyhow::Result<NodeSpec> {
    let spec =
        NodeSpec::bare(Flavour::Busybox).with_programs(&["kvmlet", "kvmlet-vmm", "kvmctl"])?;
    Ok(spec
        .with(busybox::guest()?.directory, "images/busybox")
        .with(testguest::elf()?, "images/testguest"))
}

/// What the guest says to a command.
fn ask(console: &mut Session, command: &str) -> anyhow::Result<String> {
    console.write(format!("{command}\n").as_bytes())?;
    console.read_until(GuestImage::PROMPT, PATIENCE)
}

#[test]
fn a_guest_without_a_network_in_its_manifest_has_an_address_and_keeps_it() -> anyhow::Result<()> {
    skip_if!(skip::without_node(), Ok(()));
    let node = Node::boot(spec()?)?;
    let agent = Agent::prepare(&node)?;
    agent.add_image("/opt/payload/images/busybox/boot", "busybox")?;
    agent.add_image("/opt/payload/images/testguest", "testguest")?;
    // What the network of IPv6 addresses is made of.
    node.sh("echo 5a4d0b7c9f6e4e6f8d2a1c3b5d7e9f01 >/etc/machine-id")?;
    agent.start()?;
    let manifest = GuestSpec::busybox("web", "quiet").on_pod_network();
    let manifest = with_probe(&manifest.manifest(), "httpGet: {path: /page, port: 80}")?;
    agent.apply(&manifest)?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    let mut console = agent.console("web")?;
    console.read_until(GuestImage::PROMPT, PATIENCE)?;
    reach_the_node(&mut console).with_context(|| agent.log())?;
    let by_ipv6 = agent.value("web", ".status.interfaces[0].ipAddresses[1]")?;
    reach_by_ipv6(&mut console, &node, &by_ipv6).with_context(|| agent.log())?;

    let address = agent.value("web", ".status.interfaces[0].ipAddress")?;
    ensure!(address.starts_with("10.213."), "the address is {address}");
    let listed = agent.kvmctl("get vmi web")?;
    ensure!(listed.stdout.contains(&address), "{listed}");
    node.sh(&format!("ping -c 1 {address}"))?;
    ready_once_it_serves(&agent, "web", &mut console)?;
    let fetch = format!("wget -q -O - http://{address}/page");
    ensure!(node.sh(&fetch)? == "it works\n");

    ipv6_alone_will_do(&mut console, &node).with_context(|| agent.log())?;

    // A new agent answers the guest as the old one did.
    agent.kill()?;
    ensure!(
        node.sh(&fetch)? == "it works\n",
        "an agent that is away is seen"
    );
    agent.start()?;
    node.wait_for("pidof kvmlet | grep ' '", PATIENCE)?;
    let renewed = ask(
        &mut console,
        "udhcpc -i eth0 -s /etc/udhcpc -n -q -f -t 30 -T 1 2>&1",
    )?;
    ensure!(
        renewed.contains("lease of 10.0.2.2 obtained from 10.0.2.1"),
        "{renewed}"
    );
    let campaign = Campaign {
        seed: 4,
        kills: 3,
        bytes: 0,
        others: 2,
    };
    let tally = transfer::outlives_kills(&node, &agent, &mut console, campaign)?;
    ensure!(tally.kills == 3 && tally.others >= 1, "{tally:?}");
    println!("{tally:?}");
    drop(console);

    a_neighbour_is_bridged(&node, &agent, &address)?;
    let deleted = agent.kvmctl("delete vmi web --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    node.wait_for(
        "! pidof kvmlet-vmm && ! ls /sys/class/net | grep -v -x -e lo -e br0 -e kvmlet0",
        PATIENCE,
    )?;
    // The same name has the same address again.
    agent.apply(&manifest)?;
    agent.wait_for_phase("web", "Running", PATIENCE)?;
    let again = agent.value("web", ".status.interfaces[0].ipAddress")?;
    ensure!(again == address, "{again} is not {address}");
    Ok(())
}

/// The manifest of a guest that is ready when this succeeds.
fn with_probe(manifest: &str, probe: &str) -> anyhow::Result<String> {
    ensure!(manifest.contains("spec:\n"), "no spec in {manifest}");
    let probe = format!("spec:\n  readinessProbe:\n    {probe}\n    periodSeconds: 1\n");
    Ok(manifest.replacen("spec:\n", &probe, 1))
}

/// The guest is ready from when it serves a page, and not before.
fn ready_once_it_serves(
    agent: &Agent<'_, Node>,
    name: &str,
    console: &mut Session,
) -> anyhow::Result<()> {
    let ready = ".status.conditions[?(@.type==\"Ready\")].status";
    let ready = agent.value(name, ready)?;
    ensure!(
        ready == "False",
        "{name} serves nothing, and Ready is {ready}"
    );
    let page = "mkdir -p /tmp/www && echo it works >/tmp/www/page && httpd -p 80 -h /tmp/www";
    ask(console, page)?;
    let wait = format!("wait --for=condition=Ready vmi/{name} --timeout 120s");
    let waited = agent.kvmctl(&wait)?;
    ensure!(waited.code == Some(0), "{waited}\n{}", agent.log());
    Ok(())
}

/// The guest's kernel learns its router. It has no client of DHCPv6, so it is given what it would be offered.
fn reach_by_ipv6(console: &mut Session, node: &Node, address: &str) -> anyhow::Result<()> {
    ensure!(address.starts_with("fd"), "the address is {address}");
    let route = ask(
        console,
        "until ip -6 route | grep ^default; do usleep 100000; done",
    )?;
    ensure!(route.contains("default via fe80::"), "{route}");
    let usable = ask(
        console,
        "ip addr add fd10:0:2::2/120 dev eth0; while ip addr | grep tentative; do usleep 100000; done; ip addr show eth0",
    )?;
    ensure!(usable.contains("inet6 fd10:0:2::2/120"), "{usable}");
    let gateway = node.sh("ip -6 addr show dev kvmlet0 scope global | grep -o 'fd[^/]*'")?;
    let said = ask(console, &format!("ping -c 1 {}", gateway.trim()))?;
    ensure!(said.contains(" 0% packet loss"), "{said}");
    node.sh(&format!("ping -c 1 {address}"))?;
    Ok(())
}

/// A guest without its IPv4 address is reached by IPv6.
fn ipv6_alone_will_do(console: &mut Session, node: &Node) -> anyhow::Result<()> {
    ask(console, "killall udhcpc; ip -4 addr flush dev eth0")?;
    // Otherwise its VMM's network remembers that address for a while.
    node.sh("nsenter -n -t $(pidof kvmlet-vmm) ip neigh flush dev tap0")?;
    let forward = "kvmctl port-forward --stdio vmi/web 80";
    let page = node.sh(&format!(
        "printf 'GET /page HTTP/1.0\\r\\n\\r\\n' | {forward}"
    ))?;
    ensure!(page.contains("it works"), "{page}");
    let again = "udhcpc -i eth0 -s /etc/udhcpc -t 8 -T 2 -b -S >/dev/null 2>&1";
    ask(console, again)?;
    ask(console, HAS_ADDRESS).map(drop)
}

fn reach_the_node(console: &mut Session) -> anyhow::Result<()> {
    ask(console, HAS_ADDRESS)?;
    let route = ask(console, "ip route")?;
    ensure!(route.contains("default via 10.0.2.1 dev eth0"), "{route}");
    for node in ["10.0.2.1", "10.213.0.1", "10.77.0.1"] {
        let said = ask(console, &format!("ping -c 1 {node}"))?;
        ensure!(said.contains(" 0% packet loss"), "{said}");
    }
    Ok(())
}

/// A guest with `bridge` has the pool's address itself, and sees the node and another guest.
fn a_neighbour_is_bridged(
    node: &Node,
    agent: &Agent<'_, Node>,
    neighbour: &str,
) -> anyhow::Result<()> {
    let nic = "        bridge: {}\n";
    let manifest = GuestSpec::busybox("bridged", "quiet").bridged_manifest(None);
    let manifest = manifest.replace(nic, &format!("{nic}        acpiIndex: 101\n"));
    agent.apply(&with_probe(&manifest, "tcpSocket: {port: 80}")?)?;
    agent.wait_for_phase("bridged", "Running", PATIENCE)?;
    let mut console = agent.console("bridged")?;
    console.read_until(GuestImage::PROMPT, PATIENCE)?;
    let address = agent.value("bridged", ".status.interfaces[0].ipAddress")?;
    let shown = ask(
        &mut console,
        &format!("until ip addr show eth0 | grep 'inet {address}/16'; do usleep 100000; done"),
    )
    .with_context(|| agent.log())?;
    ensure!(shown.contains(&address), "{shown}");
    for other in ["10.213.0.1", neighbour] {
        let said = ask(&mut console, &format!("ping -c 1 {other}"))?;
        ensure!(said.contains(" 0% packet loss"), "{said}");
    }
    node.sh(&format!("ping -c 1 {address}"))?;
    // It asks the node, whose rules lead to the server that the node asks now.
    let asked = ask(
        &mut console,
        "printf '#!/bin/sh\\necho $1 asks $dns\\n' >/tmp/script && chmod +x /tmp/script && udhcpc -i eth0 -s /tmp/script -n -q -f -t 30 -T 1",
    )?;
    ensure!(asked.contains("bound asks 10.213.0.1"), "{asked}");
    // The NIC is a virtio device, and that one is of the PCI function that has a number.
    let number = ask(&mut console, "cat /sys/class/net/eth0/device/../acpi_index")?;
    ensure!(number.contains("\n101\r"), "{number:?}");
    ready_once_it_serves(agent, "bridged", &mut console)?;
    let deleted = agent.kvmctl("delete vmi bridged --grace-period 0")?;
    ensure!(deleted.code == Some(0), "{deleted}");
    Ok(())
}

//! A guest that lies, end to end: `testguest` sends forged frames by its card, each is dropped at the node's end and counted,
//! and a neighbour notices nothing.

#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::agent::{Agent, GuestSpec};
use integration::commands::{Commands, Session};
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(120);

/// Hardware addresses.
const LIAR: &str = "02:00:00:00:00:07";
const NEIGHBOUR: &str = "02:00:00:00:00:08";
const NOBODY: &str = "02:00:00:00:00:63";

/// In hexadecimal digits: the node's address, and one that nobody has.
const NODE: &str = "0ad50001";
const FREE: &str = "0ad5fffe";

/// A guest with its console.
struct Guest {
    console: Session,
    address: String,
}

impl Guest {
    fn start(agent: &Agent<'_, Host>, name: &str, mac: &str) -> anyhow::Result<Self> {
        let spec = GuestSpec::testguest(name, "tests=none then=frames");
        agent.apply(&spec.bridged_manifest(Some(mac)))?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        let mut console = agent.console(name)?;
        console.read_until(&format!("TESTGUEST frames mac={mac}"), PATIENCE)?;
        let address = agent.value(name, ".status.interfaces[0].ipAddress")?;
        Ok(Self { console, address })
    }

    /// Its address, as frames carry it.
    fn digits(&self) -> anyhow::Result<String> {
        let address: Ipv4Addr = self.address.parse()?;
        Ok(format!("{:08x}", u32::from(address)))
    }

    fn send(&mut self, frame: &str) -> anyhow::Result<()> {
        self.console.write(format!("{frame}\n").as_bytes())?;
        let sent = format!("TESTGUEST sent bytes={}", frame.len() / 2);
        self.console.read_until(&sent, PATIENCE).map(drop)
    }
}

fn digits(mac: &str) -> String {
    mac.replace(':', "")
}

/// A question by ARP (RFC 826): the frame's source, who says to be where, and who is asked for.
fn arp(source: &str, (mac, address): (&str, &str), asked: &str) -> String {
    let (source, mac) = (digits(source), digits(mac));
    format!(
        "ffffffffffff{source}0806{}",
        arp_behind((&mac, address), asked)
    )
}

fn arp_behind((mac, address): (&str, &str), asked: &str) -> String {
    format!("0001080006040001{mac}{address}000000000000{asked}")
}

/// A datagram without data. The header's sum has to be right, because bridges look at it where a node filters what they
/// pass on.
fn ipv4(mac: &str, (from, to): (&str, &str), ports: &str) -> anyhow::Result<String> {
    let start = "4500001c000000004011";
    let header = format!("{start}{from}{to}");
    let mut sum = 0;
    for word in header.as_bytes().chunks(4) {
        sum += u32::from_str_radix(std::str::from_utf8(word)?, 16)?;
    }
    let sum = !(sum + (sum >> 16)) & 0xffff;
    let mac = digits(mac);
    Ok(format!(
        "ffffffffffff{mac}0800{start}{sum:04x}{from}{to}{ports}00080000"
    ))
}

/// From the address that the liar's card would give itself, to all nodes.
fn ipv6(protocol: &str, rest: &str) -> String {
    let (mac, length) = (digits(LIAR), rest.len() / 2);
    let from = "fe80000000000000000000fffe000007";
    let to = "ff020000000000000000000000000001";
    format!("333300000001{mac}86dd60000000{length:04x}{protocol}ff{from}{to}{rest}")
}

/// What it sends, each with what it would forge.
fn lies(own: &str, other: &str) -> anyhow::Result<Vec<(&'static str, String)>> {
    let zeroes = "00".repeat(16);
    let about = |kind: &str| ipv6("3a", &format!("{kind}00000000000000{zeroes}"));
    let tagged = |tags: &str| {
        let mac = digits(LIAR);
        let honest = arp_behind((&mac, own), other);
        format!("ffffffffffff{mac}{tags}0806{honest}")
    };
    let ports = "13881388";
    Ok(vec![
        ("a neighbour's MAC", ipv4(NEIGHBOUR, (own, other), ports)?),
        ("nobody's MAC", ipv4(NOBODY, (own, other), ports)?),
        ("an IPv4 address", ipv4(LIAR, (FREE, other), ports)?),
        ("a neighbour's address", ipv4(LIAR, (other, NODE), ports)?),
        ("ARP for a neighbour", arp(LIAR, (LIAR, other), NODE)),
        ("ARP for the node", arp(LIAR, (LIAR, NODE), other)),
        (
            "ARP of a neighbour's card",
            arp(LIAR, (NEIGHBOUR, own), NODE),
        ),
        (
            "ARP in a neighbour's frame",
            arp(NEIGHBOUR, (LIAR, own), other),
        ),
        ("a DHCP offer", ipv4(LIAR, (own, other), "00430044")?),
        ("a DHCPv6 advertisement", ipv6("11", "0223022200080000")),
        ("a router", about("86")),
        ("a neighbour's advertisement", about("88")),
        ("a neighbour's question", about("87")),
        ("a redirection", about("89")),
        ("a VLAN", tagged("81000005")),
        ("a VLAN in a provider's", tagged("88a8000581000005")),
        (
            "a spanning tree",
            format!(
                "0180c2000000{}0026424203{}",
                digits(NEIGHBOUR),
                "00".repeat(35)
            ),
        ),
    ])
}

/// Packets that the rules at the node's end have dropped.
fn dropped(host: &Host) -> anyhow::Result<u64> {
    let counted = host.sh(
        "nft list table bridge kvmlet | sed -n 's/.*counter packets \\([0-9]*\\) .*drop/\\1/p' | \
         { sum=0; while read count; do sum=$((sum + count)); done; echo $sum; }",
    )?;
    Ok(counted.trim().parse()?)
}

#[test]
fn each_lie_of_a_guest_is_dropped_and_counted_and_its_neighbour_is_undisturbed()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    skip_if!(
        (!integration::tools::is_there("nft")).then(|| "nft is not installed".to_owned()),
        Ok(())
    );
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    agent.start()?;
    let mut liar = Guest::start(&agent, "liar", LIAR)?;
    let mut neighbour = Guest::start(&agent, "neighbour", NEIGHBOUR)?;
    lie(&host, &mut liar, &mut neighbour).with_context(|| agent.log())
}

fn lie(host: &Host, liar: &mut Guest, neighbour: &mut Guest) -> anyhow::Result<()> {
    let (own, other) = (liar.digits()?, neighbour.digits()?);
    // Where the node and its bridge know the neighbour to be.
    let known = format!(
        "ip neigh show {} | grep -q 'lladdr {NEIGHBOUR}' && bridge fdb show br kvmlet0 | grep '{NEIGHBOUR}'",
        neighbour.address
    );
    neighbour.send(&arp(NEIGHBOUR, (NEIGHBOUR, &other), NODE))?;
    let place = host.wait_for(&known, PATIENCE)?;
    for (what, frame) in lies(&own, &other)? {
        let before = dropped(host)?;
        liar.send(&frame)?;
        let until = Instant::now() + PATIENCE;
        while dropped(host)? == before {
            ensure!(Instant::now() < until, "{what} is not dropped");
            std::thread::sleep(Duration::from_millis(20));
        }
        let now = host.sh(&known).with_context(|| what)?;
        ensure!(
            now == place,
            "{what} moved the neighbour from {place} to {now}"
        );
    }
    // What is honest comes through, and it is the first that the neighbour hears of the liar.
    liar.send(&arp(LIAR, (LIAR, &own), &other))?;
    let from_liar = format!("TESTGUEST received from={LIAR} type=0806");
    let heard = neighbour.console.read_until(&from_liar, PATIENCE)?;
    for mac in [LIAR, NEIGHBOUR, NOBODY] {
        let count = heard.matches(&format!("received from={mac}")).count();
        ensure!(count == usize::from(mac == LIAR), "{mac}: {heard}");
    }
    Ok(())
}

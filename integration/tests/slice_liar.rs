//! A guest that lies, end to end: `testguest` sends forged frames by its NIC, each is dropped at the node's end and counted,
//! and a neighbour notices nothing.

#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::agent::{Agent, CONFIG, GuestSpec};
use integration::commands::{Commands, Session};
use integration::host::{self, Host};
use integration::skip_if;

const PATIENCE: Duration = Duration::from_secs(120);

/// Address at which the agent serves its metrics.
const METRICS: &str = "127.0.0.1:9773";

/// Hardware addresses.
const LIAR: &str = "02:00:00:00:00:07";
const NEIGHBOUR: &str = "02:00:00:00:00:08";
const NOBODY: &str = "02:00:00:00:00:63";
const TRUSTED: &str = "02:00:00:00:00:09";
const CONFIGURED: &str = "02:00:00:00:00:0a";

/// A network of the configuration that grants guests to do without walls, on the bridge of the one that does not.
const GRANTED: &str = "[networks.granted]\nbridge = \"br0\"\nwalls_off_for = [\"default\"]\n";

/// One that names all addresses of a guest, on the same bridge.
const NAMED: &str =
    "[networks.named]\nbridge = \"br0\"\naddresses.\"default/named\" = [\"10.77.0.10\"]\n";

/// A server of addresses on that bridge, which keeps one for the liar.
const SERVER: &str = "interface br0\nstart 10.77.0.7\nend 10.77.0.7\nstatic_lease 02:00:00:00:00:07 10.77.0.7\n\
                      lease_file /run/udhcpd.leases\npidfile /run/udhcpd.pid\noption lease 600\n";

/// Why not all is judged that a guest sends.
const WHY: &str = ".status.conditions[?(@.type==\"NetworkWallsIncomplete\")].reason";
const HOW: &str = ".status.conditions[?(@.type==\"NetworkWallsIncomplete\")].message";

/// In hexadecimal digits: the node's address on the pod network, and one that nobody has.
const NODE: &str = "0ad50001";
const FREE: &str = "0ad5fffe";

/// The same on the network of the configuration: the node's, and those that the guests there take.
const LAN_NODE: &str = "0a4d0001";
const LAN_LIAR: &str = "0a4d0007";
const LAN_NEIGHBOUR: &str = "0a4d0008";
const LAN_FREE: &str = "0a4d0063";
const LAN_CONFIGURED: &str = "0a4d000a";

/// The table of walls on it.
const LAN_TABLE: &str = "kvmlet-networks";

/// A guest with its console.
struct Guest {
    console: Session,
}

impl Guest {
    fn start(
        agent: &Agent<'_, Host>,
        (name, mac): (&str, &str),
        manifest: impl FnOnce(GuestSpec) -> anyhow::Result<String>,
    ) -> anyhow::Result<Self> {
        let spec = GuestSpec::testguest(name, "tests=none then=frames");
        agent.apply(&manifest(spec)?)?;
        agent.wait_for_phase(name, "Running", PATIENCE)?;
        let mut console = agent.console(name)?;
        console.read_until(&format!("TESTGUEST frames mac={mac}"), PATIENCE)?;
        Ok(Self { console })
    }

    /// With a NIC on the network of the configuration.
    fn on_lan(agent: &Agent<'_, Host>, name: &str, mac: &str) -> anyhow::Result<Self> {
        Self::start(agent, (name, mac), |spec| on_lan(&spec, mac))
    }

    /// With a NIC on the pod network; and its address there, as frames carry it.
    fn on_pod_network(
        agent: &Agent<'_, Host>,
        name: &str,
        mac: &str,
    ) -> anyhow::Result<(Self, String)> {
        let guest = Self::start(agent, (name, mac), |spec| {
            Ok(spec.bridged_manifest(Some(mac)))
        })?;
        let address = agent.value(name, ".status.interfaces[0].ipAddress")?;
        let address: Ipv4Addr = address.parse()?;
        Ok((guest, format!("{:08x}", u32::from(address))))
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
    let sum = sum_of(&format!("{start}{from}{to}"))?;
    let mac = digits(mac);
    Ok(format!(
        "ffffffffffff{mac}0800{start}{sum:04x}{from}{to}{ports}00080000"
    ))
}

/// The sum of a header of IPv4 in which it is left out (RFC 1071).
fn sum_of(header: &str) -> anyhow::Result<u32> {
    let mut sum = 0;
    for word in header.as_bytes().chunks(4) {
        sum += u32::from_str_radix(std::str::from_utf8(word)?, 16)?;
    }
    Ok(!(sum + (sum >> 16)) & 0xffff)
}

/// From the address that the liar's NIC would give itself, to all nodes.
fn ipv6(protocol: &str, rest: &str) -> String {
    let (mac, length) = (digits(LIAR), rest.len() / 2);
    let from = "fe80000000000000000000fffe000007";
    let to = "ff020000000000000000000000000001";
    format!("333300000001{mac}86dd60000000{length:04x}{protocol}ff{from}{to}{rest}")
}

/// What it sends on the pod network alone, each with what it would forge: addresses, which nobody else gives out.
fn lies_of_addresses(other: &str) -> anyhow::Result<Vec<Lie>> {
    let ports = "13881388";
    Ok(vec![
        ("an IPv4 address", ipv4(LIAR, (FREE, other), ports)?),
        ("a neighbour's address", ipv4(LIAR, (other, NODE), ports)?),
        ("ARP for a neighbour", arp(LIAR, (LIAR, other), NODE)),
        ("ARP for the node", arp(LIAR, (LIAR, NODE), other)),
        ("a neighbour's advertisement", icmpv6("88")),
        ("a neighbour's question", icmpv6("87")),
    ])
}

type Lie = (&'static str, String);

fn icmpv6(kind: &str) -> String {
    ipv6("3a", &format!("{kind}00000000000000{}", "00".repeat(16)))
}

/// A frame to a group of links (IEEE 802.1D, table 7-10).
fn to_group(last: &str, mac: &str, rest: &str) -> String {
    let mac = digits(mac);
    format!("0180c20000{last}{mac}{rest}{}", "00".repeat(46))
}

/// What it sends on any network, where the node has an address.
fn lies(network: &Network) -> anyhow::Result<Vec<Lie>> {
    let Network {
        own, other, node, ..
    } = network;
    let tagged = |tags: &str| {
        let mac = digits(LIAR);
        let honest = arp_behind((&mac, own), other);
        format!("ffffffffffff{mac}{tags}0806{honest}")
    };
    let ports = "13881388";
    Ok(vec![
        ("a neighbour's MAC", ipv4(NEIGHBOUR, (own, other), ports)?),
        ("nobody's MAC", ipv4(NOBODY, (own, other), ports)?),
        (
            "ARP of a neighbour's NIC",
            arp(LIAR, (NEIGHBOUR, own), node),
        ),
        (
            "ARP in a neighbour's frame",
            arp(NEIGHBOUR, (LIAR, own), other),
        ),
        ("a DHCP offer", ipv4(LIAR, (own, other), "00430044")?),
        ("a DHCPv6 advertisement", ipv6("11", "0223022200080000")),
        ("a router", icmpv6("86")),
        ("a redirection", icmpv6("89")),
        ("a VLAN", tagged("81000005")),
        ("a VLAN in a provider's", tagged("88a8000581000005")),
        ("a spanning tree", to_group("00", NEIGHBOUR, "0031424203")),
    ])
}

/// A network with two guests.
struct Network {
    /// The table of its walls.
    table: &'static str,
    bridge: &'static str,
    /// The liar, whose figures are looked at.
    name: &'static str,
    /// Addresses of the two, as frames carry them, and of the node.
    own: String,
    other: String,
    node: &'static str,
}

/// Frames that the rules of a table have dropped.
fn dropped(host: &Host, table: &str) -> anyhow::Result<u64> {
    let counted = host.sh(&format!(
        "nft list table bridge {table} | sed -n 's/.*counter packets \\([0-9]*\\) .*jump refuse/\\1/p' | \
         {{ sum=0; while read count; do sum=$((sum + count)); done; echo $sum; }}"
    ))?;
    Ok(counted.trim().parse()?)
}

/// How many of a guest's frames walls have dropped, by the agent's metrics.
fn measured(host: &Host, guest: &str) -> anyhow::Result<u64> {
    let measured = host.sh(&format!(
        "busybox wget -q -O - http://{METRICS}/metrics | \
         sed -n '/^kvmlet_vmi_network_refused_frames_total{{.*name=\"{guest}\"/s/.* //p'"
    ))?;
    let whole = measured.trim().trim_end_matches(".0");
    whole
        .parse()
        .with_context(|| format!("{guest}: {measured:?}"))
}

#[test]
fn each_lie_of_a_guest_is_dropped_and_counted_and_its_neighbour_is_undisturbed()
-> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let missing = ["nft", "busybox"].into_iter();
    let mut missing = missing.filter(|tool| !integration::tools::is_there(tool));
    skip_if!(
        missing
            .next()
            .map(|tool| format!("{tool} is not installed")),
        Ok(())
    );
    let host = Host::enter()?;
    let agent = Agent::prepare(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    host.sh(&format!(
        "printf '[metrics]\\nlisten = \"{METRICS}\"\\n{GRANTED}{NAMED}' >> {CONFIG}"
    ))?;
    agent.start()?;
    lie_on_pod_network(&host, &agent)
        .and_then(|()| lie_under_masquerade(&host, &agent))
        .and_then(|()| lie_on_lan(&host, &agent))
        .with_context(|| agent.log())
}

fn lie_on_pod_network(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let (mut liar, own) = Guest::on_pod_network(agent, "liar", LIAR)?;
    let (mut neighbour, other) = Guest::on_pod_network(agent, "neighbour", NEIGHBOUR)?;
    let network = Network {
        table: "kvmlet",
        bridge: "kvmlet0",
        name: "liar",
        node: NODE,
        own,
        other,
    };
    let mut all = lies(&network)?;
    all.extend(lies_of_addresses(&network.other)?);
    lie(host, &network, (&mut liar, &mut neighbour), &all)?;
    // A request for an address without anything in it, to the server of the pod network.
    liar.send(&ipv4(LIAR, ("00000000", "ffffffff"), "00440043")?)?;
    let counted = format!(
        "busybox wget -q -O - http://{METRICS}/metrics | \
         grep '^kvmlet_vmi_dhcp_requests_dropped_total{{.*name=\"liar\".*reason=\"malformed\"}} 1'"
    );
    host.wait_for(&counted, PATIENCE).map(drop)
}

/// By a guest whose manifest says nothing of networks: its VMM's namespace lets out its own address alone.
fn lie_under_masquerade(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let mut masked = Guest::start(agent, ("masked", ""), |spec| {
        Ok(spec.on_pod_network().manifest())
    })?;
    let own = agent.value("masked", ".status.interfaces[0].mac")?;
    masked.send(&arp(&own, (&own, "0a000202"), "0a000201"))?;
    let console = &mut masked.console;
    console.read_until("TESTGUEST received from=", PATIENCE)?;
    // Nobody else is there, whatever it sends first.
    let gateway = console.read_until(" type=", PATIENCE)?;
    let gateway = gateway.trim_end_matches(" type=");
    let forged = ipv4(&own, (FREE, NODE), "13881388")?;
    masked.send(&forged.replacen("ffffffffffff", &digits(gateway), 1))?;
    let counted = format!(
        "busybox wget -q -O - http://{METRICS}/metrics | \
         grep '^kvmlet_vmi_network_refused_frames_total{{.*name=\"masked\".* [1-9]'"
    );
    host.wait_for(&counted, PATIENCE).map(drop)
}

/// On a bridge whose addresses somebody else gives out.
fn lie_on_lan(host: &Host, agent: &Agent<'_, Host>) -> anyhow::Result<()> {
    let mut liar = Guest::on_lan(agent, "lan-liar", LIAR)?;
    let mut neighbour = Guest::on_lan(agent, "lan-neighbour", NEIGHBOUR)?;
    let network = Network {
        table: LAN_TABLE,
        bridge: "br0",
        name: "lan-liar",
        node: LAN_NODE,
        own: LAN_LIAR.to_owned(),
        other: LAN_NEIGHBOUR.to_owned(),
    };
    let mut all = lies(&network)?;
    // On the pod network the bridge in the VMM's namespace keeps these to itself.
    all.extend([
        ("LLDP from its own NIC", to_group("0e", LIAR, "88cc")),
        ("a log-in at a port", to_group("03", LIAR, "888e")),
    ]);
    lie(host, &network, (&mut liar, &mut neighbour), &all)?;
    let why = agent.value("lan-liar", WHY)?;
    ensure!(why == "AddressesUnknown", "{why}");
    // Who asks to do without on a node that grants it to nobody does not start.
    let bold = on_lan(
        &GuestSpec::testguest("bold", "tests=none then=idle"),
        NOBODY,
    )?;
    agent.apply(&without_walls(&bold)?)?;
    let refused = "kvmctl get vmi bold -o 'jsonpath={.status.conditions[?(@.type==\"Synchronized\")]}' | \
                   grep NetworkNotReady | grep networks.lan.walls_off_for";
    host.wait_for(refused, PATIENCE)?;
    judged_by_its_lease(host, agent, (&mut liar, &mut neighbour))?;
    judged_as_configured(host, agent, &mut neighbour)?;
    are_off_where_granted(host, agent, &mut neighbour)
}

/// A client's request for its address of before (RFC 2131, section 4.3.2), to be answered to everybody.
fn request(mac: &str, address: &str) -> anyhow::Result<String> {
    let client = format!("{}{}", digits(mac), "00".repeat(10));
    let options = format!("638253633501033204{address}ff");
    let zeroes = |bytes| "00".repeat(bytes);
    // op, htype, hlen, hops, xid; secs, flags; then four addresses, the client, and the names of a server and a file.
    let message = format!(
        "0101060000000007{}8000{}{client}{}{options}",
        "0000",
        zeroes(16),
        zeroes(192)
    );
    let udp = 8 + message.len() / 2;
    let whole = 20 + udp;
    let header = format!("4500{whole:04x}000000004011");
    let sum = sum_of(&format!("{header}00000000ffffffff"))?;
    Ok(format!(
        "ffffffffffff{}0800{header}{sum:04x}00000000ffffffff00440043{udp:04x}0000{message}",
        digits(mac)
    ))
}

/// From when a server has given the guest its address, it has no other.
fn judged_by_its_lease(
    host: &Host,
    agent: &Agent<'_, Host>,
    (liar, neighbour): (&mut Guest, &mut Guest),
) -> anyhow::Result<()> {
    let how = agent.value("lan-liar", HOW)?;
    ensure!(how.contains("(IPv4 and IPv6)"), "{how}");
    liar.send(&arp(LIAR, (LIAR, LAN_FREE), LAN_NEIGHBOUR))?;
    let passed = format!("TESTGUEST received from={LIAR} type=0806");
    neighbour.console.read_until(&passed, PATIENCE)?;
    host.put("/run/udhcpd.conf", 0o644, SERVER.as_bytes())?;
    host.sh("touch /run/udhcpd.leases && busybox udhcpd /run/udhcpd.conf")?;
    liar.send(&request(LIAR, LAN_LIAR)?)?;
    let judged = "kvmctl get vmi lan-liar -o 'jsonpath={.status.conditions[?(@.type==\"NetworkWallsIncomplete\")].message}' | \
                  grep '(IPv6)'";
    host.wait_for(judged, PATIENCE)?;
    let other = arp(LIAR, (LIAR, LAN_FREE), LAN_NEIGHBOUR);
    is_dropped((host, LAN_TABLE), liar, ("another address", &other))?;
    liar.send(&arp(LIAR, (LIAR, LAN_LIAR), LAN_NEIGHBOUR))?;
    neighbour.console.read_until(&passed, PATIENCE).map(drop)
}

/// A guest whose addresses the configuration names has no others, and nothing is missing from its walls.
fn judged_as_configured(
    host: &Host,
    agent: &Agent<'_, Host>,
    neighbour: &mut Guest,
) -> anyhow::Result<()> {
    let mut named = Guest::start(agent, ("named", CONFIGURED), |spec| {
        Ok(on_lan(&spec, CONFIGURED)?.replace("networkName: lan", "networkName: named"))
    })?;
    let judged = "test -z \"$(kvmctl get vmi named -o 'jsonpath={.status.conditions[?(@.type==\"NetworkWallsIncomplete\")].reason}')\"";
    host.wait_for(judged, PATIENCE)?;
    let other = arp(CONFIGURED, (CONFIGURED, LAN_FREE), LAN_NEIGHBOUR);
    is_dropped((host, LAN_TABLE), &mut named, ("another address", &other))?;
    let own = arp(CONFIGURED, (CONFIGURED, LAN_CONFIGURED), LAN_NEIGHBOUR);
    named.send(&own)?;
    let passed = format!("TESTGUEST received from={CONFIGURED} type=0806");
    neighbour.console.read_until(&passed, PATIENCE).map(drop)
}

/// What was a lie comes to the neighbour from a guest that asks to do without walls where the node grants it.
fn are_off_where_granted(
    host: &Host,
    agent: &Agent<'_, Host>,
    neighbour: &mut Guest,
) -> anyhow::Result<()> {
    let mut trusted = Guest::start(agent, ("trusted", TRUSTED), |spec| {
        let manifest = without_walls(&on_lan(&spec, TRUSTED)?)?;
        let there = "networkName: lan";
        ensure!(manifest.contains(there), "no network in {manifest}");
        Ok(manifest.replace(there, "networkName: granted"))
    })?;
    let why = agent.value("trusted", WHY)?;
    ensure!(why == "WallsOff", "{why}");
    let before = dropped(host, LAN_TABLE)?;
    trusted.send(&arp(NOBODY, (NOBODY, LAN_FREE), LAN_NEIGHBOUR))?;
    let forged = format!("TESTGUEST received from={NOBODY} type=0806");
    neighbour.console.read_until(&forged, PATIENCE)?;
    let now = dropped(host, LAN_TABLE)?;
    ensure!(now == before, "{} frames were dropped", now - before);
    Ok(())
}

/// The manifest with the request that nothing is judged.
fn without_walls(manifest: &str) -> anyhow::Result<String> {
    let asks = "metadata:\n  annotations:\n    networks.kvmlet.io/walls: \"off\"\n";
    ensure!(
        manifest.contains("metadata:\n"),
        "no metadata in {manifest}"
    );
    Ok(manifest.replacen("metadata:\n", asks, 1))
}

/// The manifest of a guest with a NIC on the network of the configuration.
fn on_lan(spec: &GuestSpec, mac: &str) -> anyhow::Result<String> {
    let nic = "      - name: lan\n        bridge: {}\n";
    let manifest = spec.manifest();
    ensure!(manifest.contains(nic), "no NIC in {manifest}");
    Ok(manifest.replace(nic, &format!("{nic}        macAddress: \"{mac}\"\n")))
}

/// Sends a frame that the rules of a table drop.
fn is_dropped(
    (host, table): (&Host, &str),
    guest: &mut Guest,
    (what, frame): (&str, &str),
) -> anyhow::Result<()> {
    let before = dropped(host, table)?;
    guest.send(frame)?;
    let until = Instant::now() + PATIENCE;
    while dropped(host, table)? == before {
        ensure!(Instant::now() < until, "{what} is not dropped");
        // Nobody reports it as it happens: the kernel counts.
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn lie(
    host: &Host,
    network: &Network,
    (liar, neighbour): (&mut Guest, &mut Guest),
    lies: &[Lie],
) -> anyhow::Result<()> {
    let Network {
        table,
        bridge,
        name,
        own,
        other,
        node,
    } = network;
    // Where the node and its bridge know the neighbour to be.
    let address = Ipv4Addr::from(u32::from_str_radix(other, 16)?);
    let known = format!(
        "ip neigh show {address} | grep -q 'lladdr {NEIGHBOUR}' && bridge fdb show br {bridge} | grep '{NEIGHBOUR}'"
    );
    neighbour.send(&arp(NEIGHBOUR, (NEIGHBOUR, other), node))?;
    let place = host.wait_for(&known, PATIENCE)?;
    for (what, frame) in lies {
        is_dropped((host, table), liar, (what, frame))?;
        let now = host.sh(&known).with_context(|| what.to_string())?;
        ensure!(
            now == place,
            "{what} moved the neighbour from {place} to {now}"
        );
    }
    let (all, of_liar) = (u64::try_from(lies.len())?, measured(host, name)?);
    ensure!(of_liar >= all, "{all} lies, and {of_liar} by the metrics");
    // What is honest comes through, and it is the first that the neighbour hears of the liar.
    liar.send(&arp(LIAR, (LIAR, own), other))?;
    let from_liar = format!("TESTGUEST received from={LIAR} type=0806");
    let heard = neighbour.console.read_until(&from_liar, PATIENCE)?;
    for mac in [LIAR, NEIGHBOUR, NOBODY] {
        let count = heard.matches(&format!("received from={mac}")).count();
        ensure!(count == usize::from(mac == LIAR), "{mac}: {heard}");
    }
    Ok(())
}

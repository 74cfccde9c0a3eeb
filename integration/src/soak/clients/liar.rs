//! A stock guest that lies: Debian's scapy forges frames on both networks of a node, and a guest of the same kind is their
//! neighbour. Each lie is dropped and counted, none comes to the neighbour, and the node goes on speaking to it.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};

use super::place::{ClientNodes, LAN, METRICS, PATIENCE, POD, Shell, TREE};
use crate::commands::Commands;

/// Frames of each lie.
const TIMES: u64 = 3;

/// Hardware addresses of the liar and its neighbour, on the pod network and on the bridge with dnsmasq.
const LIAR: [&str; 2] = ["02:00:00:00:00:07", "02:00:00:00:01:07"];
const NEIGHBOUR: [&str; 2] = ["02:00:00:00:00:08", "02:00:00:00:01:08"];

/// Lies on any network.
const EVERYWHERE: [&str; 14] = [
    "mac-of-neighbour",
    "mac-of-nobody",
    "arp-of-neighbours-nic",
    "arp-in-neighbours-frame",
    "arp-for-neighbour",
    "arp-for-node",
    "ipv4-of-nobody",
    "ipv4-of-neighbour",
    "router-advertisement",
    "redirect",
    "dhcp-offer",
    "dhcpv6-advertisement",
    "vlan",
    "spanning-tree",
];

/// Those that are lies where the node gives out all addresses: the pod network.
const OF_POOL: [&str; 4] = [
    "ipv6-of-neighbour",
    "nd-advertisement",
    "nd-solicitation",
    "vlan-in-a-providers",
];

/// Those of a guest whose gateway is in its own namespace: only packets leave it.
const MASQUERADED: [&str; 2] = ["ipv4-of-nobody", "ipv4-of-neighbour"];

/// Adds up the frames that rules have refused, in what nft(8) lists. Rules that drop for other reasons do not count.
const REFUSED: &str = "sed -n 's/.*counter packets \\([0-9]*\\) .*jump refuse/\\1/p' | \
                       { sum=0; while read count; do sum=$((sum + count)); done; echo $sum; }";

/// A network as the campaign sees it.
struct Joined {
    name: &'static str,
    /// Its number among the NICs of both guests.
    nic: usize,
    table: &'static str,
    bridge: &'static str,
    node: &'static str,
    /// Addresses that nobody has.
    free: &'static str,
    lies: Vec<&'static str>,
}

fn networks() -> [Joined; 2] {
    [
        Joined {
            name: "pod network",
            nic: 0,
            table: "kvmlet",
            bridge: "kvmlet0",
            node: "10.213.0.1",
            free: "10.213.255.254",
            lies: EVERYWHERE.into_iter().chain(OF_POOL).collect(),
        },
        Joined {
            name: "bridge with dnsmasq",
            nic: 1,
            table: "kvmlet-networks",
            bridge: "br0",
            node: "10.77.0.1",
            free: "10.77.0.99",
            lies: EVERYWHERE.to_vec(),
        },
    ]
}

/// Counts of one network.
#[derive(Debug)]
pub struct Outcome {
    /// As the campaign calls it: `pod network`, `bridge with dnsmasq` or `masquerade`.
    pub network: &'static str,
    /// Forged frames, each sent several times.
    pub lies: usize,
    /// Frames of the liar that rules have dropped there.
    pub dropped: u64,
    /// Pings of the node that the neighbour answered meanwhile; `None` where it has no neighbour.
    pub pings: Option<u64>,
}

/// Boots nodes and guests, and has one lie.
///
/// # Errors
/// At the first lie that is not dropped and counted, and when the neighbour was disturbed.
pub fn lie(progress: &mut dyn FnMut(&str)) -> anyhow::Result<Vec<Outcome>> {
    let place = ClientNodes::boot()?;
    progress("both nodes run, and the package is installed");
    let mut neighbour = start(&place, "neighbour", NEIGHBOUR)?;
    let mut liar = start(&place, "liar", LIAR)?;
    progress("both guests run");
    let mut all = Vec::new();
    for network in networks() {
        let outcome = lie_on(&place, &network, (&mut liar, &mut neighbour))
            .with_context(|| network.name)
            .with_context(|| place.agent().log())?;
        progress(&line(&outcome));
        all.push(outcome);
    }
    place.remove("liar")?;
    let outcome = lie_behind_masquerade(&place)?;
    progress(&line(&outcome));
    all.push(outcome);
    Ok(all)
}

/// A network as one line.
#[must_use]
pub fn line(outcome: &Outcome) -> String {
    let Outcome {
        network,
        lies,
        dropped,
        pings,
    } = outcome;
    let heard = pings.map_or_else(String::new, |pings| {
        format!(", none heard, {pings} pings answered")
    });
    format!("{network}: {lies} lies, each {TIMES} times; {dropped} frames dropped{heard}")
}

/// A guest with NICs on both networks.
fn start(place: &ClientNodes, name: &str, macs: [&str; 2]) -> anyhow::Result<Shell> {
    let [pod, lan] = macs;
    let interfaces = format!(
        "      - {{name: default, bridge: {{}}, macAddress: \"{pod}\"}}\n      - {{name: lan, bridge: {{}}, macAddress: \"{lan}\"}}\n"
    );
    place.start(name, "scapy", &interfaces, &format!("{POD}{LAN}"))
}

/// A guest's address on one of its NICs.
fn address(shell: &mut Shell, nic: usize, family: &str) -> anyhow::Result<String> {
    let show = format!(
        "ip -o {family} addr show dev eth{nic} scope {} | sed 's/.*inet6* //; s,/.*,,'",
        if family == "-6" { "link" } else { "global" }
    );
    shell.ask_until(&show, PATIENCE, |output| output.contains(['.', ':']))
}

fn lie_on(
    place: &ClientNodes,
    network: &Joined,
    (liar, neighbour): (&mut Shell, &mut Shell),
) -> anyhow::Result<Outcome> {
    let nic = network.nic;
    let own = [address(liar, nic, "-4")?, address(liar, nic, "-6")?];
    let other = [
        address(neighbour, nic, "-4")?,
        address(neighbour, nic, "-6")?,
    ];
    if network.table == "kvmlet-networks" {
        are_judged_by_leases(place)?;
    }
    let [mac, of_neighbour] = [LIAR, NEIGHBOUR].map(|macs| macs.get(nic).copied());
    let (mac, of_neighbour) = mac.zip(of_neighbour).context("no such NIC")?;
    know(liar, network, (&own, &other), of_neighbour)?;
    know(neighbour, network, (&other, &own), mac)?;
    ensure!(neighbour.ask("listen")? == "listening", "nobody listens");

    let [address, _] = &other;
    let known = format!(
        "ip neigh show {address} | grep -o 'lladdr {of_neighbour}' && bridge fdb show br {} | grep '{of_neighbour}.*master'",
        network.bridge
    );
    place.node.sh(&format!(
        "setsid chroot {TREE} ping -i 0.5 {address} </dev/null >/run/pings 2>&1 & echo $! >/run/pinger"
    ))?;
    let before = place.node.wait_for(&known, PATIENCE)?;
    let list = format!("nft list table bridge {}", network.table);
    let count = || dropped(place, &list);
    let dropped = each_is_counted(place, ("liar", liar), (&network.lies, &count), |lie| {
        let now = place.node.sh(&known).with_context(|| lie.to_owned())?;
        ensure!(now == before, "{lie} moved the neighbour to {now}");
        Ok(())
    })?;
    let pings = pings(place)?;
    only_honest_frame_arrives(liar, neighbour, mac)?;
    Ok(Outcome {
        network: network.name,
        lies: network.lies.len(),
        dropped,
        pings: Some(pings),
    })
}

/// Tells each lie, whose frames the rules have to count, and the agent's metrics in the end; how many frames that were.
fn each_is_counted(
    place: &ClientNodes,
    (name, liar): (&str, &mut Shell),
    (lies, count): (&[&str], &dyn Fn() -> anyhow::Result<u64>),
    check: impl Fn(&str) -> anyhow::Result<()>,
) -> anyhow::Result<u64> {
    let (start, measured) = (count()?, measured(place, name)?);
    for lie in lies {
        let before = count()?;
        let sent = liar.ask(&format!("lie {lie} {TIMES}"))?;
        ensure!(sent == format!("sent {TIMES}"), "{lie}: {sent}");
        until(
            || Ok(count()? >= before + TIMES),
            || format!("{lie} is not dropped and counted"),
        )?;
        check(lie)?;
    }
    let all = TIMES * u64::try_from(lies.len())?;
    until(
        || Ok(self::measured(place, name)? >= measured + all),
        || format!("{all} frames with lies were sent, and the metrics count fewer"),
    )?;
    Ok(count()? - start)
}

/// An honest frame comes to the neighbour, and is the only one of the liar's program that ever did.
fn only_honest_frame_arrives(
    liar: &mut Shell,
    neighbour: &mut Shell,
    mac: &str,
) -> anyhow::Result<()> {
    ensure!(liar.ask("truth")? == "sent 1", "no honest frame was sent");
    // The neighbour hears within a moment of the answer; what comes later than that was not sent yet.
    std::thread::sleep(Duration::from_secs(5));
    let output = neighbour.ask("heard")?;
    ensure!(
        output == format!("heard {mac}"),
        "{output}, and not {mac} alone"
    );
    for shell in [liar, neighbour] {
        shell.leave()?;
    }
    Ok(())
}

/// Starts the program of a guest and has it know who is where.
fn know(
    shell: &mut Shell,
    network: &Joined,
    ([own, own6], [other, other6]): (&[String; 2], &[String; 2]),
    of_other: &str,
) -> anyhow::Result<()> {
    let (nic, node, free) = (network.nic, network.node, network.free);
    shell.ask(&format!("lies eth{nic}"))?;
    let output = shell.ask(&format!(
        "know own={own} own6={own6} neighbour={other} neighbour6={other6} neighbour_mac={of_other} node={node} free={free}"
    ))?;
    ensure!(output.starts_with("02:"), "{output}");
    Ok(())
}

/// On a bridge whose server is somebody else's, the walls of IPv4 addresses hold from the first acknowledgement.
fn are_judged_by_leases(place: &ClientNodes) -> anyhow::Result<()> {
    for name in ["liar", "neighbour"] {
        let judged = format!(
            "kvmctl get vmi {name} -o 'jsonpath={{.status.conditions[?(@.type==\"NetworkWallsIncomplete\")].message}}' | grep '(IPv6)'"
        );
        place.node.wait_for(&judged, PATIENCE)?;
    }
    Ok(())
}

/// Ends the pings of the node, of which each was answered.
fn pings(place: &ClientNodes) -> anyhow::Result<u64> {
    // A shell cannot wait for a process that is not its child, so it looks again.
    let output = place.node.sh(
        "kill -INT $(cat /run/pinger); while kill -0 $(cat /run/pinger) 2>/dev/null; do sleep 0.1; done; cat /run/pings",
    )?;
    let summary = output
        .lines()
        .find(|line| line.contains("packets transmitted"));
    let summary = summary.with_context(|| format!("no summary: {output}"))?;
    let mut numbers = summary
        .split(|character: char| !character.is_ascii_digit())
        .filter_map(|word| word.parse::<u64>().ok());
    let (sent, answered) = numbers
        .next()
        .zip(numbers.next())
        .context(summary.to_owned())?;
    // One may be on its way.
    ensure!(answered > 0 && answered + 1 >= sent, "{summary}");
    Ok(answered)
}

/// What leaves the namespace of a guest under masquerade has the guest's own source.
fn lie_behind_masquerade(place: &ClientNodes) -> anyhow::Result<Outcome> {
    // Namespaces of bridged guests have no such chain.
    const LIST: &str = "for vmm in $(pidof kvmlet-vmm); do \
                        nsenter --net --target $vmm nft list chain inet kvmlet forward 2>/dev/null; done";
    const ROUTER: &str = "for vmm in $(pidof kvmlet-vmm); do \
                          nsenter --net --target $vmm nft list chain inet kvmlet forward >/dev/null 2>&1 && \
                          nsenter --net --target $vmm ip -o link show dev tap0; done | \
                          sed -n 's,.*link/ether \\([0-9a-f:]*\\).*,\\1,p'";
    let interface = "      - name: default\n        masquerade: {}\n";
    let mut liar = place.start("masked", "scapy", interface, POD)?;
    address(&mut liar, 0, "-4")?;
    let mac = liar.ask("cat /sys/class/net/eth0/address")?;
    let neighbour = place.addresses_of("neighbour")?;
    let neighbour = neighbour
        .first()
        .context("the neighbour has no address")?
        .to_string();
    let router = place.node.sh(ROUTER)?;
    liar.ask("lies eth0")?;
    let output = liar.ask(&format!(
        "know own=10.0.2.2 neighbour={neighbour} free=10.213.255.254 node=10.213.0.1 router_mac={}",
        router.trim()
    ))?;
    ensure!(output == mac, "{output} is not {mac}");
    let count = || dropped(place, LIST);
    let liar = ("masked", &mut liar);
    let dropped = each_is_counted(place, liar, (&MASQUERADED, &count), |_| Ok(()))?;
    Ok(Outcome {
        network: "masquerade",
        lies: MASQUERADED.len(),
        dropped,
        pings: None,
    })
}

/// Frames that the rules have refused which a command of the node lists.
fn dropped(place: &ClientNodes, list: &str) -> anyhow::Result<u64> {
    let counted = place.node.sh(&format!("{list} | {REFUSED}"))?;
    Ok(counted.trim().parse()?)
}

/// How many of a guest's frames were refused on all its networks, by the agent's metrics.
fn measured(place: &ClientNodes, guest: &str) -> anyhow::Result<u64> {
    let measured = place.beside(&format!(
        "busybox wget -q -O - http://{METRICS}/metrics | \
         sed -n '/^kvmlet_vmi_network_refused_frames_total{{.*name=\"{guest}\"/s/.* //p'"
    ))?;
    let mut sum = 0;
    for line in measured.lines() {
        sum += line.trim().trim_end_matches(".0").parse::<u64>()?;
    }
    Ok(sum)
}

/// Waits until something is so.
fn until(
    mut is_so: impl FnMut() -> anyhow::Result<bool>,
    otherwise: impl Fn() -> String,
) -> anyhow::Result<()> {
    let limit = Instant::now() + PATIENCE;
    while !is_so()? {
        ensure!(Instant::now() < limit, "{}", otherwise());
        // The kernel counts, and reports nothing.
        std::thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

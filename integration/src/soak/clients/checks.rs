//! The ways in which every guest is looked at.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use anyhow::{Context, ensure};

use super::place::{ClientNodes, NAME, NODE, OUTSIDE, PEER_ON_BRIDGE, PORT, Shell};
use super::roster::{Client, Network};
use crate::commands::Commands;

/// How long a client that has come up may take to have all that it asked for.
const PATIENCE: Duration = Duration::from_secs(180);

/// The gateway of every guest under masquerade.
const GATEWAY: [&str; 2] = ["10.0.2.1", "fd10:0:2::1"];

/// The gateway of guests on the bridge with dnsmasq.
const BRIDGE: [&str; 2] = ["10.77.0.1", "fd00:77::1"];

/// Gives what was seen, or why that is wrong.
type Check = fn(&mut Guest<'_>) -> anyhow::Result<String>;

/// All checks, in their order: the first finds addresses that later ones use.
pub(super) const CHECKS: [(&str, Check); 8] = [
    ("address", address),
    ("name", name),
    ("tcp", |guest| outwards(guest, "tcp")),
    ("udp", |guest| outwards(guest, "udp")),
    ("icmp", icmp),
    ("ports", ports),
    ("port-forward", port_forward),
    ("guest to guest", guest_to_guest),
];

/// A guest that runs, and whom it is looked at with.
pub(super) struct Guest<'a> {
    place: &'a ClientNodes,
    client: &'static Client,
    shell: Shell,
    peer: &'a mut Shell,
    /// Where others find it, in both families.
    reached_at: Vec<IpAddr>,
}

impl<'a> Guest<'a> {
    pub(super) fn start(
        place: &'a ClientNodes,
        client: &'static Client,
        peer: &'a mut Shell,
    ) -> anyhow::Result<Self> {
        Ok(Self {
            shell: place.start_client(client)?,
            place,
            client,
            peer,
            reached_at: Vec::new(),
        })
    }

    /// How long it took to come to its prompt.
    pub(super) fn took(&self) -> String {
        format!("{} s", self.shell.took.as_secs())
    }

    fn is_on_pod_network(&self) -> bool {
        self.client.network == Network::Pod
    }

    /// Of a pair of addresses, those of families that the client asks for.
    fn of_its_families<T>(&self, pair: [T; 2]) -> impl Iterator<Item = T> + use<T> {
        let wanted = [self.client.has_v4(), self.client.has_v6()];
        let both = pair.into_iter().zip(wanted);
        both.filter_map(|(item, is_wanted)| is_wanted.then_some(item))
    }

    /// Where it is reached in the families that it has.
    fn places(&self) -> anyhow::Result<Vec<IpAddr>> {
        let client = self.client;
        let has = |place: &IpAddr| match place {
            IpAddr::V4(_) => client.has_v4(),
            IpAddr::V6(_) => client.has_v6(),
        };
        let places: Vec<IpAddr> = self.reached_at.iter().copied().filter(has).collect();
        ensure!(!places.is_empty(), "its addresses are not known");
        Ok(places)
    }
}

/// It has the addresses that it must have, and none besides.
fn address(guest: &mut Guest<'_>) -> anyhow::Result<String> {
    const SHOW: &str = "ip -o addr show dev eth0 scope global";
    let has = |shown: &str| {
        let addresses = addresses(shown);
        let of = |is_v6: bool| addresses.iter().any(|(ip, _)| ip.is_ipv6() == is_v6);
        !shown.contains("tentative")
            && of(false) == guest.client.has_v4()
            && of(true) == guest.client.has_v6()
    };
    let shown = guest.shell.ask_until(SHOW, PATIENCE, has)?;
    let found = addresses(&shown);
    for (ip, bits) in &found {
        let is_right = match (guest.client.network, ip.to_string().as_str(), bits) {
            // DHCPv6 names no network, and clients take the address alone (RFC 8415).
            (Network::Pod, "10.0.2.2", 24) | (Network::Pod, "fd10:0:2::2", 120 | 128) => true,
            (Network::Dnsmasq, given, 24) => given.starts_with("10.77.0.1"),
            (Network::Dnsmasq, given, 64 | 128) => given.starts_with("fd00:77::1"),
            _ => false,
        };
        ensure!(is_right, "{ip}/{bits} is not what it must have: {shown}");
    }
    let families = found.iter().filter(|(ip, _)| ip.is_ipv4()).count();
    ensure!(
        families <= 1 && found.len() <= families + 1,
        "too many: {shown}"
    );
    guest.reached_at = match guest.client.network {
        Network::Pod => guest.place.addresses_of(guest.client.name)?,
        Network::Dnsmasq => found.iter().map(|(ip, _)| *ip).collect(),
    };
    let words: Vec<String> = found
        .iter()
        .map(|(ip, bits)| format!("{ip}/{bits}"))
        .collect();
    Ok(words.join(" "))
}

/// The addresses that `ip -o addr` shows, with their bits.
fn addresses(shown: &str) -> Vec<(IpAddr, u8)> {
    let mut words = shown.split_whitespace();
    let mut found = Vec::new();
    while let Some(word) = words.next() {
        if word != "inet" && word != "inet6" {
            continue;
        }
        let parsed = words.next().and_then(|text| {
            let (ip, bits) = text.split_once('/')?;
            Some((ip.parse().ok()?, bits.parse().ok()?))
        });
        found.extend(parsed);
    }
    found
}

/// It asks its gateway for a name, and gets an answer from outside.
fn name(guest: &mut Guest<'_>) -> anyhow::Result<String> {
    const SERVERS: &str = "cat /run/systemd/resolve/resolv.conf /etc/resolv.conf 2>/dev/null";
    let gateways = if guest.is_on_pod_network() {
        GATEWAY
    } else {
        BRIDGE
    };
    let wanted: Vec<IpAddr> = guest.of_its_families(OUTSIDE).collect();
    let wanted: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    let resolve = format!("getent ahosts {NAME}");
    let is_known = |said: &str| wanted.iter().any(|address| said.contains(address));
    guest.shell.ask_until(&resolve, PATIENCE, is_known)?;
    let files = guest.shell.ask(SERVERS)?;
    let lines = files
        .lines()
        .filter_map(|line| line.strip_prefix("nameserver "));
    // The stub of systemd-resolved asks those that its own file names.
    let servers: BTreeSet<&str> = lines
        .map(str::trim)
        .filter(|server| *server != "127.0.0.53")
        .collect();
    let expected: BTreeSet<&str> = guest.of_its_families(gateways).collect();
    ensure!(
        !servers.is_empty() && servers.is_subset(&expected),
        "it asks {servers:?}, and not {expected:?}: {files}"
    );
    let servers: Vec<&str> = servers.into_iter().collect();
    Ok(format!("by {}", servers.join(" ")))
}

/// Who says that he sees whom, in an answer of `serve`.
fn seen(answer: &str, who: &str) -> anyhow::Result<IpAddr> {
    let said = answer
        .lines()
        .find_map(|line| line.strip_prefix(who)?.strip_prefix(" sees "));
    let said = said.with_context(|| format!("{who} did not answer: {answer:?}"))?;
    let bare = said.trim().trim_matches(['[', ']']);
    bare.parse().with_context(|| answer.to_owned())
}

/// It reaches the outside, which sees the node under masquerade and else the guest itself.
fn outwards(guest: &mut Guest<'_>, protocol: &str) -> anyhow::Result<String> {
    let mut words = Vec::new();
    let pairs: Vec<_> = guest
        .of_its_families([(OUTSIDE[0], NODE[0]), (OUTSIDE[1], NODE[1])])
        .collect();
    for (outside, node) in pairs {
        let answer = guest
            .shell
            .ask(&format!("ask {protocol} {outside} {PORT}"))?;
        let source = seen(&answer, "outside")?;
        let is_right = if guest.is_on_pod_network() {
            source == node
        } else {
            guest.reached_at.contains(&source)
        };
        ensure!(is_right, "{outside} sees {source}");
        words.push(format!("from {source}"));
    }
    Ok(words.join(" "))
}

/// It pings the outside.
fn icmp(guest: &mut Guest<'_>) -> anyhow::Result<String> {
    let outside: Vec<IpAddr> = guest.of_its_families(OUTSIDE).collect();
    for address in &outside {
        let said = guest.shell.ask(&format!("ping -c 1 -W 20 {address}"))?;
        ensure!(said.contains(" 0% packet loss"), "{said}");
    }
    Ok(format!("{} answers", outside.len()))
}

/// It is reached from the node at the ports that are open, and at no other.
fn ports(guest: &mut Guest<'_>) -> anyhow::Result<String> {
    let who = guest.client.word();
    let mut words = Vec::new();
    for place in guest.places()? {
        for protocol in ["tcp", "udp"] {
            let asked = guest.place.beside(&format!("ask {protocol} {place} 80"));
            seen(&asked?, who).with_context(|| format!("{protocol} {place}"))?;
        }
        let closed = guest.place.beside(&format!("ask tcp {place} 81"));
        match (guest.is_on_pod_network(), closed) {
            (true, Ok(answer)) => anyhow::bail!("{place} port 81 is open: {answer}"),
            (true, Err(_)) => words.push("80 open, 81 not"),
            (false, answer) => {
                seen(&answer?, who)?;
                words.push("all open");
            }
        }
    }
    Ok(words.join(", "))
}

/// It is reached through the agent of the packaged unit, by TCP and UDP.
fn port_forward(guest: &mut Guest<'_>) -> anyhow::Result<String> {
    let (name, who) = (guest.client.name, guest.client.word());
    let agent = guest.place.agent();
    let by_tcp = agent.kvmctl(&format!("port-forward --stdio vmi/{name} 80 </dev/null"))?;
    let by_tcp = seen(&by_tcp.to_string(), who)?;
    let forward = format!("exec kvmctl port-forward vmi/{name} udp/15353:80");
    let mut forward = guest.place.node.exec_in_terminal(&["sh", "-c", &forward])?;
    forward.read_until("Forwarding 127.0.0.1:15353 to 80 (udp)", PATIENCE)?;
    // Each peer's first datagram has the agent find the guest, which takes an emulated node a while.
    let ask = "sh -c 'echo who is there | socat -t 20 - UDP4:127.0.0.1:15353'";
    let by_udp = guest.place.beside(ask)?;
    let mut output = String::new();
    while let Some(line) = forward.next_line(Duration::from_secs(1))? {
        output.push_str(&line);
    }
    forward.kill()?;
    seen(&by_udp, who).with_context(|| format!("udp: {output}{}", agent.log()))?;
    Ok(format!("from {by_tcp}"))
}

/// It reaches the peer and is reached from it, each under the address that others know it by.
fn guest_to_guest(guest: &mut Guest<'_>) -> anyhow::Result<String> {
    let peer = if guest.is_on_pod_network() {
        guest.place.addresses_of("peer")?
    } else {
        PEER_ON_BRIDGE.to_vec()
    };
    let who = guest.client.word();
    let mut count = 0;
    for place in guest.places()? {
        let of_family = peer.iter().find(|other| other.is_ipv4() == place.is_ipv4());
        let other = of_family.context("the peer has no address of this family")?;
        for protocol in ["tcp", "udp"] {
            let there = guest.shell.ask(&format!("ask {protocol} {other} 80"))?;
            let seen_there =
                seen(&there, "peer").with_context(|| format!("{protocol} to {other}"))?;
            let back = guest.peer.ask(&format!("ask {protocol} {place} 80"))?;
            let seen_back = seen(&back, who).with_context(|| format!("{protocol} to {place}"))?;
            ensure!(
                seen_there == place && (seen_back == *other || guest.is_on_pod_network()),
                "{place} is seen as {seen_there}, and {other} as {seen_back}"
            );
        }
        count += 1;
    }
    Ok(format!("both ways, {count} families"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_both_families_are_read() {
        let shown = "2: eth0    inet 10.0.2.2/24 brd 10.0.2.255 scope global dynamic eth0\\ valid_lft forever\n\
                     2: eth0    inet6 fd10:0:2::2/128 scope global dynamic noprefixroute";
        let found = addresses(shown);
        let words: Vec<String> = found
            .iter()
            .map(|(ip, bits)| format!("{ip}/{bits}"))
            .collect();
        assert_eq!(words, ["10.0.2.2/24", "fd10:0:2::2/128"]);
    }

    #[test]
    fn an_answer_names_who_was_seen() {
        let answer = "outside sees [fd00:0088:0000:0000:0000:0000:0000:0001]\n";
        assert_eq!(seen(answer, "outside").ok(), "fd00:88::1".parse().ok());
        assert!(seen("nobody", "outside").is_err());
    }
}

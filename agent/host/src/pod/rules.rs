//! The tables of the pod network.

use std::net::IpAddr;

use agent_domain::{OpenPorts, PodBinding, Transport};
use sha2::{Digest, Sha256};

use super::chains::{ICMPV6, TABLE, TCP, UDP, base, refuse, refused};
use super::config::PodNetworkConfig;
use super::egress;
use super::names::{BRIDGE, ETH, PREFIX6, TAP};
use super::plan::PodPlan;
use crate::netfilter::{Batch, Chain, ChainKind, Comparison, Family, Hook, Rule, Table, Verdict};

use Comparison::{Is, IsNot};

/// The chains of questions for names.
const DNS: &str = "dns";
const DNS6: &str = "dns6";

const ICMP: u8 = 1;

/// Priorities of `nft`: dstnat, filter, srcnat.
const DESTINATION: i32 = -100;
const FILTER: i32 = 0;
const SOURCE: i32 = 100;

/// The table within a VMM's namespace.
pub(super) fn inside(plan: &PodPlan) -> Table {
    let (chains, sets) = match plan.binding {
        PodBinding::Masquerade => (masquerade(plan), vec![refused(std::iter::once(TAP))]),
        PodBinding::Bridge => (bridged(), Vec::new()),
    };
    Table {
        family: Family::Inet,
        name: TABLE,
        comment: plan.mark.clone(),
        sets,
        chains,
    }
}

/// A guest by one of its two families of addresses.
struct Side {
    guest: IpAddr,
    gateway: IpAddr,
    /// Its address of the pool.
    address: IpAddr,
    /// The chain of its questions for names.
    questions: &'static str,
}

impl Side {
    fn all(plan: &PodPlan) -> Vec<Self> {
        let v4 = Self {
            guest: plan.inside.guest.into(),
            gateway: plan.inside.gateway.into(),
            address: plan.member.address.into(),
            questions: DNS,
        };
        let v6 = plan.v6.map(|v6| Self {
            guest: v6.inside.guest.into(),
            gateway: v6.inside.gateway.into(),
            address: v6.address.into(),
            questions: DNS6,
        });
        std::iter::once(v4).chain(v6).collect()
    }

    /// What the guest sends to elsewhere.
    fn outbound(&self) -> Rule {
        Rule::new()
            .input(Is, TAP)
            .output(Is, ETH)
            .family_of(self.guest)
            .source(Is, self.guest)
            .accept()
    }

    /// What comes to the address of the pool goes to the guest, as far as its ports are open.
    fn inbound(&self, open: &[OpenPorts]) -> Vec<Rule> {
        let to_pod = || {
            Rule::new()
                .input(Is, ETH)
                .family_of(self.address)
                .destination(Is, self.address)
        };
        if open.is_empty() {
            return vec![to_pod().to(self.guest, None)];
        }
        let open = open.iter().map(|ports| {
            let number = match ports.transport {
                Transport::Tcp => TCP,
                Transport::Udp => UDP,
            };
            to_pod()
                .transport(number)
                .destination_ports(ports.first, ports.last)
                .to(self.guest, None)
        });
        open.collect()
    }

    /// Questions for names that the guest asks its gateway.
    fn questions(&self) -> [Rule; 2] {
        questions(TAP, self.gateway, self.questions)
    }

    /// What leaves the namespace leaves under the address of the pool.
    fn leaves(&self) -> Rule {
        Rule::new()
            .output(Is, ETH)
            .family_of(self.address)
            .masquerade()
    }

    /// The gateway's questions go to those whom the node asks, in turn.
    fn upstreams(&self, servers: &[IpAddr]) -> Chain {
        Chain {
            name: self.questions,
            base: None,
            rules: upstreams(servers, self.address.is_ipv6()),
        }
    }
}

/// The guest goes out under its addresses of the pool, and what comes to those goes to the guest.
fn masquerade(plan: &PodPlan) -> Vec<Chain> {
    let sides = Side::all(plan);
    let has_ipv6 = plan.v6.is_some();
    let mut forward: Vec<Rule> = sides.iter().map(Side::outbound).collect();
    forward.extend([
        // Sources that are not the guest's.
        Rule::new().input(Is, TAP).refuse(),
        Rule::new().input(Is, ETH).of_known_connection().accept(),
        Rule::new()
            .input(Is, ETH)
            .output(Is, TAP)
            .translated()
            .accept(),
        // Ports that are not open.
        Rule::new().drop(),
    ]);
    let prerouting = sides.iter().flat_map(|side| {
        let inbound = side.inbound(&plan.ports);
        inbound.into_iter().chain(side.questions())
    });
    let filter = |hook| Some(base(ChainKind::Filter, hook, FILTER, true));
    let nat = |hook, priority| Some(base(ChainKind::Nat, hook, priority, false));
    let chain = |name, base, rules| Chain { name, base, rules };
    let mut chains = vec![
        refuse(),
        chain(
            "prerouting",
            nat(Hook::Prerouting, DESTINATION),
            prerouting.collect(),
        ),
    ];
    chains.extend(sides.iter().map(|side| side.upstreams(&plan.upstreams)));
    chains.extend([
        chain(
            "postrouting",
            nat(Hook::Postrouting, SOURCE),
            sides.iter().map(Side::leaves).collect(),
        ),
        chain("forward", filter(Hook::Forward), forward),
        chain("input", filter(Hook::Input), own_input(TAP, has_ipv6)),
        chain("output", filter(Hook::Output), own_output(TAP, has_ipv6)),
    ]);
    chains
}

/// Frames of a bridged guest pass by these chains. What it may send is judged at the node's end of the veth ([`walls`]).
fn bridged() -> Vec<Chain> {
    let filter = |name, hook, rules| Chain {
        name,
        base: Some(base(ChainKind::Filter, hook, FILTER, true)),
        rules,
    };
    vec![
        filter("input", Hook::Input, own_input(BRIDGE, false)),
        filter("output", Hook::Output, own_output(BRIDGE, false)),
    ]
}

/// Has a transaction change whom the gateway asks.
pub(super) fn change_upstreams(batch: &mut Batch, servers: &[IpAddr], has_ipv6: bool) {
    let table = (Family::Inet, TABLE);
    let chains = [(DNS, false), (DNS6, true)];
    for (chain, ipv6) in chains.into_iter().filter(|(_, ipv6)| has_ipv6 || !ipv6) {
        batch.flush(table, chain);
        for rule in upstreams(servers, ipv6) {
            batch.add_rule(table, chain, &rule);
        }
    }
}

fn upstreams(servers: &[IpAddr], ipv6: bool) -> Vec<Rule> {
    let is_of_family = |server: &IpAddr| server.is_ipv6() == ipv6;
    let servers: Vec<IpAddr> = servers.iter().copied().filter(is_of_family).collect();
    let left = (1..=servers.len()).rev();
    let rule = |(server, left): (&IpAddr, usize)| {
        let rule = match u32::try_from(left) {
            Ok(left @ 2..) => Rule::new().one_of(left),
            _ => Rule::new(),
        };
        rule.to(*server, Some(53))
    };
    servers.iter().zip(left).map(rule).collect()
}

/// Ports of servers of addresses.
fn address_ports(has_ipv6: bool) -> impl Iterator<Item = u16> {
    std::iter::once(67).chain(has_ipv6.then_some(547))
}

/// Echo requests, and what neighbours and routers say to each other.
fn control_messages(has_ipv6: bool) -> impl Iterator<Item = Rule> {
    let protocols = std::iter::once(ICMP).chain(has_ipv6.then_some(ICMPV6));
    protocols.map(|protocol| Rule::new().transport(protocol).accept())
}

/// What the namespace itself takes: the guest's requests for addresses, by the link that leads to it, and echo requests.
fn own_input(link: &str, has_ipv6: bool) -> Vec<Rule> {
    let mut rules = vec![Rule::new().of_known_connection().accept()];
    rules.extend(address_ports(has_ipv6).map(|port| {
        Rule::new()
            .input(Is, link)
            .transport(UDP)
            .destination_ports(port, port)
            .accept()
    }));
    rules.extend(control_messages(has_ipv6));
    rules.push(Rule::new().drop());
    rules
}

/// What the namespace itself sends. A VMM that a guest has taken over can make no connections of its own.
fn own_output(link: &str, has_ipv6: bool) -> Vec<Rule> {
    let mut rules: Vec<Rule> = address_ports(has_ipv6)
        .map(|port| {
            Rule::new()
                .output(Is, link)
                .transport(UDP)
                .source_port(port)
                .accept()
        })
        .collect();
    rules.extend(control_messages(has_ipv6));
    rules.push(Rule::new().drop());
    rules
}

/// The table of the node: what goes from guests to elsewhere leaves under the node's own addresses, but for networks that know
/// the way to guests; and what they may reach.
pub(super) fn of_node(config: &PodNetworkConfig) -> Table {
    let v4 = Some((IpAddr::V4(config.network), config.prefix));
    let v6 = config
        .network6
        .map(|network| (IpAddr::V6(network), PREFIX6));
    let networks: Vec<_> = v4.into_iter().chain(v6).collect();
    let from = |(network, prefix): &(IpAddr, u8)| {
        Rule::new()
            .family_of(*network)
            .source_in(Is, *network, *prefix)
    };
    let as_they_are = networks.iter().flat_map(|own| {
        let of_family = move |(other, _): &&(IpAddr, u8)| other.is_ipv4() == own.0.is_ipv4();
        let others = config.non_masquerade.iter().filter(of_family);
        others.map(move |(other, prefix)| from(own).destination_in(Is, *other, *prefix).accept())
    });
    let leaves = networks
        .iter()
        .map(|own| from(own).output(IsNot, &config.bridge).masquerade());
    let shown = networks
        .iter()
        .map(|(network, prefix)| format!(" {network}/{prefix}"));
    Table {
        family: Family::Inet,
        name: TABLE,
        comment: format!(
            "kvmlet {}{}{}",
            config.bridge,
            shown.collect::<String>(),
            mark_of_exceptions(config)
        ),
        sets: Vec::new(),
        chains: std::iter::once(Chain {
            name: "postrouting",
            base: Some(base(ChainKind::Nat, Hook::Postrouting, SOURCE, false)),
            rules: as_they_are.chain(leaves).collect(),
        })
        .chain(questions_of_bridged(config))
        .chain(egress::chains(config))
        .collect(),
    }
}

/// A guest that is bridged asks the node for names, and the node's rules have the question go to those whom the node asks.
fn questions_of_bridged(config: &PodNetworkConfig) -> [Chain; 2] {
    let gateway = config.gateway().into();
    let questions = questions(&config.bridge, gateway, DNS);
    let upstreams = Chain {
        name: DNS,
        base: None,
        rules: upstreams(&config.dns, false),
    };
    let prerouting = Chain {
        name: "prerouting",
        base: Some(base(ChainKind::Nat, Hook::Prerouting, DESTINATION, false)),
        rules: questions.into(),
    };
    [upstreams, prerouting]
}

/// Questions for names that come by a link to a gateway.
fn questions(link: &str, gateway: IpAddr, chain: &str) -> [Rule; 2] {
    [UDP, TCP].map(|transport| {
        Rule::new()
            .input(Is, link)
            .family_of(gateway)
            .destination(Is, gateway)
            .transport(transport)
            .destination_ports(53, 53)
            .verdict(Verdict::Jump(chain.to_owned()))
    })
}

/// Tells tables with other exceptions apart. A comment has room for some of them only.
fn mark_of_exceptions(config: &PodNetworkConfig) -> String {
    if config.non_masquerade.is_empty() {
        return String::new();
    }
    let mut digest = hex::encode(Sha256::digest(format!("{:?}", config.non_masquerade)));
    digest.truncate(10);
    format!(" but {digest}")
}

#[cfg(test)]
pub(super) mod tests;

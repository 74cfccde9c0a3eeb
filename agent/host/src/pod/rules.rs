//! The tables of the pod network.

use std::net::{IpAddr, Ipv4Addr};

use agent_domain::{PodBinding, Transport};

use super::{ETH, PodNetworkConfig, PodPlan, TABLE, TAP};
use crate::netfilter::{
    Base, Batch, Chain, ChainKind, Comparison, Family, Field, Hook, Part, Rule, Set, Table, Value,
    Verdict,
};
use crate::taps::VETHS;

use Comparison::{Is, IsNot};

/// The chain of questions for names.
const DNS: &str = "dns";

const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// Priorities of `nft`: dstnat, filter, srcnat.
const DESTINATION: i32 = -100;
const FILTER: i32 = 0;
const SOURCE: i32 = 100;

/// `filter` of the family of bridges.
const BRIDGE_FILTER: i32 = -200;

fn base(kind: ChainKind, hook: Hook, priority: i32, drops: bool) -> Base {
    Base {
        kind,
        hook,
        priority,
        drops,
    }
}

/// The table within a VMM's namespace.
pub(super) fn inside(plan: &PodPlan) -> Table {
    let chains = match plan.binding {
        PodBinding::Masquerade => masquerade(plan),
        PodBinding::Bridge => Vec::new(),
    };
    Table {
        family: Family::Inet,
        name: TABLE,
        comment: plan.owner.clone(),
        sets: Vec::new(),
        chains,
    }
}

/// The guest goes out under its address of the pool, and what comes to that address goes to the guest.
fn masquerade(plan: &PodPlan) -> Vec<Chain> {
    let guest = IpAddr::V4(plan.inside.guest);
    let outbound = Rule::new()
        .input(Is, TAP)
        .output(Is, ETH)
        .ipv4()
        .source(Is, guest)
        .accept();
    let forward = vec![
        outbound,
        Rule::new().input(Is, ETH).of_known_connection().accept(),
        Rule::new()
            .input(Is, ETH)
            .output(Is, TAP)
            .translated()
            .accept(),
        // Sources that are not the guest's, and ports that are not open.
        Rule::new().drop(),
    ];
    vec![
        Chain {
            name: "prerouting",
            base: Some(base(ChainKind::Nat, Hook::Prerouting, DESTINATION, false)),
            rules: inbound(plan).into_iter().chain(questions(plan)).collect(),
        },
        Chain {
            name: DNS,
            base: None,
            rules: upstreams(&plan.upstreams),
        },
        Chain {
            name: "postrouting",
            base: Some(base(ChainKind::Nat, Hook::Postrouting, SOURCE, false)),
            rules: vec![Rule::new().output(Is, ETH).ipv4().masquerade()],
        },
        Chain {
            name: "forward",
            base: Some(base(ChainKind::Filter, Hook::Forward, FILTER, true)),
            rules: forward,
        },
        Chain {
            name: "input",
            base: Some(base(ChainKind::Filter, Hook::Input, FILTER, true)),
            rules: own_input(),
        },
        Chain {
            name: "output",
            base: Some(base(ChainKind::Filter, Hook::Output, FILTER, true)),
            rules: own_output(),
        },
    ]
}

/// What comes to the address of the pool goes to the guest, as far as its ports are open.
fn inbound(plan: &PodPlan) -> Vec<Rule> {
    let guest = IpAddr::V4(plan.inside.guest);
    let to_pod = || {
        Rule::new()
            .input(Is, ETH)
            .ipv4()
            .destination(Is, IpAddr::V4(plan.address))
    };
    if plan.ports.is_empty() {
        return vec![to_pod().to(guest, None)];
    }
    let open = plan.ports.iter().map(|ports| {
        let number = match ports.transport {
            Transport::Tcp => TCP,
            Transport::Udp => UDP,
        };
        to_pod()
            .transport(number)
            .destination_ports(ports.first, ports.last)
            .to(guest, None)
    });
    open.collect()
}

/// Questions for names that the guest asks its gateway.
fn questions(plan: &PodPlan) -> [Rule; 2] {
    let gateway = IpAddr::V4(plan.inside.gateway);
    [UDP, TCP].map(|transport| {
        Rule::new()
            .input(Is, TAP)
            .ipv4()
            .destination(Is, gateway)
            .transport(transport)
            .destination_ports(53, 53)
            .verdict(Verdict::Jump(DNS.to_owned()))
    })
}

/// Has a transaction change whom the gateway asks.
pub(super) fn change_upstreams(batch: &mut Batch, servers: &[IpAddr]) {
    let table = (Family::Inet, TABLE);
    batch.flush(table, DNS);
    for rule in upstreams(servers) {
        batch.add_rule(table, DNS, &rule);
    }
}

/// The gateway's questions go to those whom the node asks, in turn.
fn upstreams(servers: &[IpAddr]) -> Vec<Rule> {
    let servers: Vec<IpAddr> = servers.iter().copied().filter(IpAddr::is_ipv4).collect();
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

/// What the namespace itself takes: the guest's requests for addresses, and echo requests.
fn own_input() -> Vec<Rule> {
    vec![
        Rule::new().of_known_connection().accept(),
        Rule::new()
            .input(Is, TAP)
            .transport(UDP)
            .destination_ports(67, 67)
            .accept(),
        Rule::new().transport(ICMP).accept(),
        Rule::new().drop(),
    ]
}

/// What the namespace itself sends. A VMM that a guest has taken over can make no connections of its own.
fn own_output() -> Vec<Rule> {
    vec![
        Rule::new()
            .output(Is, TAP)
            .transport(UDP)
            .source_port(67)
            .accept(),
        Rule::new().transport(ICMP).accept(),
        Rule::new().drop(),
    ]
}

/// The table of the node: what goes from guests to elsewhere leaves under the node's own address.
pub(super) fn of_node(config: &PodNetworkConfig) -> Table {
    let leaves = Rule::new()
        .ipv4()
        .source_in(Is, config.network, config.prefix)
        .output(IsNot, &config.bridge)
        .masquerade();
    Table {
        family: Family::Inet,
        name: TABLE,
        comment: format!(
            "kvmlet {} {}/{}",
            config.bridge, config.network, config.prefix
        ),
        sets: Vec::new(),
        chains: vec![Chain {
            name: "postrouting",
            base: Some(base(ChainKind::Nat, Hook::Postrouting, SOURCE, false)),
            rules: vec![leaves],
        }],
    }
}

/// A guest that is joined to the node's bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The node's end of its veth.
    pub(crate) veth: String,
    /// What it may send from.
    pub(crate) mac: [u8; 6],
    pub(crate) address: Ipv4Addr,
}

impl Member {
    fn element(&self) -> Vec<Value> {
        vec![
            Value::InterfaceName(self.veth.clone()),
            Value::Mac(self.mac),
            Value::Ipv4(self.address),
        ]
    }

    /// Has a transaction let it send, or not any more.
    pub(super) fn change(&self, batch: &mut Batch, is_there: bool) {
        let (table, element) = ((Family::Bridge, TABLE), [self.element()]);
        if is_there {
            batch.add_elements(table, SOURCES, &element);
        } else {
            batch.delete_elements(table, SOURCES, &element);
        }
    }
}

/// Who may send what.
const SOURCES: &str = "sources";

/// The release of the rules of [`walls`]: a table of another is replaced.
const WALLS: &str = "kvmlet walls 1";

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;

/// The table of the node's ends of veths: who is behind one sends from its own addresses, or nothing. The same is so
/// within VMMs' namespaces; these rules hold should one of them be broken into.
pub(super) fn walls(members: &[Member]) -> Table {
    // Of the frame's own header, and behind it: of IPv4, and of ARP.
    let ipv4 = [(Part::Link, 6, 6), (Part::Network, 12, 4)];
    let arp = [(Part::Network, 8, 6), (Part::Network, 14, 4)];
    let from_guest = || Rule::new().input_begins(VETHS);
    // Types are compared as they stand in the frame, where the tag of a VLAN is one.
    let of_type = |number: u16| from_guest().link(12, Is, &number.to_be_bytes());
    let rules = vec![
        // A server of addresses.
        of_type(IPV4).network(9, Is, &[UDP]).source_port(67).drop(),
        of_type(IPV4).input_and(SOURCES, false, &ipv4).accept(),
        of_type(ARP).input_and(SOURCES, false, &arp).accept(),
        from_guest().drop(),
    ];
    Table {
        family: Family::Bridge,
        name: TABLE,
        comment: WALLS.to_owned(),
        sets: vec![Set {
            name: SOURCES,
            fields: vec![Field::InterfaceName, Field::Mac, Field::Ipv4],
            elements: members.iter().map(Member::element).collect(),
        }],
        chains: vec![Chain {
            name: "prerouting",
            base: Some(base(
                ChainKind::Filter,
                Hook::Prerouting,
                BRIDGE_FILTER,
                false,
            )),
            rules,
        }],
    }
}

#[cfg(test)]
mod tests;

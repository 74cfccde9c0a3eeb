//! The table of the node's ends of veths, which lets guests send from their own addresses alone.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::chains::{
    ARP, ICMPV6, IPV4, IPV6, NEIGHBOUR_ADVERTISEMENT, TABLE, TCP, UDP, base, link_local, refuse,
    refused,
};
use crate::netfilter::{
    Batch, Chain, ChainKind, Comparison, Family, Field, Hook, Part, Rule, Set, Table, Value,
    Verdict,
};
use crate::taps::VETHS;

use Comparison::{Is, IsNot};

/// `filter` of the family of bridges.
const BRIDGE_FILTER: i32 = -200;

/// A guest that is joined to the node's bridge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Member {
    /// The node's end of its veth.
    pub(crate) veth: String,
    /// What it may send from.
    pub(crate) mac: [u8; 6],
    pub(crate) address: Ipv4Addr,
    pub(crate) address6: Option<Ipv6Addr>,
}

impl Member {
    fn element(&self, address: Value) -> Vec<Value> {
        let name = Value::InterfaceName(self.veth.clone());
        vec![name, Value::Mac(self.mac), address]
    }

    /// Whether it has an address of the network of which this is one.
    pub(super) fn is_of(&self, address: IpAddr, prefix: u8) -> bool {
        let prefix = u32::from(prefix);
        match address {
            IpAddr::V4(other) => {
                let differ = u32::from(self.address) ^ u32::from(other);
                differ.leading_zeros() >= prefix
            }
            IpAddr::V6(other) => self.address6.is_some_and(|own| {
                let differ = u128::from(own) ^ u128::from(other);
                differ.leading_zeros() >= prefix
            }),
        }
    }

    /// What it has in [`SOURCES`].
    fn element4(&self) -> Vec<Value> {
        self.element(Value::Ipv4(self.address))
    }

    /// What it has in [`SOURCES6`]: its address, and the one that neighbours ask each other by.
    fn elements6(&self) -> Vec<Vec<Value>> {
        let own = self.address6.map(|address| [address, link_local(self.mac)]);
        let all = own.into_iter().flatten();
        all.map(|address| self.element(Value::Ipv6(address)))
            .collect()
    }

    /// Has a transaction let it send, or not any more.
    pub(super) fn change(&self, batch: &mut Batch, is_there: bool) {
        let table = (Family::Bridge, TABLE);
        let sets = [
            (SOURCES, vec![self.element4()]),
            (SOURCES6, self.elements6()),
        ];
        for (set, elements) in sets {
            if is_there {
                batch.add_elements(table, set, &elements);
            } else {
                batch.delete_elements(table, set, &elements);
            }
        }
        let counted = refused([self.veth.as_str()].into_iter());
        if is_there {
            batch.add_elements(table, counted.name, &counted.elements);
        } else {
            batch.delete_elements(table, counted.name, &counted.elements);
        }
    }
}

/// Who may send what.
const SOURCES: &str = "sources";
const SOURCES6: &str = "sources6";

/// The release of the rules of [`walls`]: a table of another is replaced.
const WALLS: &str = "kvmlet walls 5";

/// The header of a fragment (RFC 8200, section 4.5), and others that may be in one.
const FRAGMENT: u8 = 44;
const ESP: u8 = 50;
const SCTP: u8 = 132;

/// Offsets in a packet of IPv6, and in one where the header of a fragment follows.
const PAYLOAD_LENGTH: u32 = 4;
const NEXT_HEADER: u32 = 6;
const FRAGMENTED: u32 = 40;
const FRAGMENT_OFFSET: u32 = 42;
const IN_FRAGMENT: u32 = 48;

/// The chain of fragments of IPv6.
const FRAGMENTS: &str = "fragments";

/// Types of messages of ICMPv6.
const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ROUTER_ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;

/// The table of the node's ends of veths: who is behind one sends from its own addresses, or nothing. The same is so
/// within VMMs' namespaces; these rules hold should one of them be broken into.
pub(super) fn walls(members: &[Member]) -> Table {
    // Of the frame's own header, and behind it: of IPv4, of ARP, and of IPv6; and whom a neighbour advertises.
    let ipv4 = [(Part::Link, 6, 6), (Part::Network, 12, 4)];
    let arp = [(Part::Network, 8, 6), (Part::Network, 14, 4)];
    // The bridge learns from the frame's own header, which may differ from what ARP says behind it.
    let arp_frame = [(Part::Link, 6, 6), (Part::Network, 14, 4)];
    let ipv6 = [(Part::Link, 6, 6), (Part::Network, 8, 16)];
    let advertised = [(Part::Link, 6, 6), (Part::Transport, 8, 16)];
    let from_guest = || Rule::new().input_begins(VETHS);
    // Types are compared as they stand in the frame, where the tag of a VLAN is one.
    let of_type = |number: u16| from_guest().link(12, Is, &number.to_be_bytes());
    let of_icmpv6 = |number: u8| of_type(IPV6).transport(ICMPV6).icmp_type(number);
    let fragmented = || of_type(IPV6).network(NEXT_HEADER, Is, &[FRAGMENT]);
    let rules = vec![
        // Servers of addresses, and routers.
        of_type(IPV4)
            .network(9, Is, &[UDP])
            .source_port(67)
            .refuse(),
        of_type(IPV6).transport(UDP).source_port(547).refuse(),
        of_icmpv6(ROUTER_ADVERTISEMENT).refuse(),
        of_icmpv6(REDIRECT).refuse(),
        of_type(IPV6)
            .network(NEXT_HEADER, IsNot, &[FRAGMENT])
            .has_extension(FRAGMENT)
            .refuse(),
        fragmented().verdict(Verdict::Jump(FRAGMENTS.to_owned())),
        of_icmpv6(NEIGHBOUR_ADVERTISEMENT)
            .input_and(SOURCES6, true, &advertised)
            .refuse(),
        of_type(IPV4).input_and(SOURCES, false, &ipv4).accept(),
        of_type(ARP).input_and(SOURCES, true, &arp_frame).refuse(),
        of_type(ARP).input_and(SOURCES, false, &arp).accept(),
        of_type(IPV6).input_and(SOURCES6, false, &ipv6).accept(),
        from_guest().refuse(),
    ];
    Table {
        family: Family::Bridge,
        name: TABLE,
        comment: WALLS.to_owned(),
        sets: sets(members),
        chains: vec![
            refuse(),
            Chain {
                name: FRAGMENTS,
                base: None,
                rules: fragments(&ipv6),
            },
            Chain {
                name: "prerouting",
                base: Some(base(
                    ChainKind::Filter,
                    Hook::Prerouting,
                    BRIDGE_FILTER,
                    false,
                )),
                rules,
            },
        ],
    }
}

/// Who may send what, and whose frames are counted when they are refused.
fn sets(members: &[Member]) -> Vec<Set> {
    let set = |name, address, elements| Set {
        name,
        fields: vec![Field::InterfaceName, Field::Mac, address],
        elements,
        counts: false,
        learns: false,
    };
    vec![
        set(
            SOURCES,
            Field::Ipv4,
            members.iter().map(Member::element4).collect(),
        ),
        set(
            SOURCES6,
            Field::Ipv6,
            members.iter().flat_map(Member::elements6).collect(),
        ),
        refused(members.iter().map(|member| member.veth.as_str())),
    ]
}

/// Fragments of IPv6 whose header follows that of the packet itself. The rules before these saw what is in the header of the
/// transport, if the first fragment has it: one that has only extension headers would be anything once it is put together
/// (RFC 7112), and bytes behind the packet's end pass for the header until then. So nothing but a port or the type of a
/// message may follow the fragment's header, within the packet. Messages about neighbours and routers are never in fragments
/// (RFC 6980).
fn fragments(own_source: &[(Part, u32, u32)]) -> Vec<Rule> {
    let accept = |rule: Rule| rule.input_and(SOURCES6, false, own_source).accept();
    let is_later = Rule::new().network_has_bits(FRAGMENT_OFFSET, &[0xff, 0xf8]);
    // Of at least eight bytes behind the fragment's own eight.
    let first = |protocol: u8| {
        let lengths = [16_u16, u16::MAX].map(u16::to_be_bytes);
        Rule::new()
            .network_between(PAYLOAD_LENGTH, &lengths[0], &lengths[1])
            .network(FRAGMENTED, Is, &[protocol])
    };
    let echo = first(ICMPV6).network_between(IN_FRAGMENT, &[ECHO_REQUEST], &[ECHO_REPLY]);
    let mut rules = vec![accept(is_later)];
    rules.extend([TCP, UDP, SCTP, ESP].map(|protocol| accept(first(protocol))));
    rules.push(accept(echo));
    rules.push(Rule::new().refuse());
    rules
}

#[cfg(test)]
mod tests;

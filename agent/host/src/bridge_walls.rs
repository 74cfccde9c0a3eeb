//! Walls on bridges of the configuration: what a guest may not send by its tap there, whoever gives out the addresses.
//!
//! A guest sends from its own hardware address alone; it is no server of addresses, no router, and on no VLAN of its own choice.
//! Once it is known which IP addresses are its own it sends from those alone: see [`addresses`].

mod addresses;
mod nic;

use std::io;

use agent_plan::JudgedAddresses;

pub(crate) use self::nic::{Nic, read, write};
use crate::netfilter::{
    Batch, Chain, ChainKind, Comparison, Difference, Family, Field, Hook, Netfilter, Part,
    Restored, Rule, Set, Table, Value, Verdict,
};
use crate::pod::chains::{ARP, ICMPV6, IPV4, IPV6, UDP, base, refuse, refused};
use crate::taps;

use Comparison::{Is, IsNot};

/// The name of the table, which is not that of the pod network: each is made when the first guest needs it.
pub(crate) const TABLE: &str = "kvmlet-networks";

/// The release of the rules: a table of another is replaced.
const RULES: &str = "kvmlet networks 2";

/// Taps, and taps with the hardware addresses that they may send from.
const TAPS: &str = "taps";
const NICS: &str = "cards";

/// What comes by one of the taps, and of that what is a fragment of IPv6.
const FROM_GUEST: &str = "from-guest";
const FRAGMENTS: &str = "fragments";

/// `filter` of the family of bridges.
const BRIDGE_FILTER: i32 = -200;

/// Types of frames with the tag of a VLAN: 802.1Q, 802.1ad, and what was used before that.
const TAGGED: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// The groups of links (IEEE 802.1D, table 7-10): the spanning tree, aggregation, log-ins at ports, LLDP and others.
const GROUPS_OF_LINKS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
const GROUPS_MASK: [u8; 6] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xf0];

const PAYLOAD_LENGTH: u32 = 4;
const NEXT_HEADER: u32 = 6;
const FRAGMENT: u8 = 44;
/// Offset of the fragment header (RFC 8200, 4.5) when it follows the IPv6 header at once.
const FRAGMENTED: u32 = 40;
const FRAGMENT_OFFSET: u32 = 42;
const IN_FRAGMENT: u32 = 48;

const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ROUTER_ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;

/// Makes the table what it is to be, with the NICs of all guests that run. Without any, a table that is not there is not made. The
/// answer says in words what was not as it is wanted.
pub(crate) fn restore(nics: &[Nic]) -> io::Result<Option<Restored>> {
    let netfilter = Netfilter::open()?;
    let table = table(nics);
    let mut batch = Batch::default();
    let difference = table.restore(&netfilter, &mut batch)?;
    if difference == Difference::Missing && nics.is_empty() {
        return Ok(None);
    }
    if !difference.is_whole() {
        let runs = |tap: &str| nics.iter().any(|nic| nic.tap == tap);
        addresses::remove(&netfilter, (&mut batch, TABLE), |tap| !runs(tap))?;
    }
    netfilter.commit(batch)?;
    Ok(Restored::of(&table, &difference))
}

/// Has the rules see frames to groups of links, too.
pub(crate) async fn show_all_frames(nics: &[Nic]) -> io::Result<()> {
    taps::show_all_frames_of(nics.iter().map(|nic| nic.tap.as_str())).await
}

/// Has NICs be judged, or not any more.
pub(crate) fn change(nics: &[Nic], is_there: bool) -> io::Result<()> {
    let netfilter = Netfilter::open()?;
    let mut batch = Batch::default();
    if is_there {
        for set in sets(nics).into_iter().chain(addresses::sets(nics)) {
            batch.add_elements((Family::Bridge, TABLE), set.name, &set.elements);
        }
    } else {
        for set in sets(nics) {
            batch.delete_elements((Family::Bridge, TABLE), set.name, &set.elements);
        }
        let is_of_them = |tap: &str| nics.iter().any(|nic| nic.tap == tap);
        addresses::remove(&netfilter, (&mut batch, TABLE), is_of_them)?;
    }
    netfilter.commit(batch)
}

/// Of which families a guest is judged by its addresses at a tap.
pub(crate) fn judged_at(tap: &str) -> io::Result<JudgedAddresses> {
    addresses::judged(&Netfilter::open()?, (Family::Bridge, TABLE), tap)
}

fn sets(nics: &[Nic]) -> [Set; 3] {
    let tap = |nic: &Nic| Value::InterfaceName(nic.tap.clone());
    [
        Set {
            name: TAPS,
            fields: vec![Field::InterfaceName],
            elements: nics.iter().map(|nic| vec![tap(nic)]).collect(),
            counts: false,
            learns: false,
        },
        Set {
            name: NICS,
            fields: vec![Field::InterfaceName, Field::Mac],
            elements: nics
                .iter()
                .map(|nic| vec![tap(nic), Value::Mac(nic.mac)])
                .collect(),
            counts: false,
            learns: false,
        },
        refused(nics.iter().map(|nic| nic.tap.as_str())),
    ]
}

fn table(nics: &[Nic]) -> Table {
    let chain = |name, base, rules| Chain { name, base, rules };
    let prerouting = base(ChainKind::Filter, Hook::Prerouting, BRIDGE_FILTER, false);
    let from_taps = Rule::new()
        .input_and(TAPS, false, &[])
        .verdict(Verdict::Jump(FROM_GUEST.to_owned()));
    let postrouting = base(ChainKind::Filter, Hook::Postrouting, BRIDGE_FILTER, false);
    Table {
        family: Family::Bridge,
        name: TABLE,
        comment: RULES.to_owned(),
        sets: sets(nics)
            .into_iter()
            .chain(addresses::sets(nics))
            .collect(),
        chains: vec![
            refuse(),
            chain(FRAGMENTS, None, fragments()),
            chain(FROM_GUEST, None, from_guest()),
            chain("prerouting", Some(prerouting), vec![from_taps]),
            chain(
                "postrouting",
                Some(postrouting),
                addresses::learned(NICS).into(),
            ),
        ],
    }
}

fn from_guest() -> Vec<Rule> {
    // Types are compared as they stand in the frame.
    let of_type = |number: u16| Rule::new().link(12, Is, &number.to_be_bytes());
    let of_icmpv6 = |number: u8| of_type(IPV6).transport(ICMPV6).icmp_type(number);
    let mut rules = vec![
        Rule::new()
            .link_bits(0, &GROUPS_MASK, Is, &GROUPS_OF_LINKS)
            .refuse(),
    ];
    rules.extend(TAGGED.map(|number| of_type(number).refuse()));
    // Before fragments, of which the later ones are not looked at any further.
    rules.extend(addresses::forged());
    rules.extend([
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
        of_type(IPV6)
            .network(NEXT_HEADER, Is, &[FRAGMENT])
            .verdict(Verdict::Jump(FRAGMENTS.to_owned())),
        // What ARP says of the sender's NIC counts as much as the frame's own header, from which bridges learn.
        of_type(ARP)
            .input_and(NICS, true, &[(Part::Network, 8, 6)])
            .refuse(),
        Rule::new()
            .input_and(NICS, false, &[(Part::Link, 6, 6)])
            .accept(),
        Rule::new().refuse(),
    ]);
    rules
}

/// The type of a packet is in its first fragment. One of a message about neighbours or routers (RFC 6980), of a datagram that may
/// be a server's, or with extension headers that hide what follows (RFC 7112), does not pass; others go on.
fn fragments() -> Vec<Rule> {
    let is_first_of = |protocol: u8| Rule::new().network(FRAGMENTED, Is, &[protocol]);
    // Hop-by-hop options, routing, a fragment in a fragment, destination options, and authentication.
    let hiding = [0, 43, FRAGMENT, 60, 51];
    let is_later = Rule::new().network_has_bits(FRAGMENT_OFFSET, &[0xff, 0xf8]);
    let mut rules = vec![
        is_later
            .input_and(NICS, false, &[(Part::Link, 6, 6)])
            .accept(),
    ];
    rules.extend(hiding.map(|protocol| is_first_of(protocol).refuse()));
    // All but an echo and its answer.
    for (first, last) in [(0, ECHO_REQUEST - 1), (ECHO_REPLY + 1, u8::MAX)] {
        let message = is_first_of(ICMPV6).network_between(IN_FRAGMENT, &[first], &[last]);
        rules.push(message.refuse());
    }
    // Without ports or the type of a message, which are within eight bytes behind the fragment's own eight.
    rules.extend([UDP, ICMPV6].map(|protocol| {
        let short = is_first_of(protocol).network_between(PAYLOAD_LENGTH, &[0, 0], &[0, 15]);
        short.refuse()
    }));
    rules
}

#[cfg(test)]
mod tests;

//! Walls on bridges of the configuration: what a guest may not send by its tap there, whoever gives out the addresses.
//!
//! A guest sends from its own hardware address alone; it is no server of addresses, no router, and on no VLAN of its own choice.
//! Which IP addresses are its own is not judged: the server that gives them out is somebody else's.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::layout::absent_is_none;
use crate::netfilter::{
    Batch, Chain, ChainKind, Comparison, Family, Field, Hook, Netfilter, Part, Rule, Set, Table,
    Value, Verdict,
};
use crate::pod::chains::{ICMPV6, UDP, base, refuse, refused};
use crate::taps;

use Comparison::{Is, IsNot};

/// The name of the table, which is not that of the pod network: each is made when the first guest needs it.
pub(crate) const TABLE: &str = "kvmlet-networks";

/// The release of the rules: a table of another is replaced.
const RULES: &str = "kvmlet networks 1";

/// Taps, and taps with the hardware addresses that they may send from.
const TAPS: &str = "taps";
const CARDS: &str = "cards";

/// What comes by one of the taps, and of that what is a fragment of IPv6.
const FROM_GUEST: &str = "from-guest";
const FRAGMENTS: &str = "fragments";

/// `filter` of the family of bridges.
const BRIDGE_FILTER: i32 = -200;

const IPV4: u16 = 0x0800;
const ARP: u16 = 0x0806;
const IPV6: u16 = 0x86dd;

/// Types of frames with the tag of a VLAN: 802.1Q, 802.1ad, and what was used before that.
const TAGGED: [u16; 3] = [0x8100, 0x88a8, 0x9100];

/// The groups of links (IEEE 802.1D, table 7-10): the spanning tree, aggregation, log-ins at ports, LLDP and others.
const GROUPS_OF_LINKS: [u8; 6] = [0x01, 0x80, 0xc2, 0, 0, 0];
const GROUPS_MASK: [u8; 6] = [0xff, 0xff, 0xff, 0xff, 0xff, 0xf0];

const PAYLOAD_LENGTH: u32 = 4;
const NEXT_HEADER: u32 = 6;
const FRAGMENT: u8 = 44;
/// Where, in a fragment, is told what it is a part of, and how far from its beginning.
const FRAGMENTED: u32 = 40;
const FRAGMENT_OFFSET: u32 = 42;
const IN_FRAGMENT: u32 = 48;

const ECHO_REQUEST: u8 = 128;
const ECHO_REPLY: u8 = 129;
const ROUTER_ADVERTISEMENT: u8 = 134;
const REDIRECT: u8 = 137;

/// A guest's card on a bridge of the configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Card {
    /// The node's end of it.
    pub(crate) tap: String,
    /// What the guest may send from.
    pub(crate) mac: [u8; 6],
}

const NOTE: &str = "cards.json";
const TEMPORARY: &str = ".cards.json.tmp";

/// Reads the note in a VMM's run directory; none is no cards.
pub(crate) fn read(dir: &Path) -> io::Result<Vec<Card>> {
    match absent_is_none(fs::read(dir.join(NOTE)))? {
        None => Ok(Vec::new()),
        Some(text) => Ok(serde_json::from_slice(&text)?),
    }
}

/// Writes the note as a whole or not at all.
pub(crate) fn write(dir: &Path, cards: &[Card]) -> io::Result<()> {
    let temporary = dir.join(TEMPORARY);
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all(&serde_json::to_vec(cards)?)?;
    fs::rename(&temporary, dir.join(NOTE))
}

/// Makes the table what it is to be, with the cards of all guests that run. Without any, a table that is not there is not made.
pub(crate) fn prepare(cards: &[Card]) -> io::Result<()> {
    let netfilter = Netfilter::open()?;
    let present = netfilter.comment_of(Family::Bridge, TABLE)?;
    if present.is_none() && cards.is_empty() {
        return Ok(());
    }
    let table = table(cards);
    let mut batch = Batch::default();
    if present.as_ref() == Some(&table.comment) {
        table.refill(&mut batch);
    } else {
        table.replace(&mut batch);
    }
    netfilter.commit(batch)
}

/// Has the rules see frames to groups of links, too.
pub(crate) async fn show_all_frames(cards: &[Card]) -> io::Result<()> {
    taps::show_all_frames_of(cards.iter().map(|card| card.tap.as_str())).await
}

/// Has cards be judged, or not any more.
pub(crate) fn change(cards: &[Card], is_there: bool) -> io::Result<()> {
    let mut batch = Batch::default();
    for set in sets(cards) {
        if is_there {
            batch.add_elements((Family::Bridge, TABLE), set.name, &set.elements);
        } else {
            batch.delete_elements((Family::Bridge, TABLE), set.name, &set.elements);
        }
    }
    Netfilter::open()?.commit(batch)
}

fn sets(cards: &[Card]) -> [Set; 3] {
    let tap = |card: &Card| Value::InterfaceName(card.tap.clone());
    [
        Set {
            name: TAPS,
            fields: vec![Field::InterfaceName],
            elements: cards.iter().map(|card| vec![tap(card)]).collect(),
            counts: false,
        },
        Set {
            name: CARDS,
            fields: vec![Field::InterfaceName, Field::Mac],
            elements: cards
                .iter()
                .map(|card| vec![tap(card), Value::Mac(card.mac)])
                .collect(),
            counts: false,
        },
        refused(cards.iter().map(|card| card.tap.as_str())),
    ]
}

fn table(cards: &[Card]) -> Table {
    let chain = |name, base, rules| Chain { name, base, rules };
    let prerouting = base(ChainKind::Filter, Hook::Prerouting, BRIDGE_FILTER, false);
    let from_taps = Rule::new()
        .input_and(TAPS, false, &[])
        .verdict(Verdict::Jump(FROM_GUEST.to_owned()));
    Table {
        family: Family::Bridge,
        name: TABLE,
        comment: RULES.to_owned(),
        sets: sets(cards).into(),
        chains: vec![
            refuse(),
            chain(FRAGMENTS, None, fragments()),
            chain(FROM_GUEST, None, from_guest()),
            chain("prerouting", Some(prerouting), vec![from_taps]),
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
        // What ARP says of the sender's card counts as much as the frame's own header, from which bridges learn.
        of_type(ARP)
            .input_and(CARDS, true, &[(Part::Network, 8, 6)])
            .refuse(),
        Rule::new()
            .input_and(CARDS, false, &[(Part::Link, 6, 6)])
            .accept(),
        Rule::new().refuse(),
    ]);
    rules
}

/// The first fragment of a packet tells what it is. One of a message about neighbours or routers (RFC 6980), of a datagram that may
/// be a server's, or with extension headers that hide what follows (RFC 7112), does not pass; others go on.
fn fragments() -> Vec<Rule> {
    let is_first_of = |protocol: u8| Rule::new().network(FRAGMENTED, Is, &[protocol]);
    // Hop-by-hop options, routing, a fragment in a fragment, destination options, and authentication.
    let hiding = [0, 43, FRAGMENT, 60, 51];
    let is_later = Rule::new().network_has_bits(FRAGMENT_OFFSET, &[0xff, 0xf8]);
    let mut rules = vec![
        is_later
            .input_and(CARDS, false, &[(Part::Link, 6, 6)])
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

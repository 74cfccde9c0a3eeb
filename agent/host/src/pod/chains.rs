//! What the tables of the pod network have in common.

use std::io;
use std::net::Ipv6Addr;

use super::names::TAP;
use super::namespace::Namespace;
use crate::netfilter::{
    Base, Chain, ChainKind, Family, Field, Hook, Netfilter, Rule, Set, Value, Verdict,
};

/// The name of our tables.
pub(crate) const TABLE: &str = "kvmlet";

pub(super) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const ICMPV6: u8 = 58;

/// Types of frames.
pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const ARP: u16 = 0x0806;
pub(crate) const IPV6: u16 = 0x86dd;

/// A type of messages of ICMPv6.
pub(crate) const NEIGHBOUR_ADVERTISEMENT: u8 = 136;

/// The address that a link with this hardware address gives itself (RFC 4291, appendix A).
pub(crate) fn link_local([a, b, c, d, e, f]: [u8; 6]) -> Ipv6Addr {
    let id = [a ^ 2, b, c, 0xff, 0xfe, d, e, f];
    Ipv6Addr::from(0xfe80_u128 << 112 | u128::from(u64::from_be_bytes(id)))
}

/// Where a chain hooks in; it accepts or drops what no rule of it decides.
pub(crate) fn base(kind: ChainKind, hook: Hook, priority: i32, drops: bool) -> Base {
    Base {
        kind,
        hook,
        priority,
        drops,
    }
}

/// The chain of what walls refuse, and the set of links that counts it for each.
const REFUSE: &str = "refuse";
const REFUSED: &str = "refused";

impl Rule {
    /// Drops by the chain of [`refuse`], and counts in the rule what it was.
    pub(crate) fn refuse(self) -> Self {
        self.count().verdict(Verdict::Jump(REFUSE.to_owned()))
    }
}

/// Drops, and counts for each link.
pub(crate) fn refuse() -> Chain {
    Chain {
        name: REFUSE,
        base: None,
        rules: vec![
            Rule::new().input_and(REFUSED, false, &[]),
            Rule::new().verdict(Verdict::Drop),
        ],
    }
}

/// The links whose frames are counted when they are refused.
pub(crate) fn refused<'a>(links: impl Iterator<Item = &'a str>) -> Set {
    Set {
        name: REFUSED,
        fields: vec![Field::InterfaceName],
        elements: links.map(link).collect(),
        counts: true,
        learns: false,
    }
}

fn link(name: &str) -> Vec<Value> {
    vec![Value::InterfaceName(name.to_owned())]
}

/// Frames that came by a link and were refused, since the link was joined or the agent has started; `None`: nothing is
/// judged of it.
pub(crate) fn refused_of(
    netfilter: &Netfilter,
    table: &str,
    name: &str,
) -> io::Result<Option<u64>> {
    netfilter.packets_of((Family::Bridge, table), REFUSED, link(name))
}

/// The same of what a guest under masquerade has sent, by the rules within its VMM's namespace.
pub(crate) async fn refused_within(namespace: Namespace) -> io::Result<Option<u64>> {
    let look = async || {
        let table = (Family::Inet, TABLE);
        Netfilter::open()?.packets_of(table, REFUSED, link(TAP))
    };
    namespace.run(look).await?
}

//! Rules: matches on a packet, and the verdict on it.

use std::net::IpAddr;

use sha2::{Digest, Sha256};

use super::attributes::Attributes;
use super::kinds::Verdict;
use super::set::interface_name;

mod encode;

/// Registers of 16 bytes; those of 32 bits that they are made of begin at 8.
const FIRST: u32 = 1;
const SECOND: u32 = 2;
const WORDS: u32 = 8;

const LINK: u32 = 0;
const NETWORK: u32 = 1;
const TRANSPORT: u32 = 2;

const EQUAL: u32 = 0;
const NOT_EQUAL: u32 = 1;

/// How a part of a packet is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Comparison {
    Is,
    IsNot,
}

impl Comparison {
    const fn number(self) -> u32 {
        match self {
            Self::Is => EQUAL,
            Self::IsNot => NOT_EQUAL,
        }
    }
}

/// A rule in the making: conditions, all of which have to hold, and then what is done.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rule(Vec<Expression>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Expression {
    Meta {
        key: u32,
        into: u32,
    },
    Payload {
        base: u32,
        offset: u32,
        length: u32,
        into: u32,
    },
    Compare {
        register: u32,
        operator: u32,
        value: Vec<u8>,
    },
    Mask {
        mask: Vec<u8>,
    },
    /// Whether a packet of IPv6 has an extension header of a kind.
    Extension {
        kind: u8,
        into: u32,
    },
    ConnectionTracking {
        key: u32,
    },
    Lookup {
        set: &'static str,
        inverted: bool,
    },
    /// Adds what was looked at to a set.
    Learn {
        set: &'static str,
    },
    Number {
        modulus: u32,
    },
    Load {
        register: u32,
        value: Vec<u8>,
    },
    Translate {
        family: u32,
        with_port: bool,
    },
    Masquerade,
    Count,
    Decide(Verdict),
}

/// Keys of `meta`.
mod meta {
    pub(super) const INPUT_NAME: u32 = 6;
    pub(super) const OUTPUT_NAME: u32 = 7;
    pub(super) const NETWORK_PROTOCOL: u32 = 15;
    pub(super) const TRANSPORT_PROTOCOL: u32 = 16;
}

/// Keys of `ct`.
mod connection {
    pub(super) const STATE: u32 = 0;
    pub(super) const STATUS: u32 = 2;
    pub(super) const ESTABLISHED_OR_RELATED: u32 = 2 | 4;
    /// IPS_DST_NAT
    pub(super) const TRANSLATED: u32 = 1 << 5;
}

const IPV4: u32 = 2;
const IPV6: u32 = 10;

impl Rule {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn with(mut self, expressions: impl IntoIterator<Item = Expression>) -> Self {
        self.0.extend(expressions);
        self
    }

    fn meta(self, key: u32, how: Comparison, value: impl Into<Vec<u8>>) -> Self {
        self.with([
            Expression::Meta { key, into: FIRST },
            Expression::Compare {
                register: FIRST,
                operator: how.number(),
                value: value.into(),
            },
        ])
    }

    fn payload(self, base: u32, offset: u32, how: Comparison, value: &[u8]) -> Self {
        // Headers are short.
        let length = u32::try_from(value.len()).unwrap_or_default();
        self.with([
            Expression::Payload {
                base,
                offset,
                length,
                into: FIRST,
            },
            Expression::Compare {
                register: FIRST,
                operator: how.number(),
                value: value.to_vec(),
            },
        ])
    }

    /// `iifname`
    pub(crate) fn input(self, how: Comparison, name: &str) -> Self {
        self.meta(meta::INPUT_NAME, how, interface_name(name))
    }

    /// `iifname` that begins so.
    pub(crate) fn input_begins(self, start: &str) -> Self {
        self.meta(meta::INPUT_NAME, Comparison::Is, start.as_bytes())
    }

    /// `oifname`
    pub(crate) fn output(self, how: Comparison, name: &str) -> Self {
        self.meta(meta::OUTPUT_NAME, how, interface_name(name))
    }

    /// `meta nfproto ipv4`
    pub(crate) fn ipv4(self) -> Self {
        self.meta(meta::NETWORK_PROTOCOL, Comparison::Is, [2])
    }

    /// `meta nfproto ipv6`
    pub(crate) fn ipv6(self) -> Self {
        self.meta(meta::NETWORK_PROTOCOL, Comparison::Is, [10])
    }

    /// The family of an address.
    pub(crate) fn family_of(self, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(_) => self.ipv4(),
            IpAddr::V6(_) => self.ipv6(),
        }
    }

    /// `meta l4proto`
    pub(crate) fn transport(self, number: u8) -> Self {
        self.meta(meta::TRANSPORT_PROTOCOL, Comparison::Is, [number])
    }

    /// `ip saddr` and `ip6 saddr`; the family has to be known by then.
    pub(crate) fn source(self, how: Comparison, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.payload(NETWORK, 12, how, &address.octets()),
            IpAddr::V6(address) => self.payload(NETWORK, 8, how, &address.octets()),
        }
    }

    /// `ip daddr` and `ip6 daddr`
    pub(crate) fn destination(self, how: Comparison, address: IpAddr) -> Self {
        match address {
            IpAddr::V4(address) => self.payload(NETWORK, 16, how, &address.octets()),
            IpAddr::V6(address) => self.payload(NETWORK, 24, how, &address.octets()),
        }
    }

    /// `ip saddr` and `ip6 saddr` in a network.
    pub(crate) fn source_in(self, how: Comparison, network: IpAddr, prefix: u8) -> Self {
        match network {
            IpAddr::V4(network) => self.in_network((NETWORK, 12), how, &network.octets(), prefix),
            IpAddr::V6(network) => self.in_network((NETWORK, 8), how, &network.octets(), prefix),
        }
    }

    /// `ip daddr` and `ip6 daddr` in a network.
    pub(crate) fn destination_in(self, how: Comparison, network: IpAddr, prefix: u8) -> Self {
        match network {
            IpAddr::V4(network) => self.in_network((NETWORK, 16), how, &network.octets(), prefix),
            IpAddr::V6(network) => self.in_network((NETWORK, 24), how, &network.octets(), prefix),
        }
    }

    fn in_network(
        self,
        (base, offset): (u32, u32),
        how: Comparison,
        network: &[u8],
        prefix: u8,
    ) -> Self {
        let mask = mask(network.len(), prefix);
        let value = network.iter().zip(&mask).map(|(byte, mask)| byte & mask);
        self.bits((base, offset), &mask, (how, value.collect()))
    }

    /// Some bits of a part of a packet.
    fn bits(
        self,
        (base, offset): (u32, u32),
        mask: &[u8],
        (how, value): (Comparison, Vec<u8>),
    ) -> Self {
        self.with([
            Expression::Payload {
                base,
                offset,
                // Headers are short.
                length: u32::try_from(mask.len()).unwrap_or_default(),
                into: FIRST,
            },
            Expression::Mask {
                mask: mask.to_vec(),
            },
            Expression::Compare {
                register: FIRST,
                operator: how.number(),
                value,
            },
        ])
    }

    /// `tcp dport` and `udp dport`, one or several that follow each other; the protocol has to be known by then.
    pub(crate) fn destination_ports(self, first: u16, last: u16) -> Self {
        if first == last {
            return self.payload(TRANSPORT, 2, Comparison::Is, &first.to_be_bytes());
        }
        self.between((TRANSPORT, 2), &first.to_be_bytes(), &last.to_be_bytes())
    }

    /// Bytes of a part of a packet that are a number of a range; both limits have the same length.
    fn between(self, (base, offset): (u32, u32), first: &[u8], last: &[u8]) -> Self {
        const AT_MOST: u32 = 3;
        const AT_LEAST: u32 = 5;
        let compare = |operator, limit: &[u8]| Expression::Compare {
            register: FIRST,
            operator,
            value: limit.to_vec(),
        };
        self.with([
            Expression::Payload {
                base,
                offset,
                // Headers are short.
                length: u32::try_from(first.len()).unwrap_or_default(),
                into: FIRST,
            },
            compare(AT_LEAST, first),
            compare(AT_MOST, last),
        ])
    }

    /// `icmpv6 type`; the protocol has to be known by then.
    pub(crate) fn icmp_type(self, number: u8) -> Self {
        self.payload(TRANSPORT, 0, Comparison::Is, &[number])
    }

    /// `udp sport` and `tcp sport`
    pub(crate) fn source_port(self, port: u16) -> Self {
        self.payload(TRANSPORT, 0, Comparison::Is, &port.to_be_bytes())
    }

    /// Bytes of the header of the transport and behind it; the protocol has to be known by then.
    pub(crate) fn transport_bytes(self, offset: u32, how: Comparison, value: &[u8]) -> Self {
        self.payload(TRANSPORT, offset, how, value)
    }

    /// Bytes of the frame's own header: destination, source, type.
    pub(crate) fn link(self, offset: u32, how: Comparison, value: &[u8]) -> Self {
        self.payload(LINK, offset, how, value)
    }

    /// Some bits of the frame's own header.
    pub(crate) fn link_bits(self, offset: u32, mask: &[u8], how: Comparison, value: &[u8]) -> Self {
        self.bits((LINK, offset), mask, (how, value.to_vec()))
    }

    /// Bytes behind the frame's own header, such as of ARP.
    pub(crate) fn network(self, offset: u32, how: Comparison, value: &[u8]) -> Self {
        self.payload(NETWORK, offset, how, value)
    }

    /// Bytes behind the frame's own header that are a number of a range; both limits have the same length.
    pub(crate) fn network_between(self, offset: u32, first: &[u8], last: &[u8]) -> Self {
        self.between((NETWORK, offset), first, last)
    }

    /// Whether any of some bits behind the frame's own header is set.
    pub(crate) fn network_has_bits(self, offset: u32, mask: &[u8]) -> Self {
        self.bits(
            (NETWORK, offset),
            mask,
            (Comparison::IsNot, vec![0; mask.len()]),
        )
    }

    /// `exthdr NAME exists`: an extension header of IPv6, wherever it stands.
    pub(crate) fn has_extension(self, kind: u8) -> Self {
        self.with([
            Expression::Extension { kind, into: FIRST },
            Expression::Compare {
                register: FIRST,
                operator: EQUAL,
                value: vec![1],
            },
        ])
    }

    /// Whether the interface that the packet came by and some parts of it are in a set, together.
    pub(crate) fn input_and(
        self,
        set: &'static str,
        inverted: bool,
        parts: &[(Part, u32, u32)],
    ) -> Self {
        self.with(key(meta::INPUT_NAME, parts))
            .with([Expression::Lookup { set, inverted }])
    }

    /// The same with the interface that it leaves by.
    pub(crate) fn output_and(
        self,
        set: &'static str,
        inverted: bool,
        parts: &[(Part, u32, u32)],
    ) -> Self {
        self.with(key(meta::OUTPUT_NAME, parts))
            .with([Expression::Lookup { set, inverted }])
    }

    /// `add @set { oifname . PARTS }`: a set learns the interface that the packet leaves by and some parts of it, together.
    pub(crate) fn learn_output_and(self, set: &'static str, parts: &[(Part, u32, u32)]) -> Self {
        self.with(key(meta::OUTPUT_NAME, parts))
            .with([Expression::Learn { set }])
    }

    /// `ct state established,related`
    pub(crate) fn of_known_connection(self) -> Self {
        self.tracked(connection::STATE, connection::ESTABLISHED_OR_RELATED)
    }

    /// `ct status dnat`
    pub(crate) fn translated(self) -> Self {
        self.tracked(connection::STATUS, connection::TRANSLATED)
    }

    fn tracked(self, key: u32, bits: u32) -> Self {
        let none = vec![0; 4];
        self.with([
            Expression::ConnectionTracking { key },
            Expression::Mask {
                mask: bits.to_ne_bytes().to_vec(),
            },
            Expression::Compare {
                register: FIRST,
                operator: NOT_EQUAL,
                value: none,
            },
        ])
    }

    /// One of so many, in turn.
    pub(crate) fn one_of(self, modulus: u32) -> Self {
        let none = vec![0; 4];
        self.with([
            Expression::Number { modulus },
            Expression::Compare {
                register: FIRST,
                operator: EQUAL,
                value: none,
            },
        ])
    }

    /// `counter`
    pub(crate) fn count(self) -> Self {
        self.with([Expression::Count])
    }

    /// `accept`, `drop`, `jump`
    pub(crate) fn verdict(self, verdict: Verdict) -> Self {
        self.with([Expression::Decide(verdict)])
    }

    pub(crate) fn accept(self) -> Self {
        self.verdict(Verdict::Accept)
    }

    /// Drops, and counts what was dropped.
    pub(crate) fn drop(self) -> Self {
        self.count().verdict(Verdict::Drop)
    }

    /// `dnat`, to an address and where it is given a port.
    pub(crate) fn to(self, address: IpAddr, port: Option<u16>) -> Self {
        let (family, value) = match address {
            IpAddr::V4(address) => (IPV4, address.octets().to_vec()),
            IpAddr::V6(address) => (IPV6, address.octets().to_vec()),
        };
        let load = |register, value| Expression::Load { register, value };
        let port_value = port.map(|port| load(SECOND, port.to_be_bytes().to_vec()));
        self.with([load(FIRST, value)])
            .with(port_value)
            .with([Expression::Translate {
                family,
                with_port: port.is_some(),
            }])
    }

    /// `masquerade`
    pub(crate) fn masquerade(self) -> Self {
        self.with([Expression::Masquerade])
    }

    /// What the kernel keeps beside a rule for whoever made it, as `nft` arranges it: kind, length and value. The value tells
    /// this rule from any other, and `nft` keeps it of no rule that it changes.
    pub(super) fn mark(&self) -> Vec<u8> {
        // `nft` itself has the kinds from 0 on, and skips others.
        const KIND: u8 = 200;
        const BYTES: u8 = 8;
        let mut list = Attributes::default();
        self.encode(&mut list);
        let digest = Sha256::digest(list.as_bytes());
        let value = digest.into_iter().take(usize::from(BYTES));
        [KIND, BYTES].into_iter().chain(value).collect()
    }

    pub(super) fn encode(&self, list: &mut Attributes) {
        for expression in &self.0 {
            list.nested(1, |element| {
                element.text(1, expression.name());
                element.nested(2, |data| expression.encode(data));
            });
        }
    }
}

/// A part of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Link,
    Network,
    Transport,
}

/// Loads an interface's name and parts of a packet, each given by base, offset and length in bytes, one behind the other.
fn key(link: u32, parts: &[(Part, u32, u32)]) -> Vec<Expression> {
    let mut word = WORDS;
    let mut expressions = vec![Expression::Meta {
        key: link,
        into: word,
    }];
    word += 4;
    for (part, offset, length) in parts {
        expressions.push(Expression::Payload {
            base: match part {
                Part::Link => LINK,
                Part::Network => NETWORK,
                Part::Transport => TRANSPORT,
            },
            offset: *offset,
            length: *length,
            into: word,
        });
        word += length.div_ceil(4);
    }
    expressions
}

fn mask(length: usize, prefix: u8) -> Vec<u8> {
    let mut left = u32::from(prefix);
    let byte = |_| {
        let bits = left.min(8);
        left -= bits;
        // 0 to 8 bits from the left.
        u8::try_from((0xff00_u32 >> bits) & 0xff).unwrap_or_default()
    };
    (0..length).map(byte).collect()
}

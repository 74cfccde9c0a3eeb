//! Router advertisements (RFC 4861, 4191, 8106): the guest's way out by IPv6.

use std::net::Ipv6Addr;

use crate::guest::{Guest, Lease6};
use crate::limits::MAX_BYTES;
use crate::options::domains;

const SOLICITATION: u8 = 133;
const ADVERTISEMENT: u8 = 134;

/// Addresses and other things are to be asked for by DHCPv6.
const MANAGED: u8 = 0xc0;

const HOP_LIMIT: u8 = 64;

/// Seconds: the longest that a router can be one. It is advertised again long before.
const LIFETIME: u16 = u16::MAX;

const FOR_EVER: [u8; 4] = [0xff; 4];

/// The prefix is the link's; addresses are not made of it.
const ON_LINK: u8 = 0x80;

/// Preference of a route (RFC 4191, section 2.1): as good as any other router's.
const MEDIUM: u8 = 0;

/// Numbers of options that last for ever and end with a list or a prefix.
mod option {
    pub(super) const ROUTE: u8 = 24;
    pub(super) const DNS: u8 = 25;
    pub(super) const SEARCH: u8 = 31;
}

/// What a router advertises to a guest, as the kernel takes it: without checksum. Nothing for a guest without IPv6.
#[must_use]
pub fn advertisement(guest: &Guest) -> Option<Vec<u8>> {
    let lease = guest.v6.as_ref()?;
    let mut bytes = vec![ADVERTISEMENT, 0, 0, 0, HOP_LIMIT, MANAGED];
    bytes.extend(LIFETIME.to_be_bytes());
    // How long a neighbour is reachable, and how often it is asked for: as the guest has it.
    bytes.extend([0; 8]);
    bytes.extend([5, 1, 0, 0]);
    bytes.extend(u32::from(guest.mtu).to_be_bytes());
    bytes.extend([3, 4, lease.prefix, ON_LINK]);
    bytes.extend(FOR_EVER);
    bytes.extend(FOR_EVER);
    bytes.extend([0; 4]);
    bytes.extend(network(lease));
    let servers: Vec<u8> = lease
        .dns
        .iter()
        .flat_map(|server| server.octets())
        .collect();
    push_list(&mut bytes, option::DNS, servers);
    for (network, bits) in &lease.routes {
        push_route(&mut bytes, *network, *bits);
    }
    // As long as the list is: what would not fit behind it comes before it.
    let search = domains(guest.search.iter().map(String::as_str));
    push_list(&mut bytes, option::SEARCH, search);
    Some(bytes)
}

/// Whether a message of ICMPv6 asks for routers.
#[must_use]
pub fn is_solicitation(message: &[u8]) -> bool {
    matches!(message, [SOLICITATION, 0, ..]) && message.len() >= 8
}

/// Whether a message says that it asks for routers, and makes no sense.
#[must_use]
pub fn is_malformed_solicitation(message: &[u8]) -> bool {
    message.first() == Some(&SOLICITATION) && !is_solicitation(message)
}

/// A list, if there is something in it.
fn push_list(bytes: &mut Vec<u8>, number: u8, value: Vec<u8>) {
    if !value.is_empty() {
        push(bytes, [number, 0, 0], value);
    }
}

/// A network that the router leads to. Its prefix takes as many words of eight bytes as its bits need.
fn push_route(bytes: &mut Vec<u8>, network: Ipv6Addr, bits: u8) {
    let bits = bits.min(128);
    let significant = usize::from(bits.div_ceil(8));
    let prefix = network.octets().into_iter().take(significant).collect();
    push(bytes, [option::ROUTE, bits, MEDIUM], prefix);
}

/// An option that lasts for ever, if it fits. What stands between its length and its lifetime is its own.
fn push(bytes: &mut Vec<u8>, [number, first, second]: [u8; 3], mut value: Vec<u8>) {
    value.resize(value.len().next_multiple_of(8), 0);
    let words = u8::try_from(value.len() / 8 + 1);
    let fits = bytes.len() + 8 + value.len() <= MAX_BYTES;
    if let (true, Ok(words)) = (fits, words) {
        bytes.extend([number, words, first, second]);
        bytes.extend(FOR_EVER);
        bytes.extend(value);
    }
}

fn network(lease: &Lease6) -> [u8; 16] {
    let bits = u32::from(lease.prefix.min(128));
    let mask = u128::MAX.checked_shl(128 - bits).unwrap_or(0);
    (u128::from(lease.address) & mask).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_learns_its_link_its_mtu_and_that_addresses_are_to_be_asked_for() {
        let guest = Guest {
            mtu: 1450,
            v6: Some(Lease6 {
                address: "fd10:0:2::2".parse().unwrap(),
                prefix: 120,
                dns: vec!["fd10:0:2::1".parse().unwrap()],
                routes: Vec::new(),
            }),
            search: vec![String::from("a.b")],
            ..Guest::default()
        };
        let bytes = advertisement(&guest).unwrap();
        assert_eq!(bytes[..8], [134, 0, 0, 0, 64, 0xc0, 255, 255]);
        assert_eq!(bytes[16..24], [5, 1, 0, 0, 0, 0, 5, 170]);
        assert_eq!(bytes[24..28], [3, 4, 120, 0x80]);
        assert_eq!(
            bytes[40..56],
            [0xfd, 0x10, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
        );
        assert_eq!(bytes[56..60], [25, 3, 0, 0]);
        assert_eq!(
            bytes[80..],
            *b"\x1f\x02\x00\x00\xff\xff\xff\xff\x01a\x01b\x00\x00\x00\x00"
        );
        assert!(advertisement(&Guest::default()).is_none());
    }

    /// Type, length, bits and preference, a lifetime without end, and the prefix as RFC 4191, section 2.3, bounds it.
    #[test]
    fn a_route_is_advertised_with_as_much_of_its_prefix_as_it_has_bits() {
        for (network, bits, words) in [
            ("::", 0, 1),
            ("fd00::", 8, 2),
            ("fd00:1:2:3::", 64, 2),
            ("2001:db8::8000:0:0:0", 65, 3),
            ("2001:db8::7", 128, 3),
        ] {
            let network: Ipv6Addr = network.parse().unwrap();
            let guest = Guest {
                v6: Some(Lease6 {
                    address: "fd10:0:2::2".parse().unwrap(),
                    prefix: 120,
                    dns: Vec::new(),
                    routes: vec![(network, bits)],
                }),
                ..Guest::default()
            };
            let bytes = advertisement(&guest).unwrap();
            let head = [24, words, bits, 0, 255, 255, 255, 255];
            let prefix = &network.octets()[..usize::from(words) * 8 - 8];
            assert_eq!(bytes[56..], [&head, prefix].concat(), "{network}/{bits}");
        }
    }

    #[test]
    fn an_advertisement_stays_within_a_frame_however_much_there_is_to_say() {
        let network = |number: u16| Ipv6Addr::new(0xfd00, number, 0, 0, 0, 0, 0, 0);
        let guest = Guest {
            v6: Some(Lease6 {
                address: "fd10:0:2::2".parse().unwrap(),
                prefix: 120,
                dns: Vec::new(),
                routes: (0..100).map(|number| (network(number), 64)).collect(),
            }),
            search: vec![String::from("a.b")],
            ..Guest::default()
        };
        let bytes = advertisement(&guest).unwrap();
        assert!(bytes.len() <= MAX_BYTES, "{}", bytes.len());
        // Whole options alone.
        assert_eq!((bytes.len() - 56) % 16, 0);
    }

    #[test]
    fn only_solicitations_are_answered() {
        assert!(is_solicitation(&[133, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!is_solicitation(&[134, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!is_solicitation(&[133, 0]));
    }
}

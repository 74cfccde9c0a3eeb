//! Router advertisements (RFC 4861, 8106): the guest's way out by IPv6.

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
    push(&mut bytes, 25, servers);
    push(
        &mut bytes,
        31,
        domains(guest.search.iter().map(String::as_str)),
    );
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

/// An option that lasts for ever, if there is something in it and it fits.
fn push(bytes: &mut Vec<u8>, number: u8, mut value: Vec<u8>) {
    value.resize(value.len().next_multiple_of(8), 0);
    let words = u8::try_from(value.len() / 8 + 1);
    let fits = bytes.len() + 8 + value.len() <= MAX_BYTES;
    if let (false, true, Ok(words)) = (value.is_empty(), fits, words) {
        bytes.extend([number, words, 0, 0]);
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

    #[test]
    fn only_solicitations_are_answered() {
        assert!(is_solicitation(&[133, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!is_solicitation(&[134, 0, 0, 0, 0, 0, 0, 0]));
        assert!(!is_solicitation(&[133, 0]));
    }
}

//! Routes of the node, as the kernel lists them in `/proc/net`.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use super::words::text_of;
use crate::pod::NetworkBits;

/// Flags of routes (`linux/route.h`, `linux/ipv6_route.h`): that refuse, and that lead to the node itself.
const REJECT: u32 = 0x200;
const ANYCAST: u32 = 0x0010_0000;
const LOCAL: u32 = 0x8000_0000;

/// A route to a network. Default routes lead everywhere and are none.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) network: NetworkBits,
    pub(super) interface: String,
}

/// All of them, of both families.
pub(super) fn all(root: &Path) -> Vec<Route> {
    let text = |path| text_of(root, path).unwrap_or_default();
    let (v4, v6) = (text("proc/net/route"), text("proc/net/ipv6_route"));
    let v4 = v4.lines().skip(1).filter_map(parse4);
    v4.chain(v6.lines().filter_map(parse6)).collect()
}

/// Interface, destination, gateway, flags, three numbers and the mask, in the byte order of the machine.
fn parse4(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let number = |index: usize| hexadecimal(words.get(index)?);
    let (network, mask) = (u32::from_be(number(1)?), u32::from_be(number(7)?));
    let is_one = mask != 0 && number(3)? & REJECT == 0;
    is_one.then_some(Route {
        network: (
            IpAddr::V4(Ipv4Addr::from(network)),
            u8::try_from(mask.count_ones()).ok()?,
        ),
        interface: words.first().copied()?.to_owned(),
    })
}

/// Destination and its length, source and its length, next hop, three numbers, flags, interface. Routes of all tables
/// are among them: those to the node's own addresses and to groups are left out.
fn parse6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_ascii_whitespace().collect();
    let network = Ipv6Addr::from(u128::from_str_radix(words.first()?, 16).ok()?);
    let bits = u8::from_str_radix(words.get(1)?, 16).ok()?;
    let flags = hexadecimal(words.get(8)?)?;
    let is_one = bits != 0 && !network.is_multicast() && flags & (REJECT | ANYCAST | LOCAL) == 0;
    is_one.then_some(Route {
        network: (IpAddr::V6(network), bits),
        interface: words.get(9).copied()?.to_owned(),
    })
}

fn hexadecimal(word: &str) -> Option<u32> {
    u32::from_str_radix(word, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::super::tests::node;
    use super::*;

    #[test]
    fn routes_that_lead_to_others_are_read() {
        let v4 = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 0100000A 0003 0 0 0 00000000 0 0 0
* 0000000A 00000000 0200 0 0 0 000000FF 0 0 0
wg0 0000D40A 00000000 0001 0 0 0 0000FEFF 0 0 0\n";
        let zero = "00000000000000000000000000000000";
        let line = |to: &str, flags: &str, link: &str| {
            format!("{to} {zero} 00 {zero} 00000100 00000001 00000000 {flags} {link}\n")
        };
        let v6 = [
            line("fd000001000000000000000000000000 20", "00000001", "wg0"),
            line(&format!("{zero} 00"), "00450003", "eth0"),
            line("fd000001000200030000000000000001 80", "80200001", "kvmlet0"),
            line("fd000001000200030000000000000000 80", "80300001", "kvmlet0"),
            line("ff000000000000000000000000000000 08", "00000001", "eth0"),
            line("fd000000000000000000000000000000 08", "00200200", "lo"),
        ];
        let v6 = v6.concat();
        let root = node(&[("proc/net/route", v4), ("proc/net/ipv6_route", &v6)]);
        let route = |network: &str, bits| Route {
            network: (network.parse().unwrap(), bits),
            interface: "wg0".to_owned(),
        };
        assert_eq!(
            all(root.path()),
            [route("10.212.0.0", 15), route("fd00:1::", 32)]
        );
    }
}

//! Networks as the configuration writes them.

use std::net::IpAddr;

/// Network and bits, behind which the address has none. A network of no bits is everywhere, and none of ours.
pub(super) fn network_of(cidr: &str) -> Option<(IpAddr, u8)> {
    let (network, prefix) = cidr.split_once('/')?;
    let (network, prefix): (IpAddr, u8) = (network.parse().ok()?, prefix.parse().ok()?);
    let (bits, zeros) = match network {
        IpAddr::V4(network) => (32, u32::from(network).trailing_zeros()),
        IpAddr::V6(network) => (128, u128::from(network).trailing_zeros()),
    };
    let is_network = (1..=bits).contains(&u32::from(prefix)) && zeros >= bits - u32::from(prefix);
    is_network.then_some((network, prefix))
}

/// All of a list of networks; `None` when one is none.
pub(super) fn networks_of(cidrs: &[String]) -> Option<Vec<(IpAddr, u8)>> {
    cidrs.iter().map(|cidr| network_of(cidr)).collect()
}

/// Whether routers lead to such a network: it is neither of a link, nor of everybody, nor of nobody.
pub(super) fn is_routed(network: IpAddr) -> bool {
    match network {
        IpAddr::V4(network) => {
            let is_special =
                network.is_loopback() || network.is_multicast() || network.is_link_local();
            (1..240).contains(&network.octets()[0]) && !is_special
        }
        IpAddr::V6(network) => {
            let is_special = network.is_loopback() || network.is_multicast();
            !(network.is_unspecified() || network.is_unicast_link_local() || is_special)
        }
    }
}

/// Whether all of a network is in another one.
pub(super) fn contains((outer, bits): (IpAddr, u8), (inner, inner_bits): (IpAddr, u8)) -> bool {
    let same = match (outer, inner) {
        (IpAddr::V4(outer), IpAddr::V4(inner)) => {
            (u32::from(outer) ^ u32::from(inner)).leading_zeros()
        }
        (IpAddr::V6(outer), IpAddr::V6(inner)) => {
            (u128::from(outer) ^ u128::from(inner)).leading_zeros()
        }
        _ => return false,
    };
    inner_bits >= bits && same >= u32::from(bits)
}

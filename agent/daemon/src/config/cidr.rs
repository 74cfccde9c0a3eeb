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

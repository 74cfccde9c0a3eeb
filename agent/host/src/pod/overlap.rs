//! Networks that have addresses in common.

use std::net::IpAddr;

/// A network, and its bits.
pub(crate) type Network = (IpAddr, u8);

/// Whether two networks have an address in common.
pub(crate) fn overlap((one, one_bits): Network, (other, other_bits): Network) -> bool {
    let differs = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (u32::from(one) ^ u32::from(other)).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => {
            (u128::from(one) ^ u128::from(other)).leading_zeros()
        }
        _ => return false,
    };
    differs >= u32::from(one_bits.min(other_bits))
}

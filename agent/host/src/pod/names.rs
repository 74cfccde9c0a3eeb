//! Names and addresses of the links that guests have.

use std::net::Ipv4Addr;

/// The tap's name within the namespace.
pub(crate) const TAP: &str = "tap0";

/// The veth's name within the namespace, as in a pod.
pub(super) const ETH: &str = "eth0";

/// The bridge within the namespace of a guest that is bridged, as in a launcher pod.
pub(super) const BRIDGE: &str = "k6t-eth0";

/// That bridge's own address, by which its DHCP server answers; nobody beyond it sees it.
pub(crate) const BRIDGE_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 75, 10);

/// Bits of the network of IPv6 addresses.
pub(crate) const PREFIX6: u8 = 64;

/// What the mark of a guest's link begins with; its VMI's uid follows.
pub(super) const MARK: &str = "kvmlet:";

/// The mark of a VMI's link.
pub(crate) fn mark_of(uid: &str) -> String {
    format!("{MARK}{uid}")
}

/// The hardware address that goes with an address of the pool, as container networks derive them: neighbours that
/// remember it are right about the next guest that has the address, too.
pub(crate) fn mac_of(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

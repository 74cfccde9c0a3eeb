//! `[pod_network]`: the network that guests have without asking for one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use serde::Deserialize;

/// `[pod_network]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct PodNetwork {
    /// There is one.
    pub(crate) enabled: bool,
    /// The network of guests' addresses; the first is the node's own.
    pub(crate) cidr: String,
    /// The network of guests' IPv6 addresses, of 64 bits; "auto" is one that is made of the machine's id, and "none"
    /// leaves guests without.
    pub(crate) cidr6: String,
    /// The bridge that guests are joined to; it is made when it is missing.
    pub(crate) bridge: String,
    /// The MTU of everything that is joined to it.
    pub(crate) mtu: u32,
    /// Networks that guests reach under their own addresses, such as the pools of other nodes.
    pub(crate) non_masquerade_cidrs: Vec<String>,
}

impl Default for PodNetwork {
    fn default() -> Self {
        Self {
            enabled: true,
            cidr: String::from("10.213.0.0/16"),
            cidr6: String::from("auto"),
            bridge: String::from("kvmlet0"),
            mtu: 1500,
            non_masquerade_cidrs: Vec::new(),
        }
    }
}

/// Bits of the network of IPv6 addresses.
const PREFIX6: u8 = 64;

/// Most networks that see guests' own addresses: each is a rule that every new connection may meet.
const MOST_NON_MASQUERADE: usize = 16;

/// Where a guest's IPv6 address is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network6 {
    /// Guests have none.
    None,
    /// A network that belongs to this machine alone, in all likelihood (RFC 4193).
    OfMachine,
    /// This one, of 64 bits.
    Given(Ipv6Addr),
}

/// A setting, its value, and the rule that it breaks.
pub(super) type Fault = (&'static str, String, &'static str);

impl PodNetwork {
    /// Network and bits.
    pub(crate) fn network(&self) -> Option<(Ipv4Addr, u8)> {
        let (IpAddr::V4(network), prefix @ 8..=29) = network_of(&self.cidr)? else {
            return None;
        };
        let is_special = network.is_loopback() || network.is_multicast() || network.is_link_local();
        let is_unicast = (1..240).contains(&network.octets()[0]) && !is_special;
        is_unicast.then_some((network, prefix))
    }

    /// The network of IPv6 addresses.
    pub(crate) fn network6(&self) -> Option<Network6> {
        match self.cidr6.as_str() {
            "none" => return Some(Network6::None),
            "auto" => return Some(Network6::OfMachine),
            _ => {}
        }
        let (IpAddr::V6(network), PREFIX6) = network_of(&self.cidr6)? else {
            return None;
        };
        let is_special =
            network.is_unspecified() || network.is_multicast() || network.is_unicast_link_local();
        (!is_special).then_some(Network6::Given(network))
    }

    /// Networks and bits of [`Self::non_masquerade_cidrs`].
    pub(crate) fn non_masquerade(&self) -> Option<Vec<(IpAddr, u8)>> {
        let all = self.non_masquerade_cidrs.iter();
        all.map(|cidr| network_of(cidr)).collect()
    }

    /// What is wrong with it.
    pub(super) fn fault(&self) -> Option<Fault> {
        if self.network().is_none() {
            let rule = "must be an IPv4 network of 8 to 29 bits, such as 10.213.0.0/16";
            return Some(("pod_network.cidr", self.cidr.clone(), rule));
        }
        if self.network6().is_none() {
            let rule =
                "must be an IPv6 network of 64 bits, such as fd00:1:2:3::/64, or auto, or none";
            return Some(("pod_network.cidr6", self.cidr6.clone(), rule));
        }
        let few = self.non_masquerade_cidrs.len() <= MOST_NON_MASQUERADE;
        if !few || self.non_masquerade().is_none() {
            let rule = "must be at most 16 networks such as 10.214.0.0/16 or fd00:1:2:4::/64";
            let value = self.non_masquerade_cidrs.join(", ");
            return Some(("pod_network.non_masquerade_cidrs", value, rule));
        }
        if !is_bridge_name(&self.bridge) {
            let rule = "must be the name of a bridge, of 1 to 15 bytes";
            return Some(("pod_network.bridge", self.bridge.clone(), rule));
        }
        if !(1280..=65_521).contains(&self.mtu) {
            let rule = "must be 1280 to 65521";
            return Some(("pod_network.mtu", self.mtu.to_string(), rule));
        }
        None
    }
}

/// Network and bits, behind which the address has none. A network of no bits is everywhere, and none of ours.
fn network_of(cidr: &str) -> Option<(IpAddr, u8)> {
    let (network, prefix) = cidr.split_once('/')?;
    let (network, prefix): (IpAddr, u8) = (network.parse().ok()?, prefix.parse().ok()?);
    let (bits, zeros) = match network {
        IpAddr::V4(network) => (32, u32::from(network).trailing_zeros()),
        IpAddr::V6(network) => (128, u128::from(network).trailing_zeros()),
    };
    let is_network = (1..=bits).contains(&u32::from(prefix)) && zeros >= bits - u32::from(prefix);
    is_network.then_some((network, prefix))
}

/// IFNAMSIZ, and what the kernel refuses in names of interfaces.
pub(super) fn is_bridge_name(name: &str) -> bool {
    (1..16).contains(&name.len()) && !name.contains(['/', ' ', '\t', ':'])
}

#[cfg(test)]
mod tests {
    use super::PodNetwork;

    fn fault(cidrs: &[&str]) -> Option<&'static str> {
        let settings = PodNetwork {
            non_masquerade_cidrs: cidrs.iter().map(|cidr| (*cidr).to_owned()).collect(),
            ..PodNetwork::default()
        };
        settings.fault().map(|(setting, ..)| setting)
    }

    #[test]
    fn networks_that_see_guests_own_addresses_are_networks() {
        for good in [
            &[][..],
            &["10.214.0.0/16", "fd00:1:2:4::/64"],
            &["192.0.2.1/32"],
        ] {
            assert_eq!(fault(good), None, "{good:?}");
        }
        let many: Vec<&str> = ["10.214.0.0/16"].into_iter().cycle().take(17).collect();
        for bad in [
            &["10.214.0.1/16"][..],
            &["10.214.0.0"],
            &["0.0.0.0/0"],
            &["10.214.0.0/33"],
            &["fd00::1/64"],
            &many[..],
        ] {
            assert_eq!(
                fault(bad),
                Some("pod_network.non_masquerade_cidrs"),
                "{bad:?}"
            );
        }
    }
}

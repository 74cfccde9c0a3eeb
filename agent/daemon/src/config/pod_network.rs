//! `[pod_network]`: the network that guests have without asking for one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_host::Egress;
use serde::Deserialize;

use super::cidr::{contains, is_routed, network_of, networks_of};
use super::{egress, routes};

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
    /// Networks that guests reach by their gateway, announced to them beside the default route.
    pub(crate) routes: Vec<String>,
    /// What guests may reach, in order.
    pub(crate) egress: Vec<String>,
    /// Whom guests' gateways ask for names, instead of whom the node asks.
    pub(crate) dns: Vec<IpAddr>,
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
            routes: Vec::new(),
            egress: Vec::new(),
            dns: Vec::new(),
        }
    }
}

/// Bits of the network of IPv6 addresses.
const PREFIX6: u8 = 64;

/// Most networks that see guests' own addresses: each is a rule that every new connection may meet.
const MOST_NON_MASQUERADE: usize = 16;

/// Servers for names, as many as the resolver of C heeds.
const MOST_DNS: usize = 3;

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
        is_routed(network.into()).then_some((network, prefix))
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
        is_routed(network.into()).then_some(Network6::Given(network))
    }

    /// Networks and bits of [`Self::non_masquerade_cidrs`].
    pub(crate) fn non_masquerade(&self) -> Option<Vec<(IpAddr, u8)>> {
        networks_of(&self.non_masquerade_cidrs)
    }

    /// Networks and bits of [`Self::routes`].
    pub(crate) fn routes(&self) -> Option<Vec<(IpAddr, u8)>> {
        networks_of(&self.routes)
    }

    /// Networks of guests' addresses, as far as the configuration names them.
    fn pools(&self) -> Vec<(IpAddr, u8)> {
        let v4 = self.network().map(|(network, bits)| (network.into(), bits));
        let v6 = match self.network6() {
            Some(Network6::Given(network)) => Some((network.into(), PREFIX6)),
            _ => None,
        };
        v4.into_iter().chain(v6).collect()
    }

    /// One of [`Self::non_masquerade_cidrs`] that is within a pool.
    fn non_masquerade_within(&self) -> Option<&String> {
        let pools = self.pools();
        self.non_masquerade_cidrs.iter().find(|cidr| {
            let inner = network_of(cidr);
            let is_within = |pool: &(IpAddr, u8)| inner.is_some_and(|inner| contains(*pool, inner));
            pools.iter().any(is_within)
        })
    }

    /// Rules of [`Self::egress`], and those that always stand behind them.
    pub(crate) fn egress(&self) -> Option<Vec<Egress>> {
        egress::rules(&self.egress)
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
        if let Some(inner) = self.non_masquerade_within() {
            let rule = "must be beyond this node's pool: guests of one node see each other's addresses in any case. Name the pools of \
                        other nodes";
            return Some(("pod_network.non_masquerade_cidrs", inner.clone(), rule));
        }
        if let Some((value, rule)) = routes::fault(&self.routes, &self.pools()) {
            return Some(("pod_network.routes", value, rule));
        }
        if self.egress().is_none() {
            let rule = "must be at most 64 rules such as \"allow 192.0.2.0/24 tcp 80-81\" or \"deny ::/0\"";
            return Some(("pod_network.egress", self.egress.join(", "), rule));
        }
        let unusable = |server: &&IpAddr| {
            server.is_loopback() || server.is_unspecified() || server.is_multicast()
        };
        if let Some(server) = self.dns.iter().find(unusable) {
            let rule = "must be servers that guests can ask: none of the node's loopback";
            return Some(("pod_network.dns", server.to_string(), rule));
        }
        if self.dns.len() > MOST_DNS {
            let all: Vec<_> = self.dns.iter().map(ToString::to_string).collect();
            return Some(("pod_network.dns", all.join(", "), "must be at most 3"));
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
            // The pool is in it.
            &["10.0.0.0/8"],
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
            // The node's own pool, and a part of it.
            &["10.214.0.0/16", "10.213.0.0/16"],
            &["10.213.4.0/24"],
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

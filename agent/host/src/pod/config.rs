//! The node's part of the pod network, as its operator wants it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_domain::Transport;

use super::names::PREFIX6;
use super::overlap::overlap;

/// Setting `pod_network`: the node's part of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodNetworkConfig {
    /// The bridge that guests are joined to.
    pub bridge: String,
    /// The pool's network.
    pub network: Ipv4Addr,
    /// Its bits.
    pub prefix: u8,
    /// The network of IPv6 addresses, of 64 bits; none when guests have no IPv6.
    pub network6: Option<Ipv6Addr>,
    /// The MTU of the bridge and of everything that is joined to it.
    pub mtu: u32,
    /// Networks, with their bits, that guests reach under their own addresses of the pool: they know a way back.
    pub non_masquerade: Vec<(IpAddr, u8)>,
    /// Networks, with their bits, that guests reach by their gateway, announced to them beside the default route.
    pub routes: Vec<(IpAddr, u8)>,
    /// What guests may reach through the node and of the node itself: the first that matches decides, and without any they may.
    pub egress: Vec<Egress>,
    /// Whom guests' gateways ask for names; empty: whom the node asks.
    pub dns: Vec<IpAddr>,
}

/// Addresses of one family that guests have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pool {
    /// The setting that has the network.
    pub(crate) setting: &'static str,
    /// The network, and its bits.
    pub(crate) network: (IpAddr, u8),
    /// The node's own address in it.
    pub(crate) gateway: IpAddr,
}

impl Pool {
    /// The network as people write it.
    pub(crate) fn shown(&self) -> String {
        let (address, bits) = self.network;
        format!("{address}/{bits}")
    }
}

/// A rule about what guests reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Egress {
    /// They may; otherwise what they send there is dropped.
    pub allowed: bool,
    /// A network, and its bits.
    pub network: (IpAddr, u8),
    /// Of one transport alone, with the first and the last port where it is about some.
    pub transport: Option<(Transport, Option<(u16, u16)>)>,
}

impl PodNetworkConfig {
    /// A pool of IPv4 alone, with nothing else said.
    #[cfg(test)]
    pub(crate) fn of_tests() -> Self {
        Self {
            bridge: "kvmlet0".to_owned(),
            network: Ipv4Addr::new(10, 213, 0, 0),
            prefix: 16,
            network6: None,
            mtu: 1500,
            non_masquerade: Vec::new(),
            routes: Vec::new(),
            egress: Vec::new(),
            dns: Vec::new(),
        }
    }

    /// The pool of IPv4, and that of IPv6 if guests have it.
    pub(crate) fn pools(&self) -> Vec<Pool> {
        let v4 = Pool {
            setting: "pod_network.cidr",
            network: (IpAddr::V4(self.network), self.prefix),
            gateway: IpAddr::V4(self.gateway()),
        };
        let v6 = self.network6.zip(self.gateway6());
        let v6 = v6.map(|(network, gateway)| Pool {
            setting: "pod_network.cidr6",
            network: (IpAddr::V6(network), PREFIX6),
            gateway: IpAddr::V6(gateway),
        });
        std::iter::once(v4).chain(v6).collect()
    }

    /// The routes that a guest with this address of its own network, and these bits of it, has announced to it. One within that network would
    /// hide the gateway from it.
    pub(crate) fn routes_of(&self, own: (IpAddr, u8)) -> impl Iterator<Item = (IpAddr, u8)> {
        let is_within = move |route: (IpAddr, u8)| overlap(route, own) && route.1 >= own.1;
        let routes = self.routes.iter().copied();
        routes.filter(move |route| !is_within(*route))
    }

    /// The node's address on the bridge: the first of the pool.
    #[must_use]
    pub fn gateway(&self) -> Ipv4Addr {
        Ipv4Addr::from(u32::from(self.network) | 1)
    }

    /// The node's IPv6 address on the bridge: the first of the network.
    #[must_use]
    pub fn gateway6(&self) -> Option<Ipv6Addr> {
        self.network6
            .map(|network| Ipv6Addr::from(u128::from(network) | 1))
    }
}

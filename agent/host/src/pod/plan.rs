//! What one guest has of the pod network.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_domain::{GuestNetwork, OpenPorts, PodBinding};

use super::config::PodNetworkConfig;
use super::overlap::Network;
use super::walls::Member;

/// What one guest gets.
#[derive(Clone, Debug)]
pub(crate) struct PodPlan {
    pub(crate) node: PodNetworkConfig,
    /// Whose it is: shown as the veth's alias, by which leftovers are known.
    pub(crate) mark: String,
    /// Its veth, and its addresses on the node's bridge.
    pub(crate) member: Member,
    /// Its IPv6 part, if there is one.
    pub(crate) v6: Option<PodPlan6>,
    pub(crate) binding: PodBinding,
    /// The guest's own network, under masquerade.
    pub(crate) inside: GuestNetwork<Ipv4Addr>,
    /// Open ports; empty: all.
    pub(crate) ports: Vec<OpenPorts>,
    /// Whom the node asks for names: the guest asks its gateway, and that asks these.
    pub(crate) upstreams: Vec<IpAddr>,
    pub(crate) queues: u32,
}

impl PodPlan {
    /// The ways out of the namespace, under masquerade.
    pub(super) fn ways_out(&self) -> Vec<WayOut> {
        let v4 = WayOut {
            inside: (self.inside.gateway.into(), self.inside.prefix),
            gateway: self.node.gateway().into(),
        };
        let v6 = self.v6.map(|v6| WayOut {
            inside: (v6.inside.gateway.into(), v6.inside.prefix),
            gateway: v6.gateway.into(),
        });
        std::iter::once(v4).chain(v6).collect()
    }
}

/// The network that a guest has to itself, and the way out of its VMM's namespace in the same family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WayOut {
    pub(crate) inside: Network,
    pub(crate) gateway: IpAddr,
}

/// What a guest gets of IPv6.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PodPlan6 {
    /// The guest's address of the pool.
    pub(crate) address: Ipv6Addr,
    /// The node's.
    pub(crate) gateway: Ipv6Addr,
    /// The guest's own network, under masquerade.
    pub(crate) inside: GuestNetwork<Ipv6Addr>,
}

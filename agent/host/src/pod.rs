//! The pod network: a VMM's own network namespace is its guest's network, as a launcher pod's is.
//!
//! ```text
//! guest ── tap0 10.0.2.1/24 ┐ the VMM's namespace: one table of nftables
//!                     eth0 ─┴─ veth ── kvmlet0 10.213.0.1/16, the node's bridge ── the node's routes
//! ```
//!
//! A guest with `bridge` has the pool's address itself: tap0 and eth0 are ports of a bridge k6t-eth0 in the namespace.
//!
//! The namespace dies with the VMM, and takes along everything that is in it and the veth. What the node has for all
//! guests is a bridge and a table; both are made when the first guest needs them.

mod attach;
pub(crate) mod chains;
mod file;
mod forwarding;
mod namespace;
mod node;
mod own_address;
mod responder;
mod rules;
mod sockets;
mod walls;

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use agent_domain::{GuestNetwork, OpenPorts, PodBinding};

pub(crate) use attach::{attach, change_upstreams};
pub(crate) use file::PodFile;
pub(crate) use namespace::Namespace;
pub(crate) use node::{change_member, prepare_node, tidy_node};
pub(crate) use own_address::speaks_ipv6_alone;
pub(crate) use responder::{Responder, Served};
pub(crate) use sockets::{Opened as OpenedSockets, open as open_sockets};
pub(crate) use walls::Member;

/// The tap's name within the namespace.
pub(crate) const TAP: &str = "tap0";

/// The veth's name within the namespace, as in a pod.
const ETH: &str = "eth0";

/// The bridge within the namespace of a guest that is bridged, as in a launcher pod.
const BRIDGE: &str = "k6t-eth0";

/// That bridge's own address, by which its DHCP server answers; nobody beyond it sees it.
pub(crate) const BRIDGE_ADDRESS: Ipv4Addr = Ipv4Addr::new(169, 254, 75, 10);

/// Bits of the network of IPv6 addresses.
pub(crate) const PREFIX6: u8 = 64;

/// What the mark of a guest's link begins with; its VMI's uid follows.
const MARK: &str = "kvmlet:";

/// The mark of a VMI's link.
pub(crate) fn mark_of(uid: &str) -> String {
    format!("{MARK}{uid}")
}

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
}

impl PodNetworkConfig {
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

/// What one guest gets.
#[derive(Clone, Debug)]
pub(crate) struct PodPlan {
    pub(crate) node: PodNetworkConfig,
    /// Whose it is: shown as the veth's alias, by which leftovers are known.
    pub(crate) owner: String,
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

/// Why a guest is not joined to the pod network.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PodError {
    /// The VMM shares the agent's namespace.
    #[error(
        "the VMM has no network namespace of its own: this host allows none (sysctl user.max_net_namespaces, or the \
         limits of the container that the agent runs in)"
    )]
    NoNamespace,
    /// The namespace cannot be entered.
    #[error("the VMM's network namespace cannot be entered")]
    Namespace(#[source] io::Error),
    /// A link, an address or a route was refused.
    #[error("{what}")]
    Link {
        /// The operation that failed, as a sentence without its end.
        what: String,
        /// The underlying error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Packets are not forwarded.
    #[error("forwarding in the VMM's network namespace cannot be switched on")]
    Forwarding(#[source] io::Error),
    /// The rules were refused.
    #[error("the rules of nftables were not taken (is the module nf_tables there?)")]
    Rules(#[source] io::Error),
    /// The tap was refused.
    #[error("the tap cannot be made")]
    Tap(#[source] io::Error),
}

/// An error of the routing socket, with what was tried.
fn link_error<E>(what: impl Into<String>) -> impl FnOnce(E) -> PodError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let what = what.into();
    move |source| PodError::Link {
        what,
        source: source.into(),
    }
}

/// The hardware address that goes with an address of the pool, as container networks derive them: neighbours that
/// remember it are right about the next guest that has the address, too.
pub(crate) fn mac_of(address: Ipv4Addr) -> [u8; 6] {
    let [a, b, c, d] = address.octets();
    [0x0a, 0x58, a, b, c, d]
}

#[cfg(test)]
mod tests;

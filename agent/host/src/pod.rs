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
mod clash;
mod config;
mod egress;
mod error;
mod file;
mod forwarding;
mod names;
mod namespace;
mod node;
mod overlap;
mod own_address;
mod plan;
mod responder;
mod rules;
pub(crate) mod sockets;
mod upstreams;
mod walls;

pub(crate) use attach::attach;
pub(crate) use config::Pool;
pub use config::{Egress, PodNetworkConfig};
pub(crate) use file::PodFile;
pub(crate) use names::{BRIDGE_ADDRESS, TAP, mark_of};
pub(crate) use namespace::Namespace;
pub(crate) use node::{
    change_member, follow_upstreams, prepare_node, remove_former_gateways, restore_tables,
    tidy_node,
};
pub(crate) use overlap::{Network as NetworkBits, overlap};
pub(crate) use own_address::speaks_ipv6_alone;
pub(crate) use plan::{PodPlan, PodPlan6, WayOut};
pub(crate) use responder::{DhcpGuest, Responder};
pub(crate) use upstreams::change_upstreams;
pub(crate) use walls::Member;

#[cfg(test)]
mod tests;

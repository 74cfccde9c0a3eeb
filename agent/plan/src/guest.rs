//! What a guest reports of itself, through the agent in it.

use std::collections::BTreeMap;
use std::net::IpAddr;

use serde::{Deserialize, Serialize};

/// Addresses that the node's kernel has seen a guest with, by the name of its interface on a network of the configuration. Whoever
/// has the guest's hardware address may send from any: they are shown to people, and nothing is decided by them.
pub type SeenAddresses = BTreeMap<String, Vec<IpAddr>>;

/// Of which families the node's rules judge by which addresses a guest sends on a network of the configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JudgedAddresses {
    /// IPv4 and ARP.
    pub ipv4: bool,
    /// IPv6 and advertisements of neighbours.
    pub ipv6: bool,
}

/// What the node knows of a guest on networks of the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NetworkObservation {
    /// With which addresses it was seen.
    pub addresses: SeenAddresses,
    /// How its rules judge it, by the name of its interface.
    pub judged: BTreeMap<String, JudgedAddresses>,
}

/// The last report of the agent in a guest. It is the guest's own statement: shown to people, and nothing is decided by it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestAgentReport {
    /// The agent answers. Otherwise what follows was true at some time.
    pub answers: bool,
    /// Its operating system, if the agent reports it.
    pub os: Option<GuestOs>,
    /// Network interfaces that the guest's agent reports.
    pub interfaces: Vec<GuestInterface>,
}

/// An operating system, in the words of `os-release` and `uname`; empty where the guest says nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestOs {
    /// Such as `debian`.
    pub id: String,
    /// Such as `Debian GNU/Linux`.
    pub name: String,
    /// Such as `Debian GNU/Linux 12 (bookworm)`.
    pub pretty_name: String,
    /// Such as `12 (bookworm)`.
    pub version: String,
    /// Such as `12`.
    pub version_id: String,
    /// Such as `6.1.0-18-amd64`.
    pub kernel_release: String,
    /// The build of the kernel.
    pub kernel_version: String,
    /// Such as `x86_64`.
    pub machine: String,
}

/// An interface as the guest sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestInterface {
    /// Its name in the guest, such as `enp1s0`.
    pub name: String,
    /// Its hardware address as KubeVirt writes it; empty if it has none.
    pub mac: String,
    /// IP addresses of both families; empty if it has none.
    pub addresses: Vec<IpAddr>,
}

/// Whether the agent in a guest has set keys and passwords.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CredentialsSync {
    /// The guest has them all.
    Done,
    /// It has not, or not all.
    Failed {
        /// Error of the guest agent, for people.
        why: String,
    },
}

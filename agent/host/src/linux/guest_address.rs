//! Where a guest is found on the network, and connections to it: for probes and for forwards of ports.
//!
//! Whoever asks for a guest must never get anybody else. The node connects through the bridge of one interface alone, that of the
//! pod network or else the first, and every address has to pass [`Bridge::leads_to`] first, whoever named it: the user of a VMI may reach
//! the guest, and not the guest's neighbours by means of the node.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use agent_domain::{Attachment, Endpoint, Interface, Vmi};
use agent_plan::Record;
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use super::LinuxHost;
use super::talk::channel;
use crate::dialer::Dialer;
use crate::guest_agent::GuestAgent;
use crate::layout::PathUid;
use crate::neighbours::{Bridge, NeighbourError};
use crate::os_error::words;
use crate::probe_error::ProbeError;

/// Time limits of the greeting of the guest's agent, and of the answer with its addresses.
const ADDRESS: Duration = Duration::from_secs(5);

/// Of the greeting, where an older address will do without it.
const GREETING: Duration = Duration::from_secs(1);

/// Why there is no address to connect to.
#[derive(Debug)]
pub(super) enum NoAddress {
    /// The guest's address is not known: why, and on which interface it should have one.
    Unknown { why: String, interface: String },
    /// Nobody answers for the address that the endpoint names.
    Silent(String),
    /// Anything else.
    Other(String),
}

/// Address of a guest on a bridge.
pub(super) struct GuestAddress {
    bridge: String,
    pub(super) address: SocketAddr,
}

impl LinuxHost {
    /// Where the guest is found on the bridge of its primary interface: at the address that the endpoint names, if that
    /// is the guest's, or at the one that is found out.
    pub(super) async fn guest_address(
        &self,
        uid: &PathUid,
        vmi: &Vmi,
        record: &Record,
        endpoint: Endpoint,
    ) -> Result<GuestAddress, NoAddress> {
        let other = |why: &str| NoAddress::Other(why.to_owned());
        let interface = vmi
            .primary_interface()
            .and_then(|index| vmi.interfaces.get(index));
        let interface = interface.ok_or_else(|| other("the guest has no interface"))?;
        let settings = self.settings();
        let network = match &interface.attachment {
            Attachment::Network(network) => network.as_str(),
            Attachment::Pod(_) => return self.address_of_pod(uid, record, endpoint).await,
        };
        let bridge = settings.config.bridges.get(network);
        let bridge = bridge
            .ok_or_else(|| other(&format!("this node has no network {network:?} any more")))?;
        let address = match endpoint.host {
            Some(address) => named_address(address, interface, bridge).await?,
            None => self.address_of(uid, record, interface, bridge).await?,
        };
        Ok(GuestAddress {
            bridge: bridge.clone(),
            address: SocketAddr::new(address, endpoint.port),
        })
    }

    /// Where a guest of the pod network is found: at an address that it was given, whatever it says of itself. Without an endpoint
    /// that names one that is the IPv4 one, unless the guest has IPv6 alone.
    async fn address_of_pod(
        &self,
        uid: &PathUid,
        record: &Record,
        endpoint: Endpoint,
    ) -> Result<GuestAddress, NoAddress> {
        let other = |why: &str| NoAddress::Other(why.to_owned());
        let given = record
            .allocations
            .pod
            .ok_or_else(|| other("the guest has no address of the pod network"))?;
        let settings = self.settings();
        let config = settings.config.pod_network.as_ref();
        let config = config.ok_or_else(|| other("this node has no pod network any more"))?;
        let address = match (endpoint.host, given.v6) {
            (Some(host), v6) if host == given.v4 || v6.is_some_and(|v6| host == v6) => host,
            (Some(_), v6) => {
                let v6 = v6.map_or_else(String::new, |v6| format!(" or {v6}"));
                return Err(NoAddress::Other(format!(
                    "host must be the guest's address of the pod network, {}{v6}",
                    given.v4
                )));
            }
            (None, None) => given.v4.into(),
            (None, Some(_)) => {
                let alone = self.ipv6_address_alone(uid, record).await;
                let alone = alone.map_err(|why| {
                    NoAddress::Other(format!("the guest's network cannot be inspected: {why}"))
                })?;
                alone.map_or(IpAddr::V4(given.v4), IpAddr::V6)
            }
        };
        Ok(GuestAddress {
            bridge: config.bridge.clone(),
            address: SocketAddr::new(address, endpoint.port),
        })
    }

    /// The guest's address: the one that it has just been seen with, or what its agent says, or what it was seen with
    /// at some time. What it says of itself counts only where the bridge confirms it.
    async fn address_of(
        &self,
        uid: &PathUid,
        record: &Record,
        interface: &Interface,
        bridge: &str,
    ) -> Result<IpAddr, NoAddress> {
        let unknown = |why: String| NoAddress::Unknown {
            why,
            interface: interface.name.to_string(),
        };
        let netlink = |error: io::Error| unreadable(bridge, &error);
        let mut bridge = Bridge::open(bridge).await.map_err(netlink)?;
        let mut seen = bridge.addresses_of(interface.mac).await.map_err(netlink)?;
        seen.retain(|seen| Endpoint::may_be(&seen.address));
        // The older family first, as the kubelet's pods have it.
        seen.sort_by_key(|seen| (!seen.just_now, seen.address));
        let (fresh, old): (Vec<_>, Vec<_>) = seen.into_iter().partition(|seen| seen.just_now);
        let mut doubts = None;
        for seen in &fresh {
            match bridge.leads_to(seen.address, interface.mac).await {
                Ok(()) => return Ok(seen.address),
                Err(doubt) => doubts = Some(doubt),
            }
        }
        let patience = if old.is_empty() { ADDRESS } else { GREETING };
        let answer = self.agent_addresses(uid, record, interface, patience).await;
        let (named, silence) = match answer {
            Ok(named) => (named, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let old = old.into_iter().map(|seen| seen.address);
        for address in named.into_iter().chain(old) {
            match bridge.leads_to(address, interface.mac).await {
                Ok(()) => return Ok(address),
                Err(doubt) => doubts = Some(doubt),
            }
        }
        let none = || "its agent tells none".to_owned();
        let doubts = doubts.map(|doubt| doubt.to_string());
        Err(unknown(doubts.or(silence).unwrap_or_else(none)))
    }

    /// What the guest's agent says that its addresses are.
    async fn agent_addresses(
        &self,
        uid: &PathUid,
        record: &Record,
        interface: &Interface,
        patience: Duration,
    ) -> Result<Vec<IpAddr>, String> {
        let dir = self.layout.run_of_vmm(uid, record.launches.incarnation());
        let turn = self.agent_turn(uid);
        let _turn = turn.lock().await;
        let asked = async {
            let mut agent = GuestAgent::greet_within(channel(&dir).await?, patience).await?;
            agent.addresses(interface.mac).await
        };
        let answer = timeout(ADDRESS, asked).await;
        let answer = answer.map_err(|_| "its agent does not answer".to_owned())?;
        let answer = answer.map_err(|error| format!("agent in the guest: {error}"))?;
        let mut usable: Vec<IpAddr> = answer.into_iter().filter(Endpoint::may_be).collect();
        usable.sort_by_key(IpAddr::is_ipv6);
        usable.truncate(MAX_TRIED);
        Ok(usable)
    }

    /// Whose turn it is to talk to the agent in a guest.
    pub(super) fn agent_turn(&self, uid: &PathUid) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(&self.memory().vmi(uid).agent_turn)
    }
}

/// The address that an endpoint names, if it is the guest's on its bridge.
async fn named_address(
    address: IpAddr,
    interface: &Interface,
    bridge: &str,
) -> Result<IpAddr, NoAddress> {
    let opened = Bridge::open(bridge).await;
    let mut found = opened.map_err(|error| unreadable(bridge, &error))?;
    match found.leads_to(address, interface.mac).await {
        Ok(()) => Ok(address),
        Err(NeighbourError::Silence(why)) => Err(NoAddress::Silent(why)),
        Err(NeighbourError::Elsewhere(why)) => Err(NoAddress::Other(format!(
            "host must be an address of the guest itself: {why}"
        ))),
    }
}

fn unreadable(bridge: &str, error: &io::Error) -> NoAddress {
    NoAddress::Other(format!("bridge {bridge}: {}", words(error)))
}

/// Addresses of a guest that are tried.
const MAX_TRIED: usize = 4;

impl GuestAddress {
    /// Connects.
    pub(super) async fn connect(&self, dialer: &Dialer) -> Result<TcpStream, ProbeError> {
        let connected = dialer.connect(self.address, Some(&self.bridge)).await;
        connected.map_err(|error| self.refusal(&error))
    }

    /// A socket that sends there alone and hears whoever is there alone.
    pub(super) async fn datagrams(&self, dialer: &Dialer) -> Result<UdpSocket, ProbeError> {
        let opened = dialer.datagrams(self.address, Some(&self.bridge)).await;
        opened.map_err(|error| self.refusal(&error))
    }

    fn refusal(&self, error: &io::Error) -> ProbeError {
        let address = self.address;
        let why = words(error);
        match error.kind() {
            // The node's own firewall.
            io::ErrorKind::PermissionDenied => ProbeError::Node(format!(
                "the node may not connect to {address}: {why} (a firewall of the node?)"
            )),
            // Nobody makes sockets, or the bridge is gone.
            _ if error.kind() == io::ErrorKind::Other
                || error.raw_os_error() == Some(nix::libc::ENODEV) =>
            {
                ProbeError::Node(format!("no socket on {}: {why}", self.bridge))
            }
            // The node has no way there, such as no address on the bridge.
            io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::NetworkDown
            | io::ErrorKind::AddrNotAvailable => ProbeError::Node(format!(
                "the node has no way to {address} over {}: {why}",
                self.bridge
            )),
            // In the kubelet's words.
            _ => ProbeError::Guest(format!("dial tcp {address}: {why}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::libc;

    use super::*;

    #[test]
    fn refusals_name_the_address_and_no_number_of_an_error() {
        let guest = GuestAddress {
            bridge: "br0".to_owned(),
            address: ([10, 0, 2, 17], 22).into(),
        };
        let refused = |number| match guest.refusal(&io::Error::from_raw_os_error(number)) {
            ProbeError::Guest(why) => (true, why),
            ProbeError::Node(why) => (false, why),
        };
        for (number, is_guests, wanted) in [
            (
                libc::EHOSTUNREACH,
                true,
                "dial tcp 10.0.2.17:22: No route to host",
            ),
            (
                libc::ECONNREFUSED,
                true,
                "dial tcp 10.0.2.17:22: Connection refused",
            ),
            (
                libc::EPERM,
                false,
                "the node may not connect to 10.0.2.17:22: Operation not permitted (a firewall of the node?)",
            ),
            (libc::ENODEV, false, "no socket on br0: No such device"),
            (
                libc::ENETUNREACH,
                false,
                "the node has no way to 10.0.2.17:22 over br0: Network is unreachable",
            ),
        ] {
            assert_eq!(refused(number), (is_guests, wanted.to_owned()));
        }
    }
}

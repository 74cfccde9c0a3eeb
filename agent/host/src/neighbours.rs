//! Which hardware address has an IP address on a bridge, by the neighbour tables and routes of the node's kernel.
//!
//! A guest may send from any address: that of the node, of another guest, of a machine behind a router. What is sent to an
//! address of a bridge reaches the guest and nobody else if the kernel sends it there directly, to the guest's own
//! hardware address. Both can be asked of the kernel beforehand, and the guest has no say in either: should it answer
//! for somebody else's address with its own hardware address, it is the guest all the same who is reached.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use agent_domain::MacAddress;
use futures_util::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourFlags, NeighbourMessage, NeighbourState,
};
use rtnetlink::packet_route::route::{RouteAttribute, RouteMessage, RouteType};
use rtnetlink::{Handle, RouteMessageBuilder};
use tokio::task::AbortHandle;

/// Interval and number of polls for the answer of a neighbour: in this time the kernel asks twice.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
const POLLS: u32 = 30;

/// Addresses of one guest that are looked at: it may have been seen with as many as it likes.
const MAX_SEEN: usize = 8;

/// Neighbours that are read at all. The kernel keeps 1024 of a family by default.
const MAX_NEIGHBOURS: usize = 1 << 16;

/// A bridge of the node, or the tap in a VMM's network namespace. Dropping it ends the conversation with the kernel.
pub(crate) struct Bridge {
    name: String,
    index: u32,
    handle: Handle,
    driver: AbortHandle,
}

/// An address that a hardware address was seen with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) address: IpAddr,
    /// Within the last minute or so.
    pub(crate) just_now: bool,
}

/// Why an address is not known to be the guest's, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NeighbourError {
    /// Nobody has it.
    Silence(String),
    /// Somebody else has it, or nobody can tell.
    Elsewhere(String),
}

impl fmt::Display for NeighbourError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Silence(why) | Self::Elsewhere(why)) = self;
        f.write_str(why)
    }
}

impl Bridge {
    /// Begins to talk to the kernel about a bridge.
    ///
    /// # Errors
    /// Without such an interface, or without a netlink socket.
    pub(crate) async fn open(name: &str) -> io::Result<Self> {
        let index = nix::net::if_::if_nametoindex(name)?;
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let driver = tokio::spawn(connection).abort_handle();
        Ok(Self {
            name: name.to_owned(),
            index,
            handle,
            driver,
        })
    }

    /// The addresses that the node has seen a hardware address with.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) async fn addresses_of(&mut self, mac: MacAddress) -> io::Result<Vec<Seen>> {
        let mut seen = Vec::new();
        for entry in self.neighbours(AddressFamily::Unspec).await? {
            if hardware_address(&entry) != Some(&mac.octets()[..]) {
                continue;
            }
            seen.extend(address(&entry).map(|address| Seen {
                address,
                just_now: matches!(
                    entry.header.state,
                    NeighbourState::Reachable | NeighbourState::Permanent
                ),
            }));
            if seen.len() == MAX_SEEN {
                break;
            }
        }
        Ok(seen)
    }

    /// Whether what the node sends to an address over this bridge goes to this hardware address and nowhere else: not to
    /// the node itself, not through a router, not to another neighbour.
    ///
    /// # Errors
    /// Why not, for people.
    pub(crate) async fn leads_to(
        &mut self,
        address: IpAddr,
        mac: MacAddress,
    ) -> Result<(), NeighbourError> {
        let unknown = |error: io::Error| {
            NeighbourError::Elsewhere(format!("{address} cannot be looked up: {error}"))
        };
        let route = self.route(address).await.map_err(unknown)?;
        if !is_direct(&route, self.index) {
            return Err(NeighbourError::Elsewhere(format!(
                "{address} is not directly on {}, but the node's own or behind a router",
                self.name
            )));
        }
        match self.resolve(address).await.map_err(unknown)? {
            Some(found) if found == mac.octets() => Ok(()),
            Some(_) => Err(NeighbourError::Elsewhere(format!(
                "{address} is somebody else's on {}, not that of {mac}",
                self.name
            ))),
            None => Err(NeighbourError::Silence(format!(
                "nobody answers for {address} on {}",
                self.name
            ))),
        }
    }

    /// Whether anybody on this link has an address.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub(crate) async fn answers_for(&self, address: IpAddr) -> io::Result<bool> {
        Ok(self.resolve(address).await?.is_some())
    }

    /// The hardware address that an address has; the kernel asks who has it where it does not know.
    async fn resolve(&self, address: IpAddr) -> io::Result<Option<Vec<u8>>> {
        for poll in 0..POLLS {
            if let Some(found) = self.neighbour(address).await? {
                return Ok(Some(found));
            }
            if poll == 0 {
                self.ask_for(address).await?;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Ok(None)
    }

    async fn route(&self, address: IpAddr) -> io::Result<RouteMessage> {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let question = RouteMessageBuilder::<IpAddr>::new()
            .destination_prefix(address, bits)
            .map_err(io::Error::other)?
            .output_interface(self.index)
            .build();
        let mut answers = std::pin::pin!(self.handle.route().get(question).execute());
        let answer = answers.try_next().await.map_err(io::Error::other)?;
        answer.ok_or_else(|| io::Error::other("the kernel knows no route"))
    }

    /// The hardware address that an address has on this bridge now.
    async fn neighbour(&self, address: IpAddr) -> io::Result<Option<Vec<u8>>> {
        let family = match address {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        let entries = self.neighbours(family).await?;
        let found = entries
            .iter()
            .find(|entry| self::address(entry) == Some(address));
        Ok(found.and_then(hardware_address).map(<[u8]>::to_vec))
    }

    /// The neighbours on this bridge whose hardware addresses the kernel would send to.
    async fn neighbours(&self, family: AddressFamily) -> io::Result<Vec<NeighbourMessage>> {
        let mut get = self.handle.neighbours().get().set_address_family(family);
        // The kernel leaves out other links then: with hundreds of guests on a node each has some.
        let this = NeighbourAttribute::IfIndex(self.index);
        get.message_mut().attributes.push(this);
        let mut entries = std::pin::pin!(get.execute());
        let mut ours = Vec::new();
        for _ in 0..MAX_NEIGHBOURS {
            let Some(entry) = entries.try_next().await.map_err(io::Error::other)? else {
                break;
            };
            let is_ip = matches!(
                entry.header.family,
                AddressFamily::Inet | AddressFamily::Inet6
            );
            let is_known = !matches!(
                entry.header.state,
                NeighbourState::None | NeighbourState::Incomplete | NeighbourState::Failed
            );
            if is_ip && is_known && entry.header.ifindex == self.index {
                ours.push(entry);
            }
        }
        Ok(ours)
    }

    /// Has the kernel ask on this bridge who has an address (ARP, or neighbour discovery).
    async fn ask_for(&self, address: IpAddr) -> io::Result<()> {
        let ask = self.handle.neighbours().add(self.index, address);
        ask.state(NeighbourState::None)
            .flags(NeighbourFlags::Use)
            .replace()
            .execute()
            .await
            .map_err(io::Error::other)
    }
}

impl Drop for Bridge {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Whether a route goes to a neighbour on this interface, without a router on the way.
fn is_direct(route: &RouteMessage, index: u32) -> bool {
    let is_here = route.attributes.contains(&RouteAttribute::Oif(index));
    let is_routed = route.attributes.iter().any(|attribute| {
        matches!(
            attribute,
            RouteAttribute::Gateway(_)
                | RouteAttribute::Via(_)
                | RouteAttribute::MultiPath(_)
                | RouteAttribute::Encap(_)
        )
    });
    route.header.kind == RouteType::Unicast && is_here && !is_routed
}

fn address(entry: &NeighbourMessage) -> Option<IpAddr> {
    entry
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet(address)) => {
                Some((*address).into())
            }
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(address)) => {
                Some((*address).into())
            }
            _ => None,
        })
}

fn hardware_address(entry: &NeighbourMessage) -> Option<&[u8]> {
    entry
        .attributes
        .iter()
        .find_map(|attribute| match attribute {
            NeighbourAttribute::LinkLayerAddress(bytes) => Some(bytes.as_slice()),
            _ => None,
        })
}

#[cfg(test)]
mod tests;

//! The sockets by which a guest's address server hears and answers it: bound to the guest's own link, in the VMM's
//! namespace.
//!
//! They carry datagrams rather than frames: a server that was taken over by a guest's bytes can send that guest
//! nothing but UDP from ports 67 and 547 and messages of ICMPv6, and nobody else anything.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddrV4, SocketAddrV6};
use std::os::fd::OwnedFd;

use agent_domain::PodBinding;
use nix::net::if_::if_nametoindex;
use socket2::{Domain, Protocol, Socket, Type};

use super::names::{BRIDGE, TAP};

/// Ports of servers, of DHCPv4 and DHCPv6.
const SERVER_PORT: u16 = 67;
const SERVER_PORT6: u16 = 547;

/// Whom clients ask: all servers of DHCPv6, and all routers.
const SERVERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 1, 2);
const ROUTERS: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 2);

/// What a message to neighbours has to have left of its hops (RFC 4861).
const HOPS: u32 = 255;

/// Requests that wait: a guest that sends more loses them.
const BUFFER_BYTES: usize = 16 << 10;

/// What was opened for a guest.
pub(crate) struct Opened {
    /// For DHCPv4, and where the guest has IPv6 for DHCPv6 and for routers.
    pub(crate) sockets: Vec<OwnedFd>,
    /// Why those of IPv6 are missing, where they should be there.
    pub(crate) missing_ipv6: Option<io::Error>,
}

/// Opens them in the namespace of this thread. A guest whose IPv6 cannot be served is served by IPv4 all the same:
/// raw sockets take `CAP_NET_RAW`, or a namespace that belongs to users of the VMM's own.
pub(crate) fn open(binding: PodBinding, with_ipv6: bool) -> io::Result<Opened> {
    let link = match binding {
        PodBinding::Masquerade => TAP,
        PodBinding::Bridge => BRIDGE,
    };
    let mut sockets = vec![v4(link)?];
    let mut missing_ipv6 = None;
    if with_ipv6 {
        match v6(link).and_then(|dhcp| Ok([dhcp, router(link)?])) {
            Ok(opened) => sockets.extend(opened),
            Err(error) => missing_ipv6 = Some(error),
        }
    }
    Ok(Opened {
        sockets,
        missing_ipv6,
    })
}

fn v4(link: &str) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_broadcast(true)?;
    // One that belongs to an address server that is about to end may be open still.
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.bind_device(Some(link.as_bytes()))?;
    let address = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, SERVER_PORT);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

fn v6(link: &str) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::IPV6, Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_nonblocking(true)?;
    socket.set_only_v6(true)?;
    socket.set_reuse_address(true)?;
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.bind_device(Some(link.as_bytes()))?;
    socket.join_multicast_v6(&SERVERS, if_nametoindex(link)?)?;
    let address = SocketAddrV6::new(Ipv6Addr::UNSPECIFIED, SERVER_PORT6, 0, 0);
    socket.bind(&address.into())?;
    Ok(socket.into())
}

/// Router solicitations and advertisements: the kernel fills their checksums in.
fn router(link: &str) -> io::Result<OwnedFd> {
    let socket = Socket::new(Domain::IPV6, Type::RAW, Some(Protocol::ICMPV6))?;
    let index = if_nametoindex(link)?;
    socket.set_nonblocking(true)?;
    socket.set_recv_buffer_size(BUFFER_BYTES)?;
    socket.bind_device(Some(link.as_bytes()))?;
    socket.join_multicast_v6(&ROUTERS, index)?;
    socket.set_multicast_if_v6(index)?;
    socket.set_multicast_loop_v6(false)?;
    socket.set_multicast_hops_v6(HOPS)?;
    socket.set_unicast_hops_v6(HOPS)?;
    Ok(socket.into())
}

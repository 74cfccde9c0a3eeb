//! The sockets by which a guest's address server hears and answers it: bound to the guest's own link, in the VMM's
//! namespace.
//!
//! They carry datagrams rather than frames: a server that was taken over by a guest's bytes can send that guest
//! nothing but UDP from port 67, and nobody else anything.

use std::io;
use std::net::{Ipv4Addr, SocketAddrV4};
use std::os::fd::OwnedFd;

use agent_domain::PodBinding;
use socket2::{Domain, Protocol, Socket, Type};

use super::TAP;
use super::attach::BRIDGE;

/// DHCPv4's port of servers.
const SERVER_PORT: u16 = 67;

/// Requests that wait: a guest that sends more loses them.
const BUFFER_BYTES: usize = 16 << 10;

/// Opens them in the namespace of this thread.
pub(crate) fn open(binding: PodBinding) -> io::Result<Vec<OwnedFd>> {
    let link = match binding {
        PodBinding::Masquerade => TAP,
        PodBinding::Bridge => BRIDGE,
    };
    Ok(vec![v4(link)?])
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

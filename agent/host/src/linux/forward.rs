//! Reaching a port of a guest on behalf of a client.

use std::time::Duration;

use agent_domain::{Endpoint, Vmi};
use agent_plan::Record;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::LinuxHost;
use super::guest_address::{GuestAddress, NoAddress};
use crate::dialer::Dialer;
use crate::facility::{GuestLink, GuestPort, ReachError, Reached};
use crate::layout::PathUid;
use crate::probe_error::ProbeError;

/// How long it may take to find out where the guest is.
const FIND: Duration = Duration::from_secs(15);

/// How long a guest may take to take a connection.
const CONNECT: Duration = Duration::from_secs(10);

/// A connection of a guest that has not answered for so long is over: it may be gone without a word. In seconds, until
/// the first question, between two, and how many there are.
const KEEP_ALIVE: (u32, u32, u32) = (30, 10, 3);

impl LinuxHost {
    pub(super) async fn forward(
        &self,
        vmi: &Vmi,
        record: &Record,
        port: GuestPort,
    ) -> Result<Reached, ReachError> {
        let uid = PathUid::new(&record.id.uid);
        let uid = uid.map_err(|error| ReachError::Node(error.to_string()))?;
        let endpoint = Endpoint {
            host: None,
            port: port.number,
        };
        let guest = timeout(FIND, self.guest_address(&uid, vmi, record, endpoint)).await;
        let guest = guest.map_err(|_| {
            let why = format!("it could not be found out within {FIND:?}");
            no_address(&why, "of the first network")
        })?;
        let guest = guest.map_err(|why| match why {
            NoAddress::Unknown { why, interface } => no_address(&why, &interface),
            NoAddress::Silent(why) | NoAddress::Other(why) => ReachError::Node(why),
        })?;
        let link = timeout(CONNECT, connect(&self.dialer, &guest, port)).await;
        let link = link.map_err(|_| {
            ReachError::Guest(format!("no answer of {} within {CONNECT:?}", guest.address))
        })?;
        let link = link.map_err(|unasked| match unasked {
            ProbeError::Guest(why) => ReachError::Guest(why),
            ProbeError::Node(why) => ReachError::Node(why),
        })?;
        Ok(Reached {
            link,
            address: guest.address,
        })
    }
}

fn no_address(why: &str, interface: &str) -> ReachError {
    ReachError::NoAddress(format!(
        "the guest's address is not known ({why}): have qemu-guest-agent run in the guest with an address on its \
         interface {interface}, or have the guest talk to the node once, for example by `ping` of the node's address on \
         that network"
    ))
}

async fn connect(
    dialer: &Dialer,
    guest: &GuestAddress,
    port: GuestPort,
) -> Result<GuestLink, ProbeError> {
    if port.datagrams {
        return guest.datagrams(dialer).await.map(GuestLink::Udp);
    }
    let stream = guest.connect(dialer).await?;
    keep_alive(&stream).map_err(|error| ProbeError::Node(format!("keep-alive: {error}")))?;
    Ok(GuestLink::Tcp(stream))
}

/// tcp(7)
fn keep_alive(stream: &TcpStream) -> nix::Result<()> {
    let (first, between, count) = KEEP_ALIVE;
    setsockopt(stream, sockopt::KeepAlive, &true)?;
    setsockopt(stream, sockopt::TcpKeepIdle, &first)?;
    setsockopt(stream, sockopt::TcpKeepInterval, &between)?;
    setsockopt(stream, sockopt::TcpKeepCount, &count)?;
    // For bytes that are not acknowledged; in milliseconds.
    setsockopt(
        stream,
        sockopt::TcpUserTimeout,
        &((first + between * count) * 1000),
    )?;
    setsockopt(stream, sockopt::TcpNoDelay, &true)
}

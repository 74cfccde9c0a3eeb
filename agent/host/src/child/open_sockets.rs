//! `kvmlet open-sockets`: makes sockets for the agent, and looks up names.
//!
//! A socket is bound by the rules of the cgroup of whoever makes it, and the agent's unit may talk to nobody
//! (`IPAddressDeny=`). So this process, which is nobody, is moved to a cgroup of its own before it gets its first order. The agent
//! connects, binds and listens by the sockets that it is handed, so nothing here waits for anybody but name servers, whose answers
//! the resolver of the C library reads.

use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::prctl::{set_dumpable, set_no_new_privs};
use nix::sys::resource::Resource;
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socket};
use serde::{Deserialize, Serialize};
use tokio::net::UnixDatagram;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::messages::{next_message, send_in_turn};
use agent_confined::{NOBODY, become_user, limit};

/// The hidden subcommand's name.
pub(crate) const SUBCOMMAND: &str = "open-sockets";

/// Names that are looked up at once; further ones are refused, so that sockets never wait behind them.
const LOOKUPS: usize = 64;

/// Threads that wait for name servers.
const RESOLVERS: usize = 8;

/// Longest that a name is looked up.
const PATIENCE: Duration = Duration::from_secs(30);

/// Addresses of one host that are handed back.
const MAX_ADDRESSES: usize = 64;

/// An order of the agent.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SocketOrder {
    /// Which its answer bears, too.
    pub(crate) id: u64,
    /// Socket or addresses.
    pub(crate) wanted: Wanted,
}

/// What the agent wants.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Wanted {
    /// A socket of TCP or UDP, of IPv4 or IPv6, that does not block and is not bound.
    Socket {
        /// UDP, else TCP.
        datagrams: bool,
        /// IPv6, else IPv4.
        ipv6: bool,
    },
    /// Addresses of a name.
    Addresses { host: String, port: u16 },
}

/// The answer to an order.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SocketAnswer {
    /// That of the order.
    pub(crate) id: u64,
    /// The answer itself.
    pub(crate) outcome: Outcome,
}

/// The socket or the addresses, or why there are none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Outcome {
    /// A socket, whose descriptor comes with the answer.
    Made,
    /// Addresses.
    Found(Vec<SocketAddr>),
    /// The kernel's error, if it is one, and its words.
    Failed { errno: Option<i32>, message: String },
}

impl From<io::Error> for Outcome {
    fn from(error: io::Error) -> Self {
        Self::Failed {
            errno: error.raw_os_error(),
            message: error.to_string(),
        }
    }
}

pub(super) fn serve() -> io::Result<()> {
    let orders = io::stdin().as_fd().try_clone_to_owned()?;
    set_dumpable(false)?;
    limit(Resource::RLIMIT_CORE, 0)?;
    become_user(NOBODY, NOBODY)?;
    set_no_new_privs()?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(RESOLVERS)
        .build()?;
    let ended = runtime.block_on(answer(orders));
    // A name server that does not answer is not waited for.
    runtime.shutdown_background();
    ended
}

/// Until the agent is gone.
async fn answer(orders: OwnedFd) -> io::Result<()> {
    rustix::io::ioctl_fionbio(&orders, true)?;
    // It keeps the bounds of messages (`SOCK_SEQPACKET`).
    let orders = Arc::new(UnixDatagram::from_std(orders.into())?);
    let lookups = Arc::new(Semaphore::new(LOOKUPS));
    while let Some((SocketOrder { id, wanted }, _)) = next_message(&orders).await? {
        let (host, port) = match wanted {
            Wanted::Socket { datagrams, ipv6 } => {
                reply(&orders, id, make(datagrams, ipv6)).await?;
                continue;
            }
            Wanted::Addresses { host, port } => (host, port),
        };
        let Ok(turn) = Arc::clone(&lookups).try_acquire_owned() else {
            let refused = io::Error::other("too many names are being looked up");
            reply(&orders, id, Err(refused)).await?;
            continue;
        };
        let orders = Arc::clone(&orders);
        tokio::spawn(async move {
            let found = look_up(&host, port).await.map(Made::Addresses);
            if let Err(error) = reply(&orders, id, found).await {
                // That it cannot be written changes nothing: whoever waits gives up.
                drop(writeln!(io::stderr(), "{SUBCOMMAND}: {error}"));
            }
            drop(turn);
        });
    }
    Ok(())
}

async fn reply(to: &UnixDatagram, id: u64, made: io::Result<Made>) -> io::Result<()> {
    let (outcome, descriptor) = match made {
        Ok(Made::Socket(descriptor)) => (Outcome::Made, Some(descriptor)),
        Ok(Made::Addresses(addresses)) => (Outcome::Found(addresses), None),
        Err(error) => (error.into(), None),
    };
    let answer = SocketAnswer { id, outcome };
    let descriptors: Vec<BorrowedFd<'_>> = descriptor.iter().map(AsFd::as_fd).collect();
    send_in_turn(to, &answer, &descriptors).await
}

/// What an order comes to.
enum Made {
    Socket(OwnedFd),
    Addresses(Vec<SocketAddr>),
}

fn make(datagrams: bool, ipv6: bool) -> io::Result<Made> {
    let family = if ipv6 {
        AddressFamily::Inet6
    } else {
        AddressFamily::Inet
    };
    let kind = if datagrams {
        SockType::Datagram
    } else {
        SockType::Stream
    };
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    Ok(Made::Socket(socket(family, kind, flags, None)?))
}

async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = timeout(PATIENCE, tokio::net::lookup_host((host, port))).await;
    let found = found.map_err(|_| io::Error::from_raw_os_error(nix::libc::ETIMEDOUT))??;
    Ok(found.take(MAX_ADDRESSES).collect())
}

/// Carries out an order in this process.
#[cfg(test)]
pub(crate) async fn carry_out_here(wanted: Wanted) -> io::Result<(Outcome, Option<OwnedFd>)> {
    let made = match wanted {
        Wanted::Socket { datagrams, ipv6 } => make(datagrams, ipv6)?,
        Wanted::Addresses { host, port } => Made::Addresses(look_up(&host, port).await?),
    };
    Ok(match made {
        Made::Socket(descriptor) => (Outcome::Made, Some(descriptor)),
        Made::Addresses(addresses) => (Outcome::Found(addresses), None),
    })
}

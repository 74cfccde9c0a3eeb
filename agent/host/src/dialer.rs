//! Sockets to registries, guests and whoever else the agent talks to, made by a process of its own.
//!
//! The packaged unit lets no packet of the agent in or out (`IPAddressDeny=any`). The kernel goes by the cgroup in which a socket
//! was made. So a helper, `kvmlet open-sockets`, makes them in a scope of its own and hands them over, and the agent connects or
//! listens by them: what it did not ask for stays impossible in its unit. A connection that takes long holds up nobody else's. The
//! helper is started when the first socket is wanted, and again when it ended.

use std::collections::HashMap;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::net::SocketType;
use rustix::net::sockopt::{socket_domain, socket_type};
use tokio::net::{TcpListener, TcpSocket, TcpStream, UdpSocket, UnixDatagram};
use tokio::process::Child;
use tokio::sync::oneshot;
use tokio::time::timeout;

use crate::child::{
    OPEN_SOCKETS, Outcome, SocketAnswer, SocketOrder, Wanted, next_message, send_in_turn,
};
use crate::sandbox::Sandbox;
use crate::scope::{Kind, Scope, Server, start_server};

/// What the process may take: its threads wait for name servers.
const KIND: Kind = Kind {
    word: "dial",
    memory_bytes: 64 << 20,
    tasks: 32,
};

/// Connections that wait until they are taken.
const BACKLOG: u32 = 1024;

/// How long one of several addresses of a host may take, so that another has its turn before whoever dials gives up.
const EACH: Duration = Duration::from_secs(4);

/// Opens sockets.
#[derive(Clone, Debug)]
pub struct Dialer(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    program: PathBuf,
    sandbox: Arc<Sandbox>,
    next: AtomicU64,
    /// Held while the process is started.
    turn: tokio::sync::Mutex<()>,
    present: Mutex<Option<Arc<Running>>>,
}

/// The process that runs.
#[derive(Debug)]
struct Running {
    /// Keeps the bounds of messages (`SOCK_SEQPACKET`).
    orders: UnixDatagram,
    /// Who waits for an answer; `None` once none comes any more.
    waiting: Mutex<Option<HashMap<u64, oneshot::Sender<Answer>>>>,
}

type Answer = (Outcome, Option<OwnedFd>);

impl Dialer {
    /// `program` carries out hidden subcommands.
    pub(crate) fn new(program: PathBuf, sandbox: Arc<Sandbox>) -> Self {
        Self(Arc::new(Shared {
            program,
            sandbox,
            next: AtomicU64::new(0),
            turn: tokio::sync::Mutex::default(),
            present: Mutex::default(),
        }))
    }

    /// Connects, through one interface alone if one is named.
    ///
    /// # Errors
    /// As connect(2).
    pub async fn connect(
        &self,
        address: SocketAddr,
        interface: Option<&str>,
    ) -> io::Result<TcpStream> {
        let socket = self.stream_socket(address).await?;
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        socket.connect(address).await
    }

    /// Connects to the first address of a host that answers.
    ///
    /// # Errors
    /// That of the last address, or of the resolver.
    pub async fn connect_by_name(&self, host: &str, port: u16) -> io::Result<TcpStream> {
        let mut last = io::ErrorKind::NotFound.into();
        for address in self.look_up(host, port).await? {
            match timeout(EACH, self.connect(address, None)).await {
                Ok(Ok(stream)) => return Ok(stream),
                Ok(Err(error)) => last = error,
                Err(_) => last = io::ErrorKind::TimedOut.into(),
            }
        }
        Err(last)
    }

    /// A socket that sends to this address alone and hears it alone.
    ///
    /// # Errors
    /// As connect(2).
    pub async fn datagrams(
        &self,
        address: SocketAddr,
        interface: Option<&str>,
    ) -> io::Result<UdpSocket> {
        let socket = UdpSocket::from_std(self.make(true, address).await?.into())?;
        if let Some(interface) = interface {
            socket.bind_device(Some(interface.as_bytes()))?;
        }
        // It has no port before, so nobody else's datagrams wait in it.
        socket.connect(address).await?;
        Ok(socket)
    }

    /// Listens.
    ///
    /// # Errors
    /// As bind(2).
    pub async fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let socket = self.stream_socket(address).await?;
        // As after a restart, while connections of before still linger.
        socket.set_reuseaddr(true)?;
        socket.bind(address)?;
        socket.listen(BACKLOG)
    }

    /// Looks up the addresses of a host, which may be one itself. At most 64.
    ///
    /// # Errors
    /// In the words of the node's resolver.
    pub async fn look_up(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        if let Ok(address) = host.parse() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let host = host.to_owned();
        match self.ask(Wanted::Addresses { host, port }).await? {
            (Outcome::Found(addresses), _) => Ok(addresses),
            _ => Err(nonsense()),
        }
    }

    async fn stream_socket(&self, address: SocketAddr) -> io::Result<TcpSocket> {
        let made = self.make(false, address).await?;
        Ok(TcpSocket::from_std_stream(made.into()))
    }

    async fn make(&self, datagrams: bool, address: SocketAddr) -> io::Result<OwnedFd> {
        let ipv6 = address.is_ipv6();
        match self.ask(Wanted::Socket { datagrams, ipv6 }).await? {
            (Outcome::Made, Some(made)) if is_as_wanted(&made, datagrams, ipv6)? => Ok(made),
            _ => Err(nonsense()),
        }
    }

    /// Makes them in this process, which tests are without a program that carries out hidden subcommands.
    #[cfg(test)]
    pub(crate) fn of_this_process() -> Self {
        let why = "a test".to_owned();
        Self::new(PathBuf::new(), Arc::new(Sandbox::Session { why }))
    }

    async fn ask(&self, wanted: Wanted) -> io::Result<Answer> {
        #[cfg(test)]
        if self.0.program.as_os_str().is_empty() {
            return crate::child::carry_out_here(wanted).await;
        }
        let running = self.0.running().await?;
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let answer = running.wait_for(id).ok_or_else(ended)?;
        let order = SocketOrder { id, wanted };
        send_in_turn(&running.orders, &order, &[]).await?;
        match answer.await {
            Ok((Outcome::Failed { errno, message }, _)) => {
                Err(errno.map_or_else(|| io::Error::other(message), io::Error::from_raw_os_error))
            }
            Ok(answer) => Ok(answer),
            Err(_) => Err(ended()),
        }
    }
}

/// The process reads what name servers answer: what it hands over is looked at before it is used.
fn is_as_wanted(made: &OwnedFd, datagrams: bool, ipv6: bool) -> io::Result<bool> {
    let (kind, family) = (socket_type(made)?, socket_domain(made)?);
    let wanted_kind = if datagrams {
        SocketType::DGRAM
    } else {
        SocketType::STREAM
    };
    let wanted_family = if ipv6 {
        rustix::net::AddressFamily::INET6
    } else {
        rustix::net::AddressFamily::INET
    };
    Ok(kind == wanted_kind && family == wanted_family)
}

fn ended() -> io::Error {
    io::Error::other("the process that makes sockets has just ended")
}

fn nonsense() -> io::Error {
    io::Error::other("the process that makes sockets answers something else")
}

impl Shared {
    async fn running(self: &Arc<Self>) -> io::Result<Arc<Running>> {
        let present = || self.locked().as_ref().map(Arc::clone);
        if let Some(running) = present() {
            return Ok(running);
        }
        let _turn = self.turn.lock().await;
        match present() {
            Some(running) => Ok(running),
            None => self.start().await,
        }
    }

    /// Starts it in a cgroup of its own: its sockets are not bound by the rules of the agent's.
    async fn start(self: &Arc<Self>) -> io::Result<Arc<Running>> {
        let server = start_server(
            &self.program,
            &[OPEN_SOCKETS.as_ref()],
            Stdio::null(),
            &self.sandbox,
            KIND,
        )
        .await?;
        let Server {
            child,
            orders,
            scope,
            ..
        } = server;
        rustix::io::ioctl_fionbio(&orders, true)?;
        let running = Arc::new(Running {
            orders: UnixDatagram::from_std(orders.into())?,
            waiting: Mutex::new(Some(HashMap::new())),
        });
        *self.locked() = Some(Arc::clone(&running));
        let it = Arc::clone(&running);
        tokio::spawn(Arc::clone(self).outlive(child, scope, it));
        Ok(running)
    }

    /// Hands out answers until the process has ended.
    async fn outlive(self: Arc<Self>, mut child: Child, scope: Scope, running: Arc<Running>) {
        let received = running.receive_answers().await;
        // Nobody begins to wait from here on.
        drop(running.locked().take());
        self.locked()
            .take_if(|present| Arc::ptr_eq(present, &running));
        // One that closed its socket and stays is of no use.
        let ended = match child.kill().await {
            Ok(()) => child.wait().await,
            Err(error) => Err(error),
        };
        let ended = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
        tracing::warn!(
            ended,
            error = received.err().map(|error| error.to_string()),
            "the process that makes sockets ended; another one takes its place"
        );
        scope.remove().await;
    }

    fn locked(&self) -> MutexGuard<'_, Option<Arc<Running>>> {
        // No holder of the lock can leave what it guards half changed.
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// Where the answer to an order comes; `None`: none comes any more.
    fn wait_for(&self, id: u64) -> Option<oneshot::Receiver<Answer>> {
        let (sender, receiver) = oneshot::channel();
        let mut waiting = self.locked();
        let waiting = waiting.as_mut()?;
        // Who has given up is not answered.
        waiting.retain(|_, sender| !sender.is_closed());
        waiting.insert(id, sender);
        Some(receiver)
    }

    async fn receive_answers(&self) -> io::Result<()> {
        while let Some((answer, mut descriptors)) = next_message(&self.orders).await? {
            let SocketAnswer { id, outcome } = answer;
            let waiting = self.locked().as_mut().and_then(|all| all.remove(&id));
            if let Some(waiting) = waiting {
                // Who gave up meanwhile needs no socket: it is closed.
                drop(waiting.send((outcome, descriptors.pop())));
            }
        }
        Ok(())
    }

    fn locked(&self) -> MutexGuard<'_, Option<HashMap<u64, oneshot::Sender<Answer>>>> {
        // No holder of the lock can leave what it guards half changed.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

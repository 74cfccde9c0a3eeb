//! What leads to a running guest: what it is asked to do, its console, what it printed, its ports, its agent.

use std::future::Future;
use std::net::SocketAddr;

use proto_node::node::{LogsResponse, Object};
use proto_node::vmi::VirtualMachineInstanceGuestAgentInfo;
use tokio::net::{TcpStream, UdpSocket, UnixStream};
use tokio::sync::{mpsc, watch};

use crate::error::ApiError;
use crate::registry::ObjectRef;

/// A request to a running guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Its vCPUs stop until [`Self::Unpause`].
    Pause,
    /// Its vCPUs run again.
    Unpause,
    /// Have it reboot itself.
    SoftReboot,
    /// Bring its machine back to power-on.
    Reset,
    /// End it and keep its object.
    Stop {
        /// Seconds for the guest to shut down; its own when absent.
        grace_period_seconds: Option<i64>,
    },
}

/// A subresource request for a guest, such as pause or restart.
#[derive(Clone, Debug)]
pub struct GuestVerb {
    /// Which VMI.
    pub target: ObjectRef,
    /// Only of this uid. Empty: any.
    pub uid: String,
    /// Subresource request, such as pause or restart.
    pub verb: Verb,
    /// A repeated request with the same key does nothing again. Empty: none.
    pub idempotency_key: String,
    /// Judge only.
    pub dry_run: bool,
    /// Who asks, for the log.
    pub client: String,
}

/// Result of a subresource request.
#[derive(Clone, Debug)]
pub struct VerbResult {
    /// The VMI as stored.
    pub object: Object,
    /// A request with the same key was carried out before.
    pub before: bool,
}

/// A request for a console.
#[derive(Clone, Debug)]
pub struct Attach {
    /// VMI whose console is wanted.
    pub target: ObjectRef,
    /// Only of this uid. Empty: any.
    pub uid: String,
    /// Take it from whoever has it.
    pub force: bool,
    /// First what is kept of the output, from this byte of the whole output on.
    pub replay_from: Option<u64>,
    /// Name of the client, which others that attach meanwhile see.
    pub client: String,
}

/// An attached console.
#[derive(Debug)]
pub struct Attached {
    /// The VMI's uid.
    pub uid: String,
    /// Raw bytes both ways.
    pub stream: UnixStream,
    /// Which byte of the guest's whole output comes first, counted from 0.
    pub offset: u64,
}

/// A request for what a guest printed.
#[derive(Clone, Debug)]
pub struct Logs {
    /// Of which VMI.
    pub target: ObjectRef,
    /// Only of this uid. Empty: any.
    pub uid: String,
    /// Of the run before.
    pub previous: bool,
    /// And what it prints from now on.
    pub follow: bool,
    /// Only the end of what is kept.
    pub tail_bytes: Option<u64>,
    /// Nothing before this byte of the whole output, where it is known what that is.
    pub since_offset: Option<u64>,
}

/// What a guest printed, piece by piece. Whoever drops it is sent no more.
pub type LogsPieces = mpsc::Receiver<Result<LogsResponse, ApiError>>;

/// A request for a connection to a port of a guest.
#[derive(Clone, Debug)]
pub struct Forward {
    /// Of which VMI.
    pub target: ObjectRef,
    /// Only of this uid. Empty: any.
    pub uid: String,
    /// Datagrams (UDP) rather than a connection (TCP).
    pub datagrams: bool,
    /// Number of the port, at least 1.
    pub port: u16,
    /// Who asks, for the log.
    pub client: String,
}

/// A port of a guest that was reached.
#[derive(Debug)]
pub struct Forwarded {
    /// The VMI's uid.
    pub uid: String,
    /// Where in the guest it ends.
    pub address: SocketAddr,
    /// Connection to the guest's port.
    pub link: ForwardLink,
    /// Becomes true when the agent ends.
    pub stopping: watch::Receiver<bool>,
}

/// What leads to a port of a guest.
#[derive(Debug)]
pub enum ForwardLink {
    /// A connection.
    Tcp(TcpStream),
    /// A socket that speaks with the port alone.
    Udp(UdpSocket),
}

/// The way to guests that run.
pub trait GuestStreams: Clone + Send + Sync + 'static {
    /// Tells a guest something.
    fn run_verb(
        &self,
        request: GuestVerb,
    ) -> impl Future<Output = Result<VerbResult, ApiError>> + Send;

    /// Attaches to a console.
    fn attach(&self, attach: Attach) -> impl Future<Output = Result<Attached, ApiError>> + Send;

    /// What a guest printed.
    fn logs(&self, logs: Logs) -> impl Future<Output = Result<LogsPieces, ApiError>> + Send;

    /// Connects to a port of a guest.
    fn forward(&self, forward: Forward)
    -> impl Future<Output = Result<Forwarded, ApiError>> + Send;

    /// What the agent in a guest says of it; of this uid only, unless that is empty.
    fn guest_info(
        &self,
        target: &ObjectRef,
        uid: &str,
    ) -> impl Future<Output = Result<VirtualMachineInstanceGuestAgentInfo, ApiError>> + Send;
}

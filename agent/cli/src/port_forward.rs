//! `kvmctl port-forward`: ports of this machine that lead to ports of a guest, as `virtctl` has them.
//!
//! Each connection is carried by a connection of its own to the agent: one that is not read holds nobody else up.

mod datagrams;
pub mod ports;
mod stream;
mod tunnel;

use std::net::SocketAddr;
use std::sync::Arc;

use agent_domain::Transport;
use tokio::net::{TcpListener, UdpSocket, lookup_host};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use self::datagrams::PAUSE;
pub use self::ports::Ports;
use self::stream::{Input, Output};
pub use self::tunnel::{Key, Target};
use crate::args::PortForward;
use crate::client::Client;
use crate::failure::Failure;
use crate::guest::Guest;
use crate::output::{note, print_line};
use crate::resource::Resource;
use crate::scope::Scope;

/// Connections that are carried at a time; the next ones wait to be taken.
const MAX_CONNECTIONS: usize = 32;

/// Listens until a signal ends it.
pub async fn run(scope: &Scope, args: PortForward) -> Result<(), Failure> {
    let guest = Guest::parse(&args.what)?.placed(scope);
    let key = Key {
        namespace: guest.namespace,
        name: guest.name,
    };
    if args.stdio {
        return over_stdio(scope, &key, &args.ports).await;
    }
    // Said now rather than to the first connection.
    let mut client = Client::new(scope)?;
    client
        .named(Resource::Vmi.kind(), &key.namespace, &key.name)
        .await?;
    let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    let mut listeners = JoinSet::new();
    for ports in &args.ports {
        let target = Arc::new(Target {
            address: client.address().clone(),
            key: key.clone(),
            ports: *ports,
        });
        let local = resolve(&args.address, ports.local).await?;
        listen(&mut listeners, local, target, &slots).await?;
    }
    let failed = |error: std::io::Error| Failure::refused(format!("signals: {error}"));
    let mut terminated = signal(SignalKind::terminate()).map_err(failed)?;
    tokio::select! {
        _ = listeners.join_next() => Err(Failure::refused("a listener ended")),
        _ = tokio::signal::ctrl_c() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}

/// One connection: standard input to the guest, what the guest sends to standard output.
async fn over_stdio(scope: &Scope, key: &Key, ports: &[Ports]) -> Result<(), Failure> {
    let [ports] = ports else {
        let text = "only one port can be forwarded to standard input and output";
        return Err(Failure::Usage(text.to_owned()));
    };
    if ports.protocol == Transport::Udp {
        let text =
            "udp cannot be forwarded to standard input and output: datagrams have no end there";
        return Err(Failure::Usage(text.to_owned()));
    }
    let target = Target {
        address: scope.address()?,
        key: key.clone(),
        ports: *ports,
    };
    let tunnel = target.open().await?;
    stream::carry(Input::stdin(), Output::Stdout, tunnel, &target).await
}

async fn resolve(address: &str, port: u16) -> Result<SocketAddr, Failure> {
    let wrong = |why: String| Failure::Usage(format!("--address {address}: {why}"));
    let found = lookup_host((address, port)).await;
    let found = found.map_err(|error| wrong(error.to_string()))?.next();
    found.ok_or_else(|| wrong("has no address".to_owned()))
}

/// Opens a local port, and says so.
async fn listen(
    listeners: &mut JoinSet<()>,
    local: SocketAddr,
    target: Arc<Target>,
    slots: &Arc<Semaphore>,
) -> Result<(), Failure> {
    let failed = |error: std::io::Error| {
        Failure::refused(format!(
            "{} port {local} cannot be listened on: {error}",
            target.ports.protocol.name()
        ))
    };
    let number = target.ports.target;
    match target.ports.protocol {
        Transport::Tcp => {
            let listener = TcpListener::bind(local).await.map_err(failed)?;
            let local = listener.local_addr().map_err(failed)?;
            print_line(&format!("Forwarding {local} to {number}"))?;
            listeners.spawn(accept(listener, target, Arc::clone(slots)));
        }
        Transport::Udp => {
            let socket = UdpSocket::bind(local).await.map_err(failed)?;
            let local = socket.local_addr().map_err(failed)?;
            print_line(&format!("Forwarding {local} to {number} (udp)"))?;
            listeners.spawn(datagrams::serve(socket, target, Arc::clone(slots)));
        }
    }
    Ok(())
}

/// Takes connections for as long as the process lives.
async fn accept(listener: TcpListener, target: Arc<Target>, slots: Arc<Semaphore>) {
    loop {
        // It is never closed.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else {
            return;
        };
        let (connection, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                note(&format!("error: a connection was not taken: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let target = Arc::clone(&target);
        tokio::spawn(async move {
            let carried = match target.open().await {
                Ok(tunnel) => {
                    let (input, output) = stream::of_connection(connection);
                    stream::carry(input, output, tunnel, &target).await
                }
                Err(failure) => {
                    stream::break_off(connection);
                    Err(failure)
                }
            };
            if let Err(failure) = carried {
                note(&format!("connection of {peer}: {failure}"));
            }
            drop(slot);
        });
    }
}

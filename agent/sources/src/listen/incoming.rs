//! Connections of all listeners, each with who made it.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use tokio::net::{TcpStream, UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tracing::{debug, warn};

use super::connection::Connection;
use super::connection_limit::{ConnectionLimit, ConnectionPermit};
use super::tls::{TlsKeys, TlsListener};
use crate::access::{Caller, Subject};
use crate::client_log::ClientLog;

/// How long a client may take to show its certificate.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Handshakes at a time from one [`network_of`] and in all: until a handshake ends nobody knows who the client is.
const HANDSHAKES_EACH: usize = 16;
const HANDSHAKES: usize = 256;

/// Connections over TCP in all.
const MOST_REMOTE: usize = 1024;

/// Connections of one user of the node, except of root, and in all.
const LOCAL_EACH: usize = 256;
const MOST_LOCAL: usize = 4096;

/// Connections of all listeners, but for root's.
pub const MOST_CONNECTIONS: usize = MOST_REMOTE + MOST_LOCAL;

/// How long to wait after a failure to accept, such as too many open files.
const AFTER_FAILURE: Duration = Duration::from_millis(100);

/// Connections that wait for the server.
const BACKLOG: usize = 16;

type Out = mpsc::Sender<io::Result<Connection>>;

/// Connections from the Unix socket and, where there is one, the TCP port. They end with the answer.
pub(crate) fn incoming(
    socket: UnixListener,
    tls: Option<TlsListener>,
) -> ReceiverStream<io::Result<Connection>> {
    let (out, connections) = mpsc::channel(BACKLOG);
    if let Some(tls) = tls {
        let (followed, served) = (tls.keys.clone(), out.clone());
        tokio::spawn(async move {
            tokio::select! {
                () = followed.follow_withdrawals() => {}
                () = served.closed() => {}
            }
        });
        tokio::spawn(remote(tls, out.clone()));
    }
    tokio::spawn(local(socket, out));
    ReceiverStream::new(connections)
}

/// Takes connections in until nobody serves them any more.
async fn local(socket: UnixListener, out: Out) {
    let places = Budget::new(LOCAL_EACH, MOST_LOCAL);
    loop {
        let accepted = tokio::select! {
            accepted = socket.accept() => accepted,
            () = out.closed() => return,
        };
        let connection = accepted.and_then(|(stream, _)| known(stream, &places));
        match connection {
            Ok(Some(connection)) => drop(out.send(Ok(connection)).await),
            Ok(None) => {}
            Err(error) => wait_after(&error, "the Unix socket").await,
        }
    }
}

/// The connection with its user; nothing when that one has too many.
fn known(stream: UnixStream, budget: &Budget) -> io::Result<Option<Connection>> {
    let credentials = stream.peer_cred()?;
    let caller = Caller::local(&credentials);
    if credentials.uid() == 0 {
        return Ok(Some(Connection::new(stream, caller, None)));
    }
    let place = budget.admit(&caller);
    Ok(place.map(|place| Connection::new(stream, caller, Some(place))))
}

/// How many connections clients may have.
#[derive(Clone)]
struct Budget {
    places: ConnectionLimit,
    log: ClientLog,
}

impl Budget {
    fn new(most_each: usize, most: usize) -> Self {
        Self {
            places: ConnectionLimit::new(most_each, most),
            log: ClientLog::default(),
        }
    }

    fn admit(&self, caller: &Caller) -> Option<ConnectionPermit> {
        let client = caller.budget();
        let place = self.places.take(client.clone());
        if place.is_none() {
            let line = format!("{caller} has too many connections; a further one is closed");
            self.log.warn(&client, &line);
        }
        place
    }
}

async fn remote(tls: TlsListener, out: Out) {
    let handshakes = ConnectionLimit::new(HANDSHAKES_EACH, HANDSHAKES);
    let clients = Budget::new(tls.most_each, MOST_REMOTE);
    loop {
        let accepted = tokio::select! {
            accepted = tls.listener.accept() => accepted,
            () = out.closed() => return,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                wait_after(&error, "the TCP port").await;
                continue;
            }
        };
        let Some(begun) = handshakes.take(network_of(address.ip())) else {
            debug!(%address, "too many handshakes at a time from that network; one is closed");
            continue;
        };
        let (keys, clients, out) = (tls.keys.clone(), clients.clone(), out.clone());
        tokio::spawn(async move {
            let shown_in = tokio::time::timeout(HANDSHAKE, show_in(stream, &keys, &clients)).await;
            drop(begun);
            match shown_in {
                Ok(Ok(Some(connection))) => drop(out.send(Ok(connection)).await),
                Ok(Ok(None)) => {}
                Ok(Err(error)) => debug!(%address, %error, "a client could not be shown in"),
                Err(_) => debug!(%address, "a client took too long to show its certificate"),
            }
        });
    }
}

/// The connection with the holder of its certificate; nothing when that one has too many.
async fn show_in(
    stream: TcpStream,
    keys: &TlsKeys,
    clients: &Budget,
) -> io::Result<Option<Connection>> {
    let address = stream.peer_addr()?;
    stream.set_nodelay(true)?;
    let stream = keys.acceptor().accept(stream).await?;
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let chain: Vec<_> = chain.iter().map(|der| der.clone().into_owned()).collect();
    let leaf = chain.first();
    let Some(subject) = leaf.and_then(|der| Subject::of_certificate(der)) else {
        let text =
            "the certificate names nobody: neither CN nor O nor a DNS name, URI or e-mail address";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    };
    let caller = Caller::Remote { subject, address };
    let place = clients.admit(&caller);
    Ok(place.map(|place| {
        let connection = Connection::new(stream, caller, Some(place));
        connection.while_valid(keys.follow(chain))
    }))
}

/// What an unknown client is counted by: the IPv4 address, or the /64 of an IPv6 address, because a host that is given
/// an IPv6 network picks any of its 2^64 addresses for each connection.
fn network_of(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => address.to_string(),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            let network = Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0);
            format!("{network}/64")
        }
    }
}

async fn wait_after(error: &io::Error, place: &str) {
    warn!("a connection to {place} could not be accepted: {error}");
    tokio::time::sleep(AFTER_FAILURE).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_from_one_ipv6_network_share_one_budget() {
        let handshakes = ConnectionLimit::new(HANDSHAKES_EACH, HANDSHAKES);
        let take =
            |address: &str| handshakes.take(network_of(address.parse().expect("an address")));
        let mut held: Vec<_> = (1..=HANDSHAKES_EACH)
            .map(|host| take(&format!("2001:db8:0:1:{host:x}:{host:x}::1")))
            .collect();
        assert!(held.iter().all(Option::is_some));
        assert!(take("2001:db8:0:1:ffff::1").is_none());
        // Another network has its own, and so has each IPv4 address, however it is written.
        held.push(take("2001:db8:0:2::1"));
        held.extend((0..HANDSHAKES_EACH).map(|_| take("192.0.2.1")));
        assert!(held.iter().all(Option::is_some));
        assert!(take("::ffff:192.0.2.1").is_none());
        assert!(take("::ffff:192.0.2.2").is_some());
    }
}

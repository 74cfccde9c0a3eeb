//! Datagrams: each peer that sends to the local port has a way of its own to the guest, for as long as it is used.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use proto_node::node::port_forward_request::Body as Command;
use proto_node::node::port_forward_response::Body as Reply;
use tokio::net::UdpSocket;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::timeout;

use super::tunnel::{Target, request};
use crate::failure::Failure;
use crate::output::note;

/// After the system has refused to give a connection, such as for want of descriptors.
pub(super) const PAUSE: Duration = Duration::from_millis(200);

/// A peer and a guest that have had nothing to say for so long are done.
const IDLE: Duration = Duration::from_secs(60);

/// The largest datagram.
const LARGEST: usize = 65_535;

/// Datagrams of one peer that wait; more are lost, as everywhere.
const BACKLOG: usize = 64;

/// Hears peers for as long as the process lives.
pub async fn serve(socket: UdpSocket, target: Arc<Target>, slots: Arc<Semaphore>) {
    let socket = Arc::new(socket);
    let mut peers: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut buffer = vec![0; LARGEST];
    loop {
        let (count, peer) = match socket.recv_from(&mut buffer).await {
            Ok(received) => received,
            // A peer of before has gone.
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
            Err(error) => {
                note(&format!("error: no datagram was received: {error}"));
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let datagram = buffer.get(..count).unwrap_or_default().to_vec();
        peers.retain(|_, datagrams| !datagrams.is_closed());
        let known = match peers.get(&peer) {
            Some(known) => known.clone(),
            None => {
                // One that finds no room is lost with its peer.
                let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                    continue;
                };
                let (datagrams, receiver) = mpsc::channel(BACKLOG);
                let (socket, target) = (Arc::clone(&socket), Arc::clone(&target));
                tokio::spawn(converse(socket, peer, receiver, target, slot));
                peers.insert(peer, datagrams.clone());
                datagrams
            }
        };
        // As is one that finds the queue full.
        drop(known.try_send(datagram));
    }
}

async fn converse(
    socket: Arc<UdpSocket>,
    peer: SocketAddr,
    datagrams: mpsc::Receiver<Vec<u8>>,
    target: Arc<Target>,
    slot: OwnedSemaphorePermit,
) {
    if let Err(failure) = carry(&socket, peer, datagrams, &target).await {
        note(&format!("datagrams of {peer}: {failure}"));
    }
    drop(slot);
}

async fn carry(
    socket: &UdpSocket,
    peer: SocketAddr,
    mut datagrams: mpsc::Receiver<Vec<u8>>,
    target: &Target,
) -> Result<(), Failure> {
    let mut tunnel = target.open().await?;
    loop {
        let next = async {
            tokio::select! {
                datagram = datagrams.recv() => Ok(datagram.map(Way::There)),
                response = tunnel.responses.message() => response.map(|response| match response?.body {
                    Some(Reply::Data(datagram)) => Some(Way::Back(datagram)),
                    _ => Some(Way::Nowhere),
                }),
            }
        };
        match timeout(IDLE, next).await {
            Err(_) => return Ok(()),
            Ok(Err(status)) => return Err(target.ended(&status)),
            Ok(Ok(None)) => return Err(target.lost()),
            Ok(Ok(Some(Way::There(datagram)))) => {
                // If the agent is gone, the other direction returns the error.
                drop(tunnel.requests.send(request(Command::Data(datagram))).await);
            }
            Ok(Ok(Some(Way::Back(datagram)))) => {
                // A peer that is gone has lost its answer.
                drop(socket.send_to(&datagram, peer).await);
            }
            Ok(Ok(Some(Way::Nowhere))) => {}
        }
    }
}

/// Where a datagram goes.
enum Way {
    There(Vec<u8>),
    Back(Vec<u8>),
    Nowhere,
}

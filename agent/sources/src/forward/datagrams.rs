//! The datagrams between one peer and a port of a guest. As everywhere, those that find no room are lost.

use proto_node::node::port_forward_request::Body as Command;
use proto_node::node::port_forward_response::Body as Reply;
use tokio::net::UdpSocket;

use super::out::{Out, Requests};

/// The largest datagram of UDP.
const LARGEST: usize = 65_535;

/// Carries datagrams until the client ends it or the guest refuses them.
pub(super) async fn carry(guest: UdpSocket, requests: Requests, out: &Out) {
    let refused = tokio::select! {
        refused = to(requests, &guest) => refused,
        refused = from(&guest, out) => refused,
    };
    if let Err(error) = refused {
        out.fail(format!("the guest takes no datagrams there: {error}"))
            .await;
    }
}

async fn to(mut requests: Requests, guest: &UdpSocket) -> std::io::Result<()> {
    while let Ok(Some(request)) = requests.message().await {
        let Some(Command::Data(datagram)) = request.body else {
            break;
        };
        guest.send(&datagram).await?;
    }
    Ok(())
}

async fn from(guest: &UdpSocket, out: &Out) -> std::io::Result<()> {
    let mut buffer = vec![0; LARGEST];
    loop {
        let count = guest.recv(&mut buffer).await?;
        let datagram = buffer.get(..count).unwrap_or_default().to_vec();
        if out.send(Reply::Data(datagram)).await.is_err() {
            return Ok(());
        }
    }
}

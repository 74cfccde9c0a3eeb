//! One TCP connection of a guest.

use std::io;

use proto_node::node::PortForwardEnd;
use proto_node::node::port_forward_request::Body as Command;
use proto_node::node::port_forward_response::Body as Reply;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};

use super::out::{CHUNK, Out, Requests};

/// Why a direction did not end in order.
enum Broken {
    /// The client is gone.
    Client,
    /// The guest broke it off.
    Guest(io::Error),
}

/// The guest's end. Unless both directions have ended in order, the guest gets a reset when this is dropped.
struct Guest {
    stream: TcpStream,
    in_order: bool,
}

impl Drop for Guest {
    fn drop(&mut self) {
        if !self.in_order {
            // A socket that takes no option is broken already.
            drop(self.stream.set_zero_linger());
        }
    }
}

/// Carries bytes until both directions have ended. What one end breaks off the other one sees broken off.
pub(super) async fn carry(stream: TcpStream, requests: Requests, out: &Out) {
    let mut guest = Guest {
        stream,
        in_order: false,
    };
    let (from_guest, to_guest) = guest.stream.split();
    let both = async { tokio::try_join!(to(requests, to_guest), from(from_guest, out)) };
    match both.await {
        Ok(_) => guest.in_order = true,
        Err(Broken::Client) => {}
        Err(Broken::Guest(error)) => {
            out.fail(format!("the guest broke the connection off: {error}"))
                .await;
        }
    }
}

/// From the client to the guest.
async fn to(mut requests: Requests, mut guest: WriteHalf<'_>) -> Result<(), Broken> {
    loop {
        let Ok(Some(request)) = requests.message().await else {
            return Err(Broken::Client);
        };
        match request.body {
            Some(Command::Data(bytes)) => {
                guest.write_all(&bytes).await.map_err(Broken::Guest)?;
            }
            Some(Command::End(_)) => return guest.shutdown().await.map_err(Broken::Guest),
            Some(Command::Open(_)) | None => return Err(Broken::Client),
        }
    }
}

/// From the guest to the client.
async fn from(mut guest: ReadHalf<'_>, out: &Out) -> Result<(), Broken> {
    let mut buffer = vec![0; CHUNK];
    loop {
        let count = guest.read(&mut buffer).await.map_err(Broken::Guest)?;
        let answer = match buffer.get(..count) {
            None | Some([]) => Reply::End(PortForwardEnd {}),
            Some(bytes) => Reply::Data(bytes.to_vec()),
        };
        out.send(answer).await.map_err(|_| Broken::Client)?;
        if count == 0 {
            return Ok(());
        }
    }
}

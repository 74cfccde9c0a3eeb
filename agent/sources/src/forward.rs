//! Ports of guests over gRPC: each stream carries one connection, or the datagrams of one peer.
//!
//! Nothing is kept here but what is on its way: a direction whose other end does not read stops reading, so that
//! whoever sends too fast is held back by its own transport.

mod budget;
mod datagrams;
mod out;
mod stream;

use proto_node::node::{
    PortForwardOpen, PortForwardOpened, port_forward_request, port_forward_response,
};
use tokio::sync::{mpsc, watch};
use tonic::Status;

pub(crate) use self::budget::Forwards;
use self::out::{Answer, BACKLOG, Out, Requests};
use crate::access::Permit;
use crate::budget::OPENING;
use crate::error::ApiError;
use crate::guest_streams::{Forward, ForwardLink, GuestStreams};
use crate::registry::Kind;

/// Reads the first request and connects; the responses follow.
pub(crate) async fn open<G: GuestStreams>(
    guests: &G,
    forwards: &Forwards,
    permit: &Permit,
    mut requests: Requests,
) -> Result<mpsc::Receiver<Answer>, Status> {
    let place = forwards.take(&permit.budget)?;
    let first = tokio::time::timeout(OPENING, requests.message()).await;
    let first = first.map_err(|_| bad_request("the first request of a forward did not come"))??;
    let Some(port_forward_request::Body::Open(open)) = first.and_then(|request| request.body)
    else {
        return Err(bad_request("the first request of a forward must be open").into());
    };
    let forwarded = guests.forward(wanted(permit, open)?).await?;
    let (out, responses) = mpsc::channel(BACKLOG);
    let out = Out(out);
    tokio::spawn(async move {
        let opened = PortForwardOpened {
            uid: forwarded.uid,
            address: forwarded.address.to_string(),
        };
        let hello = port_forward_response::Body::Opened(opened);
        if out.send(hello).await.is_ok() {
            carry(forwarded.link, requests, &out, forwarded.stopping).await;
        }
        drop(place);
    });
    Ok(responses)
}

/// Carries bytes until both directions have ended, or one end is gone, or the agent ends.
async fn carry(
    link: ForwardLink,
    requests: Requests,
    out: &Out,
    mut stopping: watch::Receiver<bool>,
) {
    let carried = async {
        match link {
            ForwardLink::Tcp(guest) => stream::carry(guest, requests, out).await,
            ForwardLink::Udp(guest) => datagrams::carry(guest, requests, out).await,
        }
    };
    tokio::select! {
        () = carried => {}
        () = out.0.closed() => {}
        // An error means that the agent itself is gone.
        _ = stopping.wait_for(|stopping| *stopping) => {
            let why = ApiError::Unavailable(String::from("the agent is ending; connect again"));
            // A client that does not read sees the end of the stream.
            drop(out.0.try_send(Err(why.into())));
        }
    }
}

fn wanted(permit: &Permit, open: PortForwardOpen) -> Result<Forward, ApiError> {
    let datagrams = match open.protocol.to_ascii_lowercase().as_str() {
        "" | "tcp" => false,
        "udp" => true,
        other => {
            let text = format!("protocol {other:?} is not known: tcp and udp are");
            return Err(ApiError::BadRequest(text));
        }
    };
    let port = u16::try_from(open.port).ok().filter(|port| *port > 0);
    let port = port.ok_or_else(|| {
        let text = format!("port {} is not between 1 and 65535", open.port);
        ApiError::BadRequest(text)
    })?;
    Ok(Forward {
        target: permit.target(Kind::VirtualMachineInstance, open.namespace, open.name)?,
        uid: open.uid,
        datagrams,
        port,
        client: permit.caller.clone(),
    })
}

fn bad_request(text: &str) -> ApiError {
    ApiError::BadRequest(text.to_owned())
}

//! What a forwarded stream is sent by.

use proto_node::node::{PortForwardRequest, PortForwardResponse, port_forward_response};
use tokio::sync::mpsc;
use tonic::{Status, Streaming};

use crate::error::ApiError;

/// Responses that wait for a slow client, each of [`CHUNK`] bytes at most.
pub(super) const BACKLOG: usize = 4;

/// Bytes read from the guest in one go.
pub(super) const CHUNK: usize = 16 << 10;

/// The client went away.
pub(super) struct ClientGone;

pub(super) type Requests = Streaming<PortForwardRequest>;

pub(super) type Answer = Result<PortForwardResponse, Status>;

/// Where responses go.
#[derive(Clone)]
pub(super) struct Out(pub(super) mpsc::Sender<Answer>);

impl Out {
    pub(super) async fn send(&self, body: port_forward_response::Body) -> Result<(), ClientGone> {
        let response = PortForwardResponse { body: Some(body) };
        self.0.send(Ok(response)).await.map_err(|_| ClientGone)
    }

    /// Sends last why it is over; a client that is gone already gets nothing.
    pub(super) async fn fail(&self, why: String) {
        // That client is gone already.
        drop(self.0.send(Err(ApiError::Unavailable(why).into())).await);
    }
}

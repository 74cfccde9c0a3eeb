//! One connection to the agent that carries one connection to a guest.

use proto_node::node::port_forward_request::Body as Command;
use proto_node::node::port_forward_response::Body as Reply;
use proto_node::node::{PortForwardOpen, PortForwardRequest, PortForwardResponse};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::ports::Ports;
use crate::agent_address::AgentAddress;
use crate::client::Client;
use crate::failure::{Failure, is_unreachable};
use crate::resource::Resource;

/// Requests that wait for a slow agent.
const BACKLOG: usize = 4;

/// Namespace and name of a VMI.
#[derive(Clone)]
pub struct Key {
    pub namespace: String,
    pub name: String,
}

/// What a local port leads to.
pub struct Target {
    pub address: AgentAddress,
    pub key: Key,
    pub ports: Ports,
}

/// An open way to the guest.
pub struct Tunnel {
    pub requests: mpsc::Sender<PortForwardRequest>,
    pub responses: Streaming<PortForwardResponse>,
}

impl Target {
    /// Has the agent connect to the guest.
    pub async fn open(&self) -> Result<Tunnel, Failure> {
        self.connect().await.map_err(|status| self.failure(&status))
    }

    /// The same, with the answer as the agent gives it.
    pub async fn connect(&self) -> Result<Tunnel, Status> {
        let mut client = Client::at(&self.address)
            .map_err(|failure| Status::invalid_argument(failure.to_string()))?;
        let (requests, receiver) = mpsc::channel(BACKLOG);
        let open = Command::Open(PortForwardOpen {
            namespace: self.key.namespace.clone(),
            name: self.key.name.clone(),
            uid: String::new(),
            protocol: self.ports.protocol.name().to_owned(),
            port: u32::from(self.ports.target),
        });
        // There is room for the first message in a new channel.
        requests
            .try_send(request(open))
            .map_err(|error| Status::internal(format!("port-forward: {error}")))?;
        let mut responses = client.port_forward(ReceiverStream::new(receiver)).await?;
        let first = responses.message().await?;
        match first.and_then(|first| first.body) {
            Some(Reply::Opened(_)) => Ok(Tunnel {
                requests,
                responses,
            }),
            _ => Err(Status::unavailable("the agent ended the connection")),
        }
    }

    /// The error when the agent answers with a failure, or does not answer any more.
    pub fn failure(&self, status: &Status) -> Failure {
        let kind = Resource::Vmi.kind();
        Failure::of_status(status, kind, &self.key.name, &self.address)
    }

    /// Why an open connection is over.
    pub fn ended(&self, status: &Status) -> Failure {
        if is_unreachable(status) {
            return self.lost();
        }
        self.failure(status)
    }

    /// The agent is gone, and the connection with it.
    pub fn lost(&self) -> Failure {
        Failure::Unreachable(format!(
            "error: the agent went away, and with it this connection to {}; the guest runs on",
            self.key.name
        ))
    }
}

pub fn request(body: Command) -> PortForwardRequest {
    PortForwardRequest { body: Some(body) }
}

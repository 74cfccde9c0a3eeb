//! The real server in front of services of tests.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use proto_node::node::node_service_client::NodeServiceClient;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use super::registry::FakeRegistry;
use crate::access::{Access, Caller, Grant, Policy, Subject};
use crate::budget::CallLimits;
use crate::grpc::{Services, serve_on};
use crate::listen::Connection;

/// A server with grants, to which callers connect in memory.
pub(crate) struct Server {
    pub(crate) access: Access,
    connections: mpsc::Sender<io::Result<Connection>>,
}

impl Server {
    /// Serves until the test ends.
    pub(crate) fn start(registry: FakeRegistry, grants: Vec<Grant>) -> Self {
        Self::limited(registry, grants, CallLimits::default())
    }

    /// The same with other limits.
    pub(crate) fn limited(registry: FakeRegistry, grants: Vec<Grant>, limits: CallLimits) -> Self {
        let access = Access::new(policy(grants));
        let (connections, incoming) = mpsc::channel(16);
        let incoming = ReceiverStream::new(incoming);
        let services = Services {
            objects: registry.clone(),
            guests: registry.clone(),
            node: registry,
        };
        tokio::spawn(serve_on(
            services,
            (access.clone(), limits),
            incoming,
            std::future::pending(),
        ));
        Self {
            access,
            connections,
        }
    }

    /// A client with a certificate of this common name.
    pub(crate) async fn client(&self, common_name: &str) -> NodeServiceClient<Channel> {
        let (hears, window) = (Arc::default(), 1 << 16);
        NodeServiceClient::new(self.channel(common_name, &hears, window).await)
    }

    /// The connection of such a client, which reads nothing more once `deaf` is set. As much as `window` is taken of a
    /// stream that nobody reads.
    pub(crate) async fn channel(
        &self,
        common_name: &str,
        deaf: &Arc<AtomicBool>,
        window: u32,
    ) -> Channel {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let connection = Connection::new(theirs, caller(common_name), None);
        let sent = self.connections.send(Ok(connection)).await;
        assert!(sent.is_ok(), "the server has ended");
        let endpoint = Endpoint::from_static("http://agent.test")
            .initial_connection_window_size(1 << 30)
            .initial_stream_window_size(window);
        let ours = Client {
            stream: ours,
            deaf: Arc::clone(deaf),
        };
        let channel = endpoint.connect_with_connector(Once(Some(ours))).await;
        channel.expect("connects")
    }
}

pub(crate) fn policy(grants: Vec<Grant>) -> Policy {
    Policy {
        grants,
        origin: String::from("/etc/kvmlet/kvmlet.toml"),
    }
}

fn caller(common_name: &str) -> Caller {
    Caller::Remote {
        subject: Subject {
            common_names: vec![common_name.to_owned()],
            ..Subject::default()
        },
        address: SocketAddr::from(([192, 0, 2, 1], 1)),
    }
}

/// A role in some namespaces, or in all, for the holder of a certificate.
pub(crate) fn grant(
    role: proto_node::node::Role,
    namespaces: Option<&[&str]>,
    common_name: &str,
) -> Grant {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Grant {
        role,
        namespaces: namespaces.map(owned),
        common_names: vec![common_name.to_owned()],
        ..Grant::default()
    }
}

/// The client's end of a connection.
struct Client {
    stream: DuplexStream,
    deaf: Arc<AtomicBool>,
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.deaf.load(Ordering::Relaxed) {
            return Poll::Pending;
        }
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Connects once.
struct Once(Option<Client>);

impl tower_service::Service<Uri> for Once {
    type Response = TokioIo<Client>;
    type Error = io::Error;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = self.0.take().map(TokioIo::new);
        std::future::ready(stream.ok_or_else(|| io::ErrorKind::NotConnected.into()))
    }
}

/// A client stream of gRPC that says nothing and stays open.
pub(crate) struct Silent<T>(std::marker::PhantomData<fn() -> T>);

impl<T> Silent<T> {
    pub(crate) fn new() -> Self {
        Self(std::marker::PhantomData)
    }
}

impl<T> tokio_stream::Stream for Silent<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<T>> {
        Poll::Pending
    }
}

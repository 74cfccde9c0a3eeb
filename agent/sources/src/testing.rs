//! A registry that has one VMI's worth of everything, and the real server in front of it, for tests.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use hyper_util::rt::TokioIo;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::{
    DedicatedCpus, GetNodeInfoResponse, GuestUsage, LogsResponse, Maintenance, Object,
};
use tokio::io::DuplexStream;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tonic::codegen::http::Uri;
use tonic::transport::{Channel, Endpoint};

use crate::access::{Caller, Subject};
use crate::grpc::serve_on;
use crate::listen::Connection;
use crate::{
    Access, ApiError, Applied, Apply, Attach, Attached, Change, Delete, Deleted, Forward,
    Forwarded, Grant, Kind, Listed, Logs, LogsPieces, Maintained, ObjectRef, Policy, Registry,
    Served, Tell, Told, Upkeep, UpkeepWish,
};

/// What the server is asked to serve in tests.
#[derive(Clone)]
pub(crate) struct FakeRegistry(Arc<Inner>);

struct Inner {
    versions: watch::Sender<u64>,
    objects: Mutex<Vec<Object>>,
    /// Codes of calls that were answered.
    served: Mutex<Vec<String>>,
}

impl FakeRegistry {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Inner {
            versions: watch::Sender::new(1),
            objects: Mutex::default(),
            served: Mutex::default(),
        }))
    }

    /// Has VMIs of these namespaces, named after them.
    pub(crate) fn put(&self, manifests: &[String]) {
        let objects = manifests.iter().map(|text| text.parse().expect("a VMI"));
        self.0.objects.lock().expect("not poisoned").extend(objects);
    }

    pub(crate) fn served(&self) -> usize {
        self.0.served.lock().expect("not poisoned").len()
    }
}

fn nothing<T>() -> Result<T, ApiError> {
    Err(ApiError::Unavailable(String::from("not in this test")))
}

impl Registry for FakeRegistry {
    async fn apply(&self, _: Apply) -> Result<Applied, ApiError> {
        nothing()
    }

    async fn delete(&self, _: Delete) -> Result<Deleted, ApiError> {
        nothing()
    }

    async fn tell(&self, _: Tell) -> Result<Told, ApiError> {
        nothing()
    }

    fn get(&self, _: &ObjectRef) -> Result<Object, ApiError> {
        nothing()
    }

    fn list(&self, _: Kind) -> Result<Listed, ApiError> {
        Ok(Listed {
            version: *self.0.versions.borrow(),
            items: self.0.objects.lock().expect("not poisoned").clone(),
        })
    }

    fn changes_after(&self, _: u64, _: usize) -> Result<Vec<Change>, ApiError> {
        Ok(Vec::new())
    }

    fn versions(&self) -> watch::Receiver<u64> {
        self.0.versions.subscribe()
    }

    async fn attach(&self, _: Attach) -> Result<Attached, ApiError> {
        nothing()
    }

    /// Without end, in pieces as large as the agent's.
    async fn logs(&self, _: Logs) -> Result<LogsPieces, ApiError> {
        let (out, pieces) = mpsc::channel(1);
        tokio::spawn(async move {
            let piece = LogsResponse {
                data: vec![b'x'; 64 << 10],
                ..LogsResponse::default()
            };
            while out.send(Ok(piece.clone())).await.is_ok() {}
        });
        Ok(pieces)
    }

    async fn forward(&self, _: Forward) -> Result<Forwarded, ApiError> {
        nothing()
    }

    async fn usage(&self) -> Result<Vec<GuestUsage>, ApiError> {
        nothing()
    }

    fn is_unschedulable(&self) -> bool {
        false
    }

    fn served(&self, call: &Served) {
        let mut served = self.0.served.lock().expect("not poisoned");
        served.push(call.code.clone());
    }

    fn node_info(&self) -> Result<GetNodeInfoResponse, ApiError> {
        let holder = |namespace: &str| DedicatedCpus {
            namespace: namespace.to_owned(),
            name: format!("{namespace}-guest"),
            ..DedicatedCpus::default()
        };
        Ok(GetNodeInfoResponse {
            vmis: 2,
            dedicated_cpus: vec![holder("a"), holder("b")],
            ..GetNodeInfoResponse::default()
        })
    }

    async fn warn(&self, _: &ObjectRef, _: &str, _: &str) {}
}

impl Maintained for FakeRegistry {
    fn maintenance(&self) -> Result<Maintenance, ApiError> {
        nothing()
    }

    fn maintain(&self, wish: UpkeepWish) -> Result<(Maintenance, bool), ApiError> {
        assert_ne!(wish.what, Upkeep::Cordon, "not in this test");
        nothing()
    }
}

/// A server with grants, to which callers connect in memory.
pub(crate) struct Server {
    pub(crate) access: Access,
    connections: mpsc::Sender<std::io::Result<Connection>>,
}

impl Server {
    /// Serves until the test ends.
    pub(crate) fn start(registry: FakeRegistry, grants: Vec<Grant>) -> Self {
        let access = Access::new(policy(grants));
        let (connections, incoming) = mpsc::channel(16);
        let incoming = ReceiverStream::new(incoming);
        tokio::spawn(serve_on(
            registry,
            access.clone(),
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
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        let connection = Connection::new(theirs, caller(common_name), None);
        let sent = self.connections.send(Ok(connection)).await;
        assert!(sent.is_ok(), "the server has ended");
        let endpoint = Endpoint::from_static("http://agent.test");
        let channel = endpoint.connect_with_connector(Once(Some(ours))).await;
        NodeServiceClient::new(channel.expect("connects"))
    }
}

pub(crate) fn policy(grants: Vec<Grant>) -> Policy {
    Policy {
        grants,
        origin: String::from("/etc/kvmlet/kvmlet.toml"),
    }
}

pub(crate) fn caller(common_name: &str) -> Caller {
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

/// Connects once.
struct Once(Option<DuplexStream>);

impl tower_service::Service<Uri> for Once {
    type Response = TokioIo<DuplexStream>;
    type Error = std::io::Error;
    type Future = std::future::Ready<Result<Self::Response, Self::Error>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = self.0.take().map(TokioIo::new);
        std::future::ready(stream.ok_or_else(|| std::io::ErrorKind::NotConnected.into()))
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

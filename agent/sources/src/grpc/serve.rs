//! Serving: what is served, to whom, and within which bounds.

use std::future::Future;
use std::io;
use std::time::Duration;

use proto_node::node::image_service_server::ImageServiceServer;
use proto_node::node::maintenance_service_server::MaintenanceServiceServer;
use proto_node::node::node_service_server::NodeServiceServer;
use proto_node::node::object_service_server::ObjectServiceServer;
use proto_node::node::virtual_machine_service_server::VirtualMachineServiceServer;
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::NamedService;
use tonic::transport::Server;

use super::counted::Counted;
use super::node_service::Service;
use super::services::Services;
use crate::access::{Access, AccessLayer};
use crate::budget::{Budgets, CallLimits, MAX_REQUEST_BYTES};
use crate::client_log::ClientLog;
use crate::forward::Forwards;
use crate::guest_streams::GuestStreams;
use crate::images::{ImageCalls, ImageRegistry};
use crate::listen::{Connection, Socket, TlsListener, incoming};
use crate::machines::{MachineCalls, MachineRegistry};
use crate::maintenance::{Maintained, MaintenanceCalls};
use crate::node_view::NodeView;
use crate::objects::ObjectRegistry;
use crate::objects::calls::ObjectCalls;
use crate::registry::GuestRegistry;

/// The largest message that is sent: a list of a few thousand VMIs.
pub const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Requests of one connection that are worked on at a time.
const MAX_CONCURRENT_PER_CONNECTION: usize = 64;

/// Streams of one connection, those that only wait among them.
const MAX_STREAMS_PER_CONNECTION: u32 = 256;

/// Metadata of one request.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// How long open streams may take to end once the agent shuts down.
const DRAIN: Duration = Duration::from_secs(2);

/// Why the service ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket was used up by an earlier call.
    #[error("the socket is served already")]
    Taken,
    /// The description of the service cannot be read.
    #[error("the descriptors of the service cannot be read")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the gRPC transport failed")]
    Transport(#[source] tonic::transport::Error),
}

/// Where clients come in, and what they may do then.
#[derive(Debug)]
pub struct Listeners {
    /// For processes of the node.
    pub socket: Socket,
    /// For clients with certificates, if for any.
    pub tls: Option<TlsListener>,
    /// Grants that requests are checked against.
    pub access: Access,
    /// How much of it at a time.
    pub limits: CallLimits,
}

/// Serves until `shutdown` is done.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve<O, G, N>(
    services: Services<O, G, N>,
    mut listeners: Listeners,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError>
where
    O: GuestRegistry + ObjectRegistry + MachineRegistry,
    G: GuestStreams,
    N: NodeView + Maintained + ImageRegistry,
{
    let listener = listeners.socket.listener.take().ok_or(ServeError::Taken)?;
    let connections = incoming(listener, listeners.tls);
    serve_on(
        services,
        (listeners.access, listeners.limits),
        connections,
        shutdown,
    )
    .await
}

/// Serves the callers of `connections` until `shutdown` is done.
pub(crate) async fn serve_on<O, G, N>(
    services: Services<O, G, N>,
    (access, limits): (Access, CallLimits),
    connections: ReceiverStream<io::Result<Connection>>,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError>
where
    O: GuestRegistry + ObjectRegistry + MachineRegistry,
    G: GuestStreams,
    N: NodeView + Maintained + ImageRegistry,
{
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto_node::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The descriptors hold services, too, of which the node is a client.
        .with_service_name(<NodeServiceServer<Counted<O, G, N>> as NamedService>::NAME)
        .with_service_name(<MaintenanceServiceServer<MaintenanceCalls<N>> as NamedService>::NAME)
        .with_service_name(<ObjectServiceServer<ObjectCalls<O, N>> as NamedService>::NAME)
        .with_service_name(<VirtualMachineServiceServer<MachineCalls<O, N>> as NamedService>::NAME)
        .with_service_name(<ImageServiceServer<ImageCalls<N>> as NamedService>::NAME)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .build_v1()
        .map_err(ServeError::Reflection)?;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_serving::<NodeServiceServer<Counted<O, G, N>>>()
        .await;
    let Services { objects, node, .. } = &services;
    let judge = AccessLayer {
        access,
        node: node.clone(),
        budgets: Budgets::new(limits),
        refusals: ClientLog::default(),
    };
    let maintenance = MaintenanceServiceServer::new(MaintenanceCalls(node.clone()));
    let machines =
        VirtualMachineServiceServer::new(MachineCalls::new(objects.clone(), node.clone()))
            .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let images = ImageServiceServer::new(ImageCalls(node.clone()))
        .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let objects = ObjectServiceServer::new(ObjectCalls::new(objects.clone(), node.clone()))
        .max_decoding_message_size(MAX_REQUEST_BYTES)
        .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let service = NodeServiceServer::new(Counted(Service {
        services,
        forwards: Forwards::default(),
    }))
    .max_decoding_message_size(MAX_REQUEST_BYTES)
    .max_encoding_message_size(MAX_RESPONSE_BYTES);
    let (begin_drain, drain) = tokio::sync::oneshot::channel::<()>();
    let server = Server::builder()
        .concurrency_limit_per_connection(MAX_CONCURRENT_PER_CONNECTION)
        .max_concurrent_streams(MAX_STREAMS_PER_CONNECTION)
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .http2_keepalive_interval(Some(Duration::from_secs(60)))
        .layer(judge)
        .add_service(reflection)
        .add_service(health)
        .add_service(service)
        .add_service(maintenance)
        .add_service(objects)
        .add_service(machines)
        .add_service(images)
        .serve_with_incoming_shutdown(connections, async {
            drop(drain.await);
        });
    tokio::pin!(server);
    tokio::select! {
        ended = &mut server => return ended.map_err(ServeError::Transport),
        () = shutdown => {}
    }
    // Watches and consoles do not end by themselves.
    drop(begin_drain);
    match tokio::time::timeout(DRAIN, server).await {
        Ok(ended) => ended.map_err(ServeError::Transport),
        Err(_) => Ok(()),
    }
}

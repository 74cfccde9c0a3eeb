//! The service.

mod counted;
mod pages;
mod traced;

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use agent_domain::Owner;
use proto_node::node::maintenance_service_server::MaintenanceServiceServer;
use proto_node::node::node_service_server::{NodeService, NodeServiceServer};
use proto_node::node::{
    ApplyRequest, ApplyResponse, ConsoleRequest, ConsoleResponse, DeleteRequest, DeleteResponse,
    GetNodeInfoRequest, GetNodeInfoResponse, GetRequest, GetResponse, GetUsageRequest,
    GetUsageResponse, ListRequest, ListResponse, LogsRequest, LogsResponse, Object, StopRequest,
    VerbRequest, VerbResponse, WatchRequest, WatchResponse, apply_response, object,
};
use proto_node::vmi::VirtualMachineInstance;
use tokio::sync::mpsc;
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use self::counted::Counted;
use self::traced::caller_trace;
use crate::access::{AccessLayer, Permit};
use crate::listen::incoming;
use crate::maintenance::MaintenanceCalls;
use crate::watch::{Filter, Watch, parse_kind};
use crate::{
    Access, ApiError, Apply, Delete, Kind, Logs, Maintained, Registry, Socket, Tell, TlsDoor, Verb,
    console,
};

/// The largest message that is read; a manifest of the largest size fits.
const MAX_REQUEST_BYTES: usize = 4 << 20;

/// The largest message that is sent: a list of a few thousand VMIs.
const MAX_RESPONSE_BYTES: usize = 64 << 20;

/// Requests of one connection that are worked on at a time.
const MAX_CONCURRENT_PER_CONNECTION: usize = 64;

/// Streams of one connection, those that only wait among them.
const MAX_STREAMS_PER_CONNECTION: u32 = 256;

/// Metadata of one request.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// Responses of one stream that wait for a slow client.
const STREAM_BACKLOG: usize = 16;

/// How long open streams may take to end once the agent shuts down.
const DRAIN: Duration = Duration::from_secs(2);

/// Why the service ended.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The socket was used up by an earlier call.
    #[error("the socket is served already")]
    Taken,
    /// The description of the service can not be read.
    #[error("the descriptors of the service can not be read")]
    Reflection(#[source] tonic_reflection::server::Error),
    /// The transport failed.
    #[error("the gRPC transport failed")]
    Transport(#[source] tonic::transport::Error),
}

/// Where clients come in, and what they may do then.
#[derive(Debug)]
pub struct Doors {
    /// For processes of the node.
    pub socket: Socket,
    /// For clients with certificates, if for any.
    pub tls: Option<TlsDoor>,
    /// Who may do what.
    pub access: Access,
}

/// Serves until `shutdown` is done.
///
/// # Errors
/// See [`ServeError`].
pub async fn serve<R: Maintained>(
    registry: R,
    mut doors: Doors,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), ServeError> {
    let listener = doors.socket.listener.take().ok_or(ServeError::Taken)?;
    let reflection = tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(proto_node::DESCRIPTORS)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
        // The descriptors hold services, too, of which the node is a client.
        .with_service_name(<NodeServiceServer<Counted<R>> as NamedService>::NAME)
        .with_service_name(<MaintenanceServiceServer<MaintenanceCalls<R>> as NamedService>::NAME)
        .with_service_name("grpc.health.v1.Health")
        .with_service_name("grpc.reflection.v1.ServerReflection")
        .build_v1()
        .map_err(ServeError::Reflection)?;
    let (reporter, health) = tonic_health::server::health_reporter();
    reporter
        .set_serving::<NodeServiceServer<Counted<R>>>()
        .await;
    let judge = AccessLayer {
        access: doors.access,
        registry: registry.clone(),
    };
    let maintenance = MaintenanceServiceServer::new(MaintenanceCalls(registry.clone()));
    let service = NodeServiceServer::new(Counted(Service { registry }))
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
        .serve_with_incoming_shutdown(incoming(listener, doors.tls), async {
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

/// The service.
#[derive(Clone)]
struct Service<R> {
    registry: R,
}

impl<R: Registry> Service<R> {
    async fn tell(
        &self,
        verb: Verb,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let kind = Kind::VirtualMachineInstance;
        let tell = Tell {
            target: permit.target(kind, request.namespace, request.name)?,
            uid: request.uid,
            verb,
            idempotency_key: request.idempotency_key,
            dry_run: request.dry_run,
            client: permit.caller,
        };
        let told = self.registry.tell(tell).await?;
        Ok(Response::new(VerbResponse {
            object: Some(told.object),
            told_before: told.before,
        }))
    }
}

type ResponseStream<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl<R: Registry> NodeService for Service<R> {
    type WatchStream = ResponseStream<WatchResponse>;
    type ConsoleStream = ResponseStream<ConsoleResponse>;
    type LogsStream = ResponseStream<LogsResponse>;

    async fn apply(
        &self,
        request: Request<ApplyRequest>,
    ) -> Result<Response<ApplyResponse>, Status> {
        let permit = Permit::of(&request)?;
        let trace = caller_trace(request.metadata());
        let request = request.into_inner();
        let object = match request.object.and_then(|object| object.kind) {
            Some(object::Kind::VirtualMachineInstance(vmi)) => vmi,
            Some(object::Kind::Event(_)) => {
                return Err(ApiError::BadRequest(String::from("events can not be applied")).into());
            }
            None => return Err(ApiError::BadRequest(String::from("object is missing")).into()),
        };
        permit.check(namespace_of(&object))?;
        let apply = Apply {
            object,
            idempotency_key: request.idempotency_key,
            dry_run: request.dry_run,
            create_only: request.create_only,
            by: Owner::GrpcCaller,
            trace,
        };
        let applied = self.registry.apply(apply).await?;
        let result = match (applied.created, applied.configured) {
            (true, _) => apply_response::Result::Created,
            (false, true) => apply_response::Result::Configured,
            (false, false) => apply_response::Result::Unchanged,
        };
        Ok(Response::new(ApplyResponse {
            object: Some(Object::from(applied.object)),
            result: result.into(),
            warnings: applied.warnings,
        }))
    }

    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let kind = parse_kind(&request.kind)?;
        let target = permit.target(kind, request.namespace, request.name)?;
        let object = self.registry.get(&target)?;
        Ok(Response::new(GetResponse {
            object: Some(object),
        }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let filter = Filter::parse(
            &request.kind,
            request.namespace,
            &request.label_selector,
            &request.field_selector,
            &permit,
        )?;
        let after = pages::Token::parse(&request.r#continue)?;
        let listed = self.registry.list(filter.kind)?;
        let version = listed.version;
        let items = listed.items.into_iter();
        let matching = items.filter(|object| filter.matches(object));
        Ok(Response::new(pages::page(
            matching,
            request.limit,
            after,
            version,
        )))
    }

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let filter = Filter::parse(
            &request.kind,
            request.namespace,
            &request.label_selector,
            &request.field_selector,
            &permit,
        )?;
        let (out, responses) = mpsc::channel(STREAM_BACKLOG);
        let watch = Watch::new(self.registry.clone(), filter, out);
        tokio::spawn(watch.run(request.resource_version));
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn delete(
        &self,
        request: Request<DeleteRequest>,
    ) -> Result<Response<DeleteResponse>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let kind = parse_kind(&request.kind)?;
        let delete = Delete {
            target: permit.target(kind, request.namespace, request.name)?,
            grace_period_seconds: grace_period(request.grace_period_seconds)?,
            uid: request.uid,
            resource_version: request.resource_version,
            by: Owner::GrpcCaller,
        };
        let deleted = self.registry.delete(delete).await?;
        Ok(Response::new(DeleteResponse {
            object: Some(deleted.object),
            gone: deleted.gone,
        }))
    }

    async fn pause(&self, request: Request<VerbRequest>) -> Result<Response<VerbResponse>, Status> {
        self.tell(Verb::Pause, request).await
    }

    async fn unpause(
        &self,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        self.tell(Verb::Unpause, request).await
    }

    async fn soft_reboot(
        &self,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        self.tell(Verb::SoftReboot, request).await
    }

    async fn reset(&self, request: Request<VerbRequest>) -> Result<Response<VerbResponse>, Status> {
        self.tell(Verb::Reset, request).await
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<VerbResponse>, Status> {
        let seconds = grace_period(request.get_ref().grace_period_seconds)?;
        let verb = Verb::Stop {
            grace_period_seconds: seconds,
        };
        let request = request.map(|stop| stop.guest.unwrap_or_default());
        self.tell(verb, request).await
    }

    async fn console(
        &self,
        request: Request<Streaming<ConsoleRequest>>,
    ) -> Result<Response<Self::ConsoleStream>, Status> {
        let permit = Permit::of(&request)?;
        let mut requests = request.into_inner();
        let attached = console::attach(&self.registry, &mut requests, &permit).await?;
        let (out, responses) = mpsc::channel(STREAM_BACKLOG);
        tokio::spawn(console::pump(
            self.registry.clone(),
            attached,
            requests,
            out,
        ));
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
    }

    async fn logs(
        &self,
        request: Request<LogsRequest>,
    ) -> Result<Response<Self::LogsStream>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let kind = Kind::VirtualMachineInstance;
        let logs = Logs {
            target: permit.target(kind, request.namespace, request.name)?,
            uid: request.uid,
            previous: request.previous,
            follow: request.follow,
            tail_bytes: request.tail_bytes,
            since_offset: request.since_offset,
        };
        let pieces = ReceiverStream::new(self.registry.logs(logs).await?);
        let pieces = pieces.map(|piece| piece.map_err(Status::from));
        Ok(Response::new(Box::pin(pieces)))
    }

    async fn get_usage(
        &self,
        request: Request<GetUsageRequest>,
    ) -> Result<Response<GetUsageResponse>, Status> {
        let permit = Permit::of(&request)?;
        let wanted = request.into_inner();
        if !wanted.namespace.is_empty() {
            permit.check(&wanted.namespace)?;
        }
        let mut items = self.registry.usage().await?;
        items.retain(|item| {
            permit.covers(&item.namespace)
                && (wanted.namespace.is_empty() || item.namespace == wanted.namespace)
                && (wanted.name.is_empty() || item.name == wanted.name)
        });
        Ok(Response::new(GetUsageResponse { items }))
    }

    async fn get_node_info(
        &self,
        _request: Request<GetNodeInfoRequest>,
    ) -> Result<Response<GetNodeInfoResponse>, Status> {
        Ok(Response::new(self.registry.node_info().await?))
    }
}

/// The namespace that a manifest means.
fn namespace_of(object: &VirtualMachineInstance) -> &str {
    let metadata = object.metadata.as_ref();
    let namespace = metadata.map_or("", |metadata| metadata.namespace.as_str());
    if namespace.is_empty() {
        "default"
    } else {
        namespace
    }
}

fn grace_period(seconds: Option<i64>) -> Result<Option<i64>, ApiError> {
    if seconds.is_some_and(|seconds| seconds < 0) {
        let text = String::from("grace_period_seconds must not be negative");
        return Err(ApiError::BadRequest(text));
    }
    Ok(seconds)
}

//! The calls of `NodeService`.

use std::pin::Pin;
use std::sync::Arc;

use agent_domain::ObjectSource;
use agent_objects::Kinds;
use prost::Message;
use proto_node::node::node_service_server::NodeService;
use proto_node::node::{
    ApplyRequest, ApplyResponse, ConsoleRequest, ConsoleResponse, DeleteRequest, DeleteResponse,
    GetGuestInfoRequest, GetGuestInfoResponse, GetNodeInfoRequest, GetNodeInfoResponse, GetRequest,
    GetResponse, GetUsageRequest, GetUsageResponse, ListRequest, ListResponse, LogsRequest,
    LogsResponse, Object, PortForwardRequest, PortForwardResponse, StopRequest, VerbRequest,
    VerbResponse, WatchRequest, WatchResponse, apply_response, object,
};
use proto_node::vmi::VirtualMachineInstance;
use tokio::sync::mpsc;
use tokio_stream::StreamExt as _;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::services::Services;
use super::traced::caller_trace;
use crate::access::Permit;
use crate::budget::Call;
use crate::error::ApiError;
use crate::forward::{self, Forwards};
use crate::guest_streams::{GuestStreams, GuestVerb, Logs, Verb};
use crate::node_view::NodeView;
use crate::objects::calls::manager_of;
use crate::registry::{Apply, Delete, GuestRegistry, Kind};
use crate::watch::feed::parse_kind;
use crate::watch::{Filter, NodeFeed, Watch};
use crate::{console, pages};

/// Responses of one stream that wait for a slow client.
const STREAM_BACKLOG: usize = 2;

/// kvmlet.node.v1.NodeService over VMIs, the way to their guests, and the node.
#[derive(Clone)]
pub(super) struct Service<O, G, N> {
    pub(super) services: Services<O, G, N>,
    pub(super) forwards: Forwards,
}

impl<O, G: GuestStreams, N> Service<O, G, N> {
    async fn run_verb(
        &self,
        verb: Verb,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let kind = Kind::VirtualMachineInstance;
        let verb = GuestVerb {
            target: permit.target(kind, request.namespace, request.name)?,
            uid: request.uid,
            verb,
            idempotency_key: request.idempotency_key,
            dry_run: request.dry_run,
            client: permit.caller,
        };
        let done = self.services.guests.run_verb(verb).await?;
        Ok(Response::new(VerbResponse {
            object: Some(done.object),
            told_before: done.before,
        }))
    }
}

/// What a list or a watch is to show.
fn filter(
    kind: &str,
    namespace: String,
    selectors: (&str, &str),
    permit: &Permit,
) -> Result<Filter, ApiError> {
    let kinds = Kinds::this_release();
    let entry = kinds.named(parse_kind(kind)?.as_str());
    let entry = entry.map_err(|error| ApiError::BadRequest(error.to_string()))?;
    Filter::parse((kinds, entry), namespace, selectors, permit)
}

pub(super) type ResponseStream<T> =
    Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl<O: GuestRegistry, G: GuestStreams, N: NodeView> NodeService for Service<O, G, N> {
    type WatchStream = ResponseStream<WatchResponse>;
    type ConsoleStream = ResponseStream<ConsoleResponse>;
    type LogsStream = ResponseStream<LogsResponse>;
    type PortForwardStream = ResponseStream<PortForwardResponse>;

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
                return Err(ApiError::BadRequest(String::from("events cannot be applied")).into());
            }
            None => return Err(ApiError::BadRequest(String::from("object is missing")).into()),
        };
        permit.check(namespace_of(&object))?;
        let apply = Apply {
            object,
            idempotency_key: request.idempotency_key,
            dry_run: request.dry_run,
            create_only: request.create_only,
            by: ObjectSource::GrpcCaller,
            manager: manager_of(&request.field_manager)?,
            trace,
        };
        let applied = self.services.objects.apply(apply).await?;
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
        let object = self.services.objects.get(&target)?;
        Ok(Response::new(GetResponse {
            object: Some(object),
        }))
    }

    async fn list(&self, request: Request<ListRequest>) -> Result<Response<ListResponse>, Status> {
        let permit = Permit::of(&request)?;
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let selectors = (
            request.label_selector.as_str(),
            request.field_selector.as_str(),
        );
        let filter = filter(&request.kind, request.namespace, selectors, &permit)?;
        let after = pages::Token::parse(&request.r#continue)?;
        call.check_budget()?;
        let listed = self.services.objects.list(parse_kind(filter.kind.kind)?)?;
        let version = listed.version;
        let items = listed.items.into_iter();
        let matching = items.filter(|object| filter.matches(object));
        let (metadata, items) = pages::page(matching, request.limit, after, version);
        let page = ListResponse {
            metadata: Some(metadata),
            items,
        };
        // It is kept as a whole until the client has read it.
        let charge = call.charge(page.encoded_len());
        let mut response = Response::new(page);
        response.extensions_mut().insert(Arc::new(charge));
        Ok(response)
    }

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let permit = Permit::of(&request)?;
        let call = Call::of(&request)?;
        let request = request.into_inner();
        let selectors = (
            request.label_selector.as_str(),
            request.field_selector.as_str(),
        );
        let filter = filter(&request.kind, request.namespace, selectors, &permit)?;
        call.check_budget()?;
        let (out, responses) = mpsc::channel(STREAM_BACKLOG);
        let watch = Watch::new(NodeFeed(self.services.objects.clone()), filter, call, out);
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
            by: ObjectSource::GrpcCaller,
            propagation: None,
            dry_run: false,
        };
        let deleted = self.services.objects.delete(delete).await?;
        Ok(Response::new(DeleteResponse {
            object: Some(deleted.object),
            gone: deleted.gone,
        }))
    }

    async fn pause(&self, request: Request<VerbRequest>) -> Result<Response<VerbResponse>, Status> {
        self.run_verb(Verb::Pause, request).await
    }

    async fn unpause(
        &self,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        self.run_verb(Verb::Unpause, request).await
    }

    async fn soft_reboot(
        &self,
        request: Request<VerbRequest>,
    ) -> Result<Response<VerbResponse>, Status> {
        self.run_verb(Verb::SoftReboot, request).await
    }

    async fn reset(&self, request: Request<VerbRequest>) -> Result<Response<VerbResponse>, Status> {
        self.run_verb(Verb::Reset, request).await
    }

    async fn stop(&self, request: Request<StopRequest>) -> Result<Response<VerbResponse>, Status> {
        let seconds = grace_period(request.get_ref().grace_period_seconds)?;
        let verb = Verb::Stop {
            grace_period_seconds: seconds,
        };
        let request = request.map(|stop| stop.guest.unwrap_or_default());
        self.run_verb(verb, request).await
    }

    async fn console(
        &self,
        request: Request<Streaming<ConsoleRequest>>,
    ) -> Result<Response<Self::ConsoleStream>, Status> {
        let permit = Permit::of(&request)?;
        let mut requests = request.into_inner();
        let attached = console::attach(&self.services.guests, &mut requests, &permit).await?;
        let (out, responses) = mpsc::channel(STREAM_BACKLOG);
        tokio::spawn(console::pump(
            self.services.objects.clone(),
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
        let pieces = ReceiverStream::new(self.services.guests.logs(logs).await?);
        let pieces = pieces.map(|piece| piece.map_err(Status::from));
        Ok(Response::new(Box::pin(pieces)))
    }

    async fn port_forward(
        &self,
        request: Request<Streaming<PortForwardRequest>>,
    ) -> Result<Response<Self::PortForwardStream>, Status> {
        let permit = Permit::of(&request)?;
        let responses = forward::open(
            &self.services.guests,
            &self.forwards,
            &permit,
            request.into_inner(),
        )
        .await?;
        Ok(Response::new(Box::pin(ReceiverStream::new(responses))))
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
        let mut items = self.services.node.usage().await?;
        items.retain(|item| {
            permit.covers(&item.namespace)
                && (wanted.namespace.is_empty() || item.namespace == wanted.namespace)
                && (wanted.name.is_empty() || item.name == wanted.name)
        });
        Ok(Response::new(GetUsageResponse { items }))
    }

    async fn get_guest_info(
        &self,
        request: Request<GetGuestInfoRequest>,
    ) -> Result<Response<GetGuestInfoResponse>, Status> {
        let permit = Permit::of(&request)?;
        let request = request.into_inner();
        let kind = Kind::VirtualMachineInstance;
        let target = permit.target(kind, request.namespace, request.name)?;
        let info = self
            .services
            .guests
            .guest_info(&target, &request.uid)
            .await?;
        Ok(Response::new(GetGuestInfoResponse { info: Some(info) }))
    }

    async fn get_node_info(
        &self,
        request: Request<GetNodeInfoRequest>,
    ) -> Result<Response<GetNodeInfoResponse>, Status> {
        let permit = Permit::of(&request)?;
        let mut info = self.services.node.node_info()?;
        // The totals count every VMI; only those that the caller may see are named.
        info.dedicated_cpus
            .retain(|holder| permit.covers(&holder.namespace));
        Ok(Response::new(info))
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

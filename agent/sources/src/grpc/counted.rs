//! Every call is counted: how it ended, and how long that took.

use std::future::Future;
use std::time::Instant;

use proto_node::node::node_service_server::NodeService;
use proto_node::node::{
    ApplyRequest, ApplyResponse, ConsoleRequest, DeleteRequest, DeleteResponse,
    GetGuestInfoRequest, GetGuestInfoResponse, GetNodeInfoRequest, GetNodeInfoResponse, GetRequest,
    GetResponse, GetUsageRequest, GetUsageResponse, ListRequest, ListResponse, LogsRequest,
    PortForwardRequest, StopRequest, VerbRequest, VerbResponse, WatchRequest,
};
use tonic::{Code, Request, Response, Status, Streaming};

use super::node_service::Service;
use crate::guest_streams::GuestStreams;
use crate::node_view::{AnsweredCall, NodeView};
use crate::registry::GuestRegistry;

/// The service; the node counts every call, a stream by how it began.
#[derive(Clone)]
pub(super) struct Counted<O, G, N>(pub(super) Service<O, G, N>);

impl<O, G, N: NodeView> Counted<O, G, N> {
    async fn count<T>(
        &self,
        method: &'static str,
        work: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Status> {
        let begun = Instant::now();
        let answer = work.await;
        let code = answer.as_ref().err().map_or(Code::Ok, Status::code);
        self.0.services.node.count_call(&AnsweredCall {
            method,
            // As gRPC libraries for Prometheus write it.
            code: match code {
                Code::Ok => String::from("OK"),
                code => format!("{code:?}"),
            },
            took: begun.elapsed(),
        });
        answer
    }
}

type Answer<T> = Result<Response<T>, Status>;

#[tonic::async_trait]
impl<O: GuestRegistry, G: GuestStreams, N: NodeView> NodeService for Counted<O, G, N> {
    type WatchStream = <Service<O, G, N> as NodeService>::WatchStream;
    type ConsoleStream = <Service<O, G, N> as NodeService>::ConsoleStream;
    type LogsStream = <Service<O, G, N> as NodeService>::LogsStream;
    type PortForwardStream = <Service<O, G, N> as NodeService>::PortForwardStream;

    async fn apply(&self, request: Request<ApplyRequest>) -> Answer<ApplyResponse> {
        self.count("Apply", self.0.apply(request)).await
    }

    async fn get(&self, request: Request<GetRequest>) -> Answer<GetResponse> {
        self.count("Get", self.0.get(request)).await
    }

    async fn list(&self, request: Request<ListRequest>) -> Answer<ListResponse> {
        self.count("List", self.0.list(request)).await
    }

    async fn watch(&self, request: Request<WatchRequest>) -> Answer<Self::WatchStream> {
        self.count("Watch", self.0.watch(request)).await
    }

    async fn delete(&self, request: Request<DeleteRequest>) -> Answer<DeleteResponse> {
        self.count("Delete", self.0.delete(request)).await
    }

    async fn pause(&self, request: Request<VerbRequest>) -> Answer<VerbResponse> {
        self.count("Pause", self.0.pause(request)).await
    }

    async fn unpause(&self, request: Request<VerbRequest>) -> Answer<VerbResponse> {
        self.count("Unpause", self.0.unpause(request)).await
    }

    async fn soft_reboot(&self, request: Request<VerbRequest>) -> Answer<VerbResponse> {
        self.count("SoftReboot", self.0.soft_reboot(request)).await
    }

    async fn reset(&self, request: Request<VerbRequest>) -> Answer<VerbResponse> {
        self.count("Reset", self.0.reset(request)).await
    }

    async fn stop(&self, request: Request<StopRequest>) -> Answer<VerbResponse> {
        self.count("Stop", self.0.stop(request)).await
    }

    async fn console(
        &self,
        request: Request<Streaming<ConsoleRequest>>,
    ) -> Answer<Self::ConsoleStream> {
        self.count("Console", self.0.console(request)).await
    }

    async fn logs(&self, request: Request<LogsRequest>) -> Answer<Self::LogsStream> {
        self.count("Logs", self.0.logs(request)).await
    }

    async fn port_forward(
        &self,
        request: Request<Streaming<PortForwardRequest>>,
    ) -> Answer<Self::PortForwardStream> {
        self.count("PortForward", self.0.port_forward(request))
            .await
    }

    async fn get_usage(&self, request: Request<GetUsageRequest>) -> Answer<GetUsageResponse> {
        self.count("GetUsage", self.0.get_usage(request)).await
    }

    async fn get_guest_info(
        &self,
        request: Request<GetGuestInfoRequest>,
    ) -> Answer<GetGuestInfoResponse> {
        self.count("GetGuestInfo", self.0.get_guest_info(request))
            .await
    }

    async fn get_node_info(
        &self,
        request: Request<GetNodeInfoRequest>,
    ) -> Answer<GetNodeInfoResponse> {
        self.count("GetNodeInfo", self.0.get_node_info(request))
            .await
    }
}

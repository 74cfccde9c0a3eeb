//! The connection to the agent.

use std::path::{Path, PathBuf};

use proto_node::meta::ListMeta;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::{
    ApplyRequest, ApplyResponse, ConsoleRequest, ConsoleResponse, DeleteRequest, DeleteResponse,
    GetNodeInfoRequest, GetNodeInfoResponse, GetRequest, GetUsageRequest, GuestUsage, ListRequest,
    LogsRequest, LogsResponse, Object, StopRequest, VerbRequest, VerbResponse, WatchRequest,
    WatchResponse,
};
use tokio_stream::Stream;
use tonic::Streaming;
use tonic::transport::{Channel, Endpoint};

use crate::failure::Failure;

/// Lists may be large: a thousand VMIs with their status.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// A connection to one agent. It is made when first used and made again when it was lost.
#[derive(Clone)]
pub struct Client {
    socket: PathBuf,
    service: NodeServiceClient<Channel>,
}

impl Client {
    /// Prepares a connection.
    pub fn new(socket: &Path) -> Result<Self, Failure> {
        let absolute = std::path::absolute(socket)
            .map_err(|error| Failure::Usage(format!("--socket {}: {error}", socket.display())))?;
        let endpoint = Endpoint::from_shared(format!("unix://{}", absolute.display()))
            .map_err(|error| Failure::Usage(format!("--socket {}: {error}", socket.display())))?;
        let service = NodeServiceClient::new(endpoint.connect_lazy())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            socket: absolute,
            service,
        })
    }

    /// The socket, for messages.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    pub async fn apply(&mut self, request: ApplyRequest) -> Result<ApplyResponse, tonic::Status> {
        Ok(self.service.apply(request).await?.into_inner())
    }

    pub async fn get(&mut self, request: GetRequest) -> Result<Object, tonic::Status> {
        let response = self.service.get(request).await?.into_inner();
        response
            .object
            .ok_or_else(|| tonic::Status::internal("the agent answered without an object"))
    }

    /// The object of a name, or why there is none, for people.
    pub async fn named(
        &mut self,
        kind: &str,
        namespace: &str,
        name: &str,
    ) -> Result<Object, Failure> {
        let request = GetRequest {
            kind: kind.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        self.get(request)
            .await
            .map_err(|status| Failure::of_status(&status, kind, name, &self.socket))
    }

    pub async fn list(
        &mut self,
        request: ListRequest,
    ) -> Result<(Vec<Object>, ListMeta), tonic::Status> {
        let response = self.service.list(request).await?.into_inner();
        Ok((response.items, response.metadata.unwrap_or_default()))
    }

    pub async fn watch(
        &mut self,
        request: WatchRequest,
    ) -> Result<Streaming<WatchResponse>, tonic::Status> {
        Ok(self.service.watch(request).await?.into_inner())
    }

    pub async fn delete(
        &mut self,
        request: DeleteRequest,
    ) -> Result<DeleteResponse, tonic::Status> {
        Ok(self.service.delete(request).await?.into_inner())
    }

    pub async fn pause(&mut self, request: VerbRequest) -> Result<VerbResponse, tonic::Status> {
        Ok(self.service.pause(request).await?.into_inner())
    }

    pub async fn unpause(&mut self, request: VerbRequest) -> Result<VerbResponse, tonic::Status> {
        Ok(self.service.unpause(request).await?.into_inner())
    }

    pub async fn soft_reboot(
        &mut self,
        request: VerbRequest,
    ) -> Result<VerbResponse, tonic::Status> {
        Ok(self.service.soft_reboot(request).await?.into_inner())
    }

    pub async fn reset(&mut self, request: VerbRequest) -> Result<VerbResponse, tonic::Status> {
        Ok(self.service.reset(request).await?.into_inner())
    }

    pub async fn stop(&mut self, request: StopRequest) -> Result<VerbResponse, tonic::Status> {
        Ok(self.service.stop(request).await?.into_inner())
    }

    pub async fn console(
        &mut self,
        requests: impl Stream<Item = ConsoleRequest> + Send + 'static,
    ) -> Result<Streaming<ConsoleResponse>, tonic::Status> {
        Ok(self.service.console(requests).await?.into_inner())
    }

    pub async fn logs(
        &mut self,
        request: LogsRequest,
    ) -> Result<Streaming<LogsResponse>, tonic::Status> {
        Ok(self.service.logs(request).await?.into_inner())
    }

    pub async fn usage(
        &mut self,
        request: GetUsageRequest,
    ) -> Result<Vec<GuestUsage>, tonic::Status> {
        Ok(self.service.get_usage(request).await?.into_inner().items)
    }

    pub async fn node_info(&mut self) -> Result<GetNodeInfoResponse, tonic::Status> {
        Ok(self
            .service
            .get_node_info(GetNodeInfoRequest {})
            .await?
            .into_inner())
    }
}

//! The connection to the agent.

use std::path::Path;
use std::time::Duration;

use proto_node::meta::ListMeta;
use proto_node::node::image_service_client::ImageServiceClient;
use proto_node::node::maintenance_service_client::MaintenanceServiceClient;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::virtual_machine_service_client::VirtualMachineServiceClient;
use proto_node::node::{
    ApplyRequest, ApplyResponse, ConsoleRequest, ConsoleResponse, DeleteRequest, DeleteResponse,
    GetGuestInfoRequest, GetGuestInfoResponse, GetNodeInfoRequest, GetNodeInfoResponse, GetRequest,
    GetUsageRequest, GuestUsage, ListKindsRequest, ListRequest, LogsRequest, LogsResponse, Object,
    ObjectKind, PortForwardRequest, PortForwardResponse, StopRequest, VerbRequest, VerbResponse,
    WatchRequest, WatchResponse,
};
use tokio_stream::Stream;
use tonic::Streaming;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use crate::agent_address::AgentAddress;
use crate::failure::{Failure, file_error};
use crate::scope::Scope;

/// Lists may be large: a thousand VMIs with their status.
const MAX_MESSAGE_BYTES: usize = 64 * 1024 * 1024;

/// How long another node may take to answer at all.
const CONNECT: Duration = Duration::from_secs(10);

/// Keep-alive of HTTP/2 to another node: interval of pings, and time limit of the answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(20));

/// A connection to one agent. It is made when first used and made again when it was lost.
#[derive(Clone)]
pub struct Client {
    address: AgentAddress,
    service: NodeServiceClient<Channel>,
    maintenance: MaintenanceServiceClient<Channel>,
    objects: ObjectServiceClient<Channel>,
    machines: VirtualMachineServiceClient<Channel>,
    images: ImageServiceClient<Channel>,
    /// The kinds that the agent serves, once they were asked for.
    kinds: Option<Vec<ObjectKind>>,
}

impl Client {
    /// Prepares a connection.
    pub fn new(scope: &Scope) -> Result<Self, Failure> {
        Self::at(&scope.address()?)
    }

    /// Prepares a connection to an agent whose address is known.
    pub fn at(address: &AgentAddress) -> Result<Self, Failure> {
        let address = address.clone();
        let channel = endpoint(&address)?.connect_lazy();
        let maintenance = MaintenanceServiceClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let objects =
            ObjectServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let machines = VirtualMachineServiceClient::new(channel.clone())
            .max_decoding_message_size(MAX_MESSAGE_BYTES);
        let images =
            ImageServiceClient::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
        let service = NodeServiceClient::new(channel).max_decoding_message_size(MAX_MESSAGE_BYTES);
        Ok(Self {
            address,
            service,
            maintenance,
            objects,
            machines,
            images,
            kinds: None,
        })
    }

    /// Where the agent is, for messages.
    pub fn address(&self) -> &AgentAddress {
        &self.address
    }

    /// The service of the node's maintenance.
    pub fn maintenance(&mut self) -> &mut MaintenanceServiceClient<Channel> {
        &mut self.maintenance
    }

    /// The service of objects of any kind.
    pub fn objects(&mut self) -> &mut ObjectServiceClient<Channel> {
        &mut self.objects
    }

    /// The kinds that the agent serves. It is asked once.
    pub async fn kinds(&mut self) -> Result<&[ObjectKind], tonic::Status> {
        let known = match self.kinds.take() {
            Some(kinds) => kinds,
            None => {
                let answer = self.objects.list_kinds(ListKindsRequest {}).await?;
                answer.into_inner().kinds
            }
        };
        Ok(self.kinds.insert(known))
    }

    /// The service of images.
    pub fn images(&mut self) -> &mut ImageServiceClient<Channel> {
        &mut self.images
    }

    /// The service of VirtualMachines.
    pub fn machines(&mut self) -> &mut VirtualMachineServiceClient<Channel> {
        &mut self.machines
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
            .map_err(|status| Failure::of_status(&status, kind, name, &self.address))
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

    pub async fn port_forward(
        &mut self,
        requests: impl Stream<Item = PortForwardRequest> + Send + 'static,
    ) -> Result<Streaming<PortForwardResponse>, tonic::Status> {
        Ok(self.service.port_forward(requests).await?.into_inner())
    }

    pub async fn usage(
        &mut self,
        request: GetUsageRequest,
    ) -> Result<Vec<GuestUsage>, tonic::Status> {
        Ok(self.service.get_usage(request).await?.into_inner().items)
    }

    /// What the agent in a guest says of it.
    pub async fn guest_info(
        &mut self,
        request: GetGuestInfoRequest,
    ) -> Result<GetGuestInfoResponse, tonic::Status> {
        Ok(self.service.get_guest_info(request).await?.into_inner())
    }

    pub async fn node_info(&mut self) -> Result<GetNodeInfoResponse, tonic::Status> {
        Ok(self
            .service
            .get_node_info(GetNodeInfoRequest {})
            .await?
            .into_inner())
    }
}

fn endpoint(address: &AgentAddress) -> Result<Endpoint, Failure> {
    let (url, cert, key, cacert) = match address {
        AgentAddress::Socket(socket) => {
            let usage = |error| Failure::Usage(format!("--socket {}: {error}", socket.display()));
            let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()));
            return endpoint.map_err(usage);
        }
        AgentAddress::Server {
            url,
            cert,
            key,
            cacert,
        } => (url, cert, key, cacert),
    };
    let tls = ClientTlsConfig::new()
        .ca_certificate(Certificate::from_pem(read("cacert", cacert)?))
        .identity(Identity::from_pem(read("cert", cert)?, read("key", key)?));
    let usage = |error: tonic::transport::Error| {
        let cause = std::error::Error::source(&error).map(ToString::to_string);
        let why = cause.unwrap_or_else(|| error.to_string());
        Failure::Usage(format!("--server {url}: {why}"))
    };
    Endpoint::from_shared(url.clone())
        .map_err(usage)?
        .connect_timeout(CONNECT)
        .http2_keep_alive_interval(KEEP_ALIVE.0)
        .keep_alive_timeout(KEEP_ALIVE.1)
        .tls_config(tls)
        .map_err(usage)
}

/// Reads the file that an option names, or one of the other settings of the same name.
fn read(option: &str, path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path).map_err(|error| {
        let (file, why) = (path.display(), file_error(&error));
        let variable = option.to_uppercase();
        Failure::Unreadable(format!(
            "error: --{option} (or KVMLET_{variable}, or {option} in the file of settings): {file}: {why}"
        ))
    })
}

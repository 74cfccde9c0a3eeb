//! Hooks that are servers on Unix sockets of the node (`kvmlet.hooks.v1`).

use std::path::Path;
use std::time::Duration;

use proto_node::hooks::hook_service_client::HookServiceClient;
use proto_node::hooks::{
    OnDefineDomainRequest, OnDefineDomainResponse, PreCloudInitIsoRequest, PreCloudInitIsoResponse,
    ShutdownRequest, ShutdownResponse,
};
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request, Status};

/// The largest answer.
const MAX_ANSWER_BYTES: usize = 1 << 20;

/// A hook. Each call connects anew: a server that was restarted is found again.
#[derive(Debug)]
pub struct HookSocket<'a> {
    /// Its socket.
    pub path: &'a Path,
    /// How long an answer may take.
    pub limit: Duration,
}

impl HookSocket<'_> {
    /// Asks for a machine.
    ///
    /// # Errors
    /// When the hook refuses, does not answer in time or is not there.
    pub async fn on_define_domain(
        &self,
        request: OnDefineDomainRequest,
    ) -> Result<OnDefineDomainResponse, Status> {
        let call = self.within(async {
            let mut client = self.connect().await?;
            let answer = client.on_define_domain(self.timed(request)).await?;
            Ok(answer.into_inner())
        });
        call.await
    }

    /// Asks what is to be on a volume for cloud-init. A hook that does not implement the call changes nothing.
    ///
    /// # Errors
    /// When the hook refuses, does not answer in time or is not there.
    pub async fn pre_cloud_init_iso(
        &self,
        request: PreCloudInitIsoRequest,
    ) -> Result<PreCloudInitIsoResponse, Status> {
        let call = self.within(async {
            let mut client = self.connect().await?;
            match client.pre_cloud_init_iso(self.timed(request)).await {
                Err(status) if status.code() == Code::Unimplemented => {
                    Ok(PreCloudInitIsoResponse::default())
                }
                answer => Ok(answer?.into_inner()),
            }
        });
        call.await
    }

    /// Calls the hook before a guest is ended.
    ///
    /// # Errors
    /// When the hook refuses, does not answer in time or is not there.
    pub async fn shutdown(&self, request: ShutdownRequest) -> Result<ShutdownResponse, Status> {
        let call = self.within(async {
            let mut client = self.connect().await?;
            let answer = client.shutdown(self.timed(request)).await?;
            Ok(answer.into_inner())
        });
        call.await
    }

    /// The deadline goes to the server, too.
    fn timed<T>(&self, request: T) -> Request<T> {
        let mut request = Request::new(request);
        request.set_timeout(self.limit);
        request
    }

    /// The call, boxed: a future of gRPC takes tens of kilobytes, which the future of every caller would contain.
    fn within<T>(
        &self,
        call: impl Future<Output = Result<T, Status>>,
    ) -> impl Future<Output = Result<T, Status>> {
        let limit = self.limit;
        let call = Box::pin(tokio::time::timeout(limit, call));
        async move {
            call.await.unwrap_or_else(|_| {
                let text = format!("it did not answer within {limit:?}");
                Err(Status::deadline_exceeded(text))
            })
        }
    }

    async fn connect(&self) -> Result<HookServiceClient<Channel>, Status> {
        let path = self.path.display();
        let endpoint = Endpoint::from_shared(format!("unix://{path}"))
            .map_err(|error| Status::unavailable(format!("{path}: {error}")))?;
        let channel = endpoint.connect().await.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Status::unavailable(cause.unwrap_or_else(|| error.to_string()))
        })?;
        Ok(HookServiceClient::new(channel).max_decoding_message_size(MAX_ANSWER_BYTES))
    }
}

//! A server of hooks: `hook-peer SOCKET FROM TO` puts TO in place of FROM in command lines of kernels, and prints who
//! is shut down.

#![forbid(unsafe_code)]

use anyhow::Context;
use proto_node::hooks::hook_service_server::{HookService, HookServiceServer};
use proto_node::hooks::{
    OnDefineDomainRequest, OnDefineDomainResponse, PreCloudInitIsoRequest, PreCloudInitIsoResponse,
    ShutdownRequest, ShutdownResponse,
};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status};

struct Hook {
    from: String,
    to: String,
}

#[tonic::async_trait]
impl HookService for Hook {
    async fn on_define_domain(
        &self,
        request: Request<OnDefineDomainRequest>,
    ) -> Result<Response<OnDefineDomainResponse>, Status> {
        let mut machine = request
            .into_inner()
            .machine
            .ok_or_else(|| Status::invalid_argument("no machine"))?;
        if let Some(kernel) = &mut machine.kernel {
            kernel.command_line = kernel.command_line.replace(&self.from, &self.to);
        }
        Ok(Response::new(OnDefineDomainResponse {
            machine: Some(machine),
        }))
    }

    async fn pre_cloud_init_iso(
        &self,
        request: Request<PreCloudInitIsoRequest>,
    ) -> Result<Response<PreCloudInitIsoResponse>, Status> {
        let mut cloud_init = request
            .into_inner()
            .cloud_init
            .ok_or_else(|| Status::invalid_argument("no volume"))?;
        cloud_init.network_data = b"network: from the peer".to_vec();
        Ok(Response::new(PreCloudInitIsoResponse {
            cloud_init: Some(cloud_init),
        }))
    }

    async fn shutdown(
        &self,
        request: Request<ShutdownRequest>,
    ) -> Result<Response<ShutdownResponse>, Status> {
        let metadata = request.into_inner().vmi.and_then(|vmi| vmi.metadata);
        println!("shutdown {}", metadata.unwrap_or_default().name);
        Ok(Response::new(ShutdownResponse {}))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = || arguments.next().context("usage: hook-peer SOCKET FROM TO");
    let (socket, from, to) = (next()?, next()?, next()?);
    let listener = UnixListener::bind(&socket).with_context(|| socket.clone())?;
    println!("listening");
    tonic::transport::Server::builder()
        .add_service(HookServiceServer::new(Hook { from, to }))
        .serve_with_incoming(UnixListenerStream::new(listener))
        .await?;
    Ok(())
}

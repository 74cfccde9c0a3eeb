//! What any gRPC tool asks a server first: `grpc-probe SOCKET`.
//!
//! Prints `service NAME` for each service that reflection lists and can describe, and `health STATUS`
//! of the whole server.

#![forbid(unsafe_code)]

use anyhow::Context;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_client::HealthClient;
use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;
use tonic_reflection::pb::v1::{ErrorResponse, ServerReflectionRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let socket = std::env::args()
        .nth(1)
        .context("usage: grpc-probe SOCKET")?;
    let channel = Endpoint::from_shared(format!("unix://{socket}"))?
        .connect()
        .await
        .context("no agent")?;
    let mut reflection = ServerReflectionClient::new(channel.clone());
    let list = MessageRequest::ListServices(String::new());
    let MessageResponse::ListServicesResponse(services) = ask(&mut reflection, list).await? else {
        anyhow::bail!("reflection does not list services");
    };
    let mut names: Vec<String> = services.service.into_iter().map(|one| one.name).collect();
    names.sort();
    for name in names {
        let describe = MessageRequest::FileContainingSymbol(name.clone());
        match ask(&mut reflection, describe).await? {
            MessageResponse::FileDescriptorResponse(_) => println!("service {name}"),
            other => anyhow::bail!("{name} is not described: {other:?}"),
        }
    }
    let whole_server = HealthCheckRequest::default();
    let health = HealthClient::new(channel).check(whole_server).await?;
    println!("health {}", health.get_ref().status().as_str_name());
    Ok(())
}

/// One question over a stream of its own.
async fn ask(
    reflection: &mut ServerReflectionClient<Channel>,
    question: MessageRequest,
) -> anyhow::Result<MessageResponse> {
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(question),
    };
    let mut answers = reflection
        .server_reflection_info(futures_util::stream::iter([request]))
        .await?
        .into_inner();
    let answer = answers.message().await?.and_then(|a| a.message_response);
    match answer.context("reflection does not answer")? {
        MessageResponse::ErrorResponse(ErrorResponse { error_message, .. }) => {
            anyhow::bail!("{error_message}")
        }
        answer => Ok(answer),
    }
}

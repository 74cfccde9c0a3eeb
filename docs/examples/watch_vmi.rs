//! Creates a VMI once, whatever happens on the way, and tells its phases until it has ended.
//!
//! usage: watch-vmi SOCKET MANIFEST

#![forbid(unsafe_code)]

use std::time::Duration;

use anyhow::Context;
use proto_node::manifest;
use proto_node::meta::ObjectMeta;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::{ApplyRequest, Object, WatchRequest};
use proto_node::object::VMI_KIND;
use tonic::transport::{Channel, Endpoint};

type Client = NodeServiceClient<Channel>;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (socket, file) = arguments
        .next()
        .zip(arguments.next())
        .context("usage: watch-vmi SOCKET MANIFEST")?;
    let mut node = Client::new(Endpoint::from_shared(format!("unix://{socket}"))?.connect_lazy());
    let document = manifest::parse(&std::fs::read(file)?)?
        .pop()
        .context("an empty manifest")?;
    let wish = ApplyRequest {
        object: Some(
            document
                .object
                .map_err(|errors| anyhow::anyhow!("{errors:?}"))?,
        ),
        idempotency_key: format!("watch-vmi-{}", std::process::id()),
        ..ApplyRequest::default()
    };
    let made = apply(&mut node, &wish).await?;
    println!("created {}", made.uid);
    anyhow::ensure!(
        apply(&mut node, &wish).await?.uid == made.uid,
        "it was made twice"
    );
    let (mut version, mut phase) = (made.resource_version, String::new());
    while !["Succeeded", "Failed"].contains(&phase.as_str()) {
        if let Err(status) = follow(&mut node, &made.uid, &mut version, &mut phase).await {
            eprintln!("lost the agent, resuming from {version}: {status}");
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    Ok(())
}

/// The idempotency key makes it safe to ask again.
async fn apply(node: &mut Client, wish: &ApplyRequest) -> anyhow::Result<ObjectMeta> {
    loop {
        match node.apply(wish.clone()).await {
            Ok(answer) => {
                let object = answer.into_inner().object;
                return object
                    .as_ref()
                    .and_then(Object::metadata)
                    .cloned()
                    .context("an empty answer");
            }
            Err(status) if proto_node::failure_reason(&status).is_none() => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            Err(status) => return Err(status.into()),
        }
    }
}

/// Prints each phase that the VMI reaches, and remembers how far the watch came.
async fn follow(
    node: &mut Client,
    uid: &str,
    version: &mut String,
    phase: &mut String,
) -> Result<(), tonic::Status> {
    let request = WatchRequest {
        kind: VMI_KIND.to_owned(),
        resource_version: version.clone(),
        ..WatchRequest::default()
    };
    let mut changes = node.watch(request).await?.into_inner();
    while let Some(change) = changes.message().await? {
        *version = change.resource_version;
        let json = change
            .object
            .map(|object| object.to_json())
            .unwrap_or_default();
        let now = json["status"]["phase"].as_str().unwrap_or_default();
        if json["metadata"]["uid"] == uid && now != phase {
            println!("{now}");
            now.clone_into(phase);
            if ["Succeeded", "Failed"].contains(&now) {
                break;
            }
        }
    }
    Ok(())
}

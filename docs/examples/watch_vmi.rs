//! Creates a VMI once and tells its phases until it has ended. usage: watch-vmi SOCKET MANIFEST
#![forbid(unsafe_code)]

use anyhow::Context;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::{ApplyRequest, Object, WatchRequest};

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let (socket, file) = (arguments.next().zip(arguments.next())).context("SOCKET MANIFEST")?;
    let channel = tonic::transport::Endpoint::from_shared(format!("unix://{socket}"))?;
    let mut node = NodeServiceClient::new(channel.connect_lazy());
    let mut documents = proto_node::manifest::parse(&std::fs::read(file)?)?;
    let wish = ApplyRequest {
        object: documents.pop().and_then(|document| document.object.ok()),
        // It makes it safe to ask again.
        idempotency_key: format!("watch-vmi-{}", std::process::id()),
        ..ApplyRequest::default()
    };
    node.apply(wish.clone()).await?;
    let made = node.apply(wish).await?.into_inner().object;
    let made = made.as_ref().and_then(Object::metadata).context("no VMI")?;
    println!("created {}", made.uid);
    let (mut version, mut phase) = (made.resource_version.clone(), String::new());
    loop {
        let watch = WatchRequest {
            kind: String::from("VirtualMachineInstance"),
            resource_version: version.clone(),
            ..WatchRequest::default()
        };
        if let Ok(changes) = node.watch(watch).await {
            let mut changes = changes.into_inner();
            while let Ok(Some(change)) = changes.message().await {
                version = change.resource_version;
                let vmi = change.object.map(|it| it.to_json()).unwrap_or_default();
                let now = vmi["status"]["phase"].as_str().unwrap_or_default();
                if vmi["metadata"]["uid"] == made.uid && now != phase {
                    println!("{now}");
                    now.clone_into(&mut phase);
                    if ["Succeeded", "Failed"].contains(&now) {
                        return Ok(());
                    }
                }
            }
        }
        eprintln!("lost the agent, resuming from {version}");
        tokio::time::sleep(std::time::Duration::from_millis(200)).await;
    }
}

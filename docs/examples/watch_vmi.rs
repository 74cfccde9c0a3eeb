//! Creates a VMI once and tells its phases until it has ended. usage: watch-vmi SOCKET < MANIFEST
#![forbid(unsafe_code)]
use anyhow::Context;
use proto_node::node::{ApplyRequest, Object, WatchRequest, node_service_client as client};
#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let socket = std::env::args().nth(1).context("SOCKET is missing")?;
    let channel = tonic::transport::Endpoint::from_shared(format!("unix://{socket}"))?;
    let mut node = client::NodeServiceClient::new(channel.connect_lazy());
    let request = ApplyRequest {
        object: Some(std::io::read_to_string(std::io::stdin())?.parse()?),
        idempotency_key: format!("watch-vmi-{}", std::process::id()), // safe to ask again
        ..ApplyRequest::default()
    };
    node.apply(request.clone()).await?;
    let made = node.apply(request).await?.into_inner().object;
    let made = made.as_ref().and_then(Object::metadata).context("no VMI")?;
    println!("created {}", made.uid);
    let mut watch = WatchRequest {
        kind: String::from("VirtualMachineInstance"),
        resource_version: made.resource_version.clone(),
        ..WatchRequest::default()
    };
    let (mut changes, mut phase) = (node.watch(watch.clone()).await?, serde_json::Value::Null);
    while phase != "Succeeded" && phase != "Failed" {
        if let Ok(Some(change)) = changes.get_mut().message().await {
            watch.resource_version = change.resource_version;
            let vmi = change.object.map(|it| it.to_json()).unwrap_or_default();
            if vmi["metadata"]["uid"] == made.uid && vmi["status"]["phase"] != phase {
                phase = vmi["status"]["phase"].clone();
                println!("{}", phase.as_str().unwrap_or_default());
            }
        } else {
            eprintln!("lost the agent, resuming from {}", watch.resource_version);
            tokio::time::sleep(std::time::Duration::from_millis(200)).await;
            changes = node.watch(watch.clone()).await.unwrap_or(changes);
        }
    }
    Ok(())
}

//! Measures watches beside an agent.
//!
//! `watch-bench WATCHERS KIND`: how long many watchers take that begin at the same time with all objects of a kind. Prints how
//! many objects they received together, and the seconds until the last of them had all.
//!
//! `watch-bench resume CHANGES`: whether a watch of Secrets resumes after as many changes of ConfigMaps. Prints the changes made
//! in a second, and the seconds until the watch has the one change that is left for it.

#![forbid(unsafe_code)]

use std::time::Instant;

use anyhow::{Context, ensure};
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::watch_response::Type;
use proto_node::node::{
    CreateObjectRequest, ListObjectsRequest, ObjectName, PatchObjectRequest, WatchObjectsRequest,
};
use serde_json::json;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

const SOCKET: &str = "unix:///run/kvmlet/kvmlet.sock";

/// Clients that change objects at the same time, each its own.
const WRITERS: u32 = 64;

/// Namespace of the objects that are made here.
const NAMESPACE: &str = "watch-bench";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.as_slice() {
        [word, changes] if word == "resume" => resume(changes.parse()?).await,
        [watchers, kind] => begin(watchers.parse()?, kind).await,
        _ => anyhow::bail!("usage: watch-bench WATCHERS KIND | watch-bench resume CHANGES"),
    }
}

async fn connect() -> anyhow::Result<ObjectServiceClient<Channel>> {
    let channel = Endpoint::from_static(SOCKET).connect().await;
    Ok(ObjectServiceClient::new(channel.context("the agent")?))
}

async fn begin(watchers: u32, kind: &str) -> anyhow::Result<()> {
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..watchers {
        running.spawn(watch(kind.to_owned()));
    }
    let mut count = 0;
    while let Some(ended) = running.join_next().await {
        count += ended??;
    }
    println!("{count} {}", begun.elapsed().as_secs_f64());
    Ok(())
}

/// A connection of its own. The answer is how many objects there are.
async fn watch(kind: String) -> anyhow::Result<u64> {
    let mut service = connect().await?;
    let request = WatchObjectsRequest {
        kind,
        ..WatchObjectsRequest::default()
    };
    let mut changes = service.watch_objects(request).await?.into_inner();
    let mut count = 0;
    loop {
        let change = changes.message().await?.context("the watch ended")?;
        if change.r#type() == Type::Bookmark {
            return Ok(count);
        }
        count += 1;
    }
}

async fn resume(changes: u32) -> anyhow::Result<()> {
    let mut service = connect().await?;
    let request = ListObjectsRequest {
        kind: String::from("Secret"),
        limit: 1,
        ..ListObjectsRequest::default()
    };
    let listed = service.list_objects(request).await?.into_inner();
    let before = listed.metadata.unwrap_or_default().resource_version;
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for writer in 0..WRITERS {
        running.spawn(change(writer, changes.div_ceil(WRITERS)));
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let rate = f64::from(changes) / begun.elapsed().as_secs_f64();
    create(&mut service, "Secret", "last").await?;
    let begun = Instant::now();
    let request = WatchObjectsRequest {
        kind: String::from("Secret"),
        resource_version: before,
        ..WatchObjectsRequest::default()
    };
    let mut changes = service.watch_objects(request).await?.into_inner();
    let change = changes.message().await?.context("the watch ended")?;
    let object: serde_json::Value = serde_json::from_slice(&change.object)?;
    let is_last = change.r#type() == Type::Added && object["metadata"]["name"] == "last";
    ensure!(is_last, "the watch began with {change:?}");
    println!("{rate} {}", begun.elapsed().as_secs_f64());
    Ok(())
}

/// Changes a ConfigMap of its own as often as that.
async fn change(writer: u32, times: u32) -> anyhow::Result<()> {
    let mut service = connect().await?;
    let name = format!("busy-{writer}");
    create(&mut service, "ConfigMap", &name).await?;
    for number in 0..times {
        let request = PatchObjectRequest {
            name: Some(ObjectName {
                kind: String::from("ConfigMap"),
                namespace: NAMESPACE.to_owned(),
                name: name.clone(),
            }),
            merge_patch: json!({"data": {"number": number.to_string()}})
                .to_string()
                .into_bytes(),
            ..PatchObjectRequest::default()
        };
        service.patch_object(request).await?;
    }
    Ok(())
}

async fn create(
    service: &mut ObjectServiceClient<Channel>,
    kind: &str,
    name: &str,
) -> anyhow::Result<()> {
    let object = json!({
        "apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE},
    });
    let request = CreateObjectRequest {
        object: object.to_string().into_bytes(),
        ..CreateObjectRequest::default()
    };
    service.create_object(request).await?;
    Ok(())
}

//! Measures, beside an agent, how long many watchers take that begin at the same time with all objects of a kind:
//! `watch-bench WATCHERS KIND`. Prints how many objects they received together, and the seconds until the last of them
//! had all.

#![forbid(unsafe_code)]

use std::time::Instant;

use anyhow::Context;
use proto_node::node::WatchObjectsRequest;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::watch_response::Type;
use tokio::task::JoinSet;
use tonic::transport::Endpoint;

const SOCKET: &str = "unix:///run/kvmlet/kvmlet.sock";

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [watchers, kind] = arguments.as_slice() else {
        anyhow::bail!("usage: watch-bench WATCHERS KIND");
    };
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for _ in 0..watchers.parse::<u32>()? {
        running.spawn(watch(kind.clone()));
    }
    let mut told = 0;
    while let Some(ended) = running.join_next().await {
        told += ended??;
    }
    println!("{told} {}", begun.elapsed().as_secs_f64());
    Ok(())
}

/// A connection of its own. The answer is how many objects there are.
async fn watch(kind: String) -> anyhow::Result<u64> {
    let channel = Endpoint::from_static(SOCKET).connect().await;
    let mut service = ObjectServiceClient::new(channel.context("the agent")?);
    let request = WatchObjectsRequest {
        kind,
        ..WatchObjectsRequest::default()
    };
    let mut changes = service.watch_objects(request).await?.into_inner();
    let mut told = 0;
    loop {
        let change = changes.message().await?.context("the watch ended")?;
        if change.r#type() == Type::Bookmark {
            return Ok(told);
        }
        told += 1;
    }
}

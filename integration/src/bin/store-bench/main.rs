//! Measures what creating objects and listing them takes, with the same objects and clients beside an agent, an etcd and a
//! kube-apiserver: `store-bench kvmlet|etcd|kube-apiserver CLIENTS EACH NAMESPACE`. Prints the objects created in a second, and the
//! seconds that a list of all takes.

#![forbid(unsafe_code)]

mod api_server;
mod etcd;

use std::time::Instant;

use anyhow::{Context, ensure};
use hyper::body::Bytes;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::{CreateObjectRequest, Encoding, ListObjectsRequest};
use serde_json::Value;
use tokio::task::JoinSet;
use tonic::transport::{Channel, Endpoint};

use api_server::ApiServer;
use etcd::Etcd;

const SOCKET: &str = "unix:///run/kvmlet/kvmlet.sock";
/// A list of thousands of objects is one message.
const MAX_LIST_BYTES: usize = 256 << 20;

/// A connection to what is measured. All objects are in one namespace.
struct Connection {
    store: Store,
    namespace: String,
}

enum Store {
    Kvmlet(ObjectServiceClient<Channel>),
    Etcd(Etcd),
    ApiServer(ApiServer),
}

/// All objects, as they came.
enum Listed {
    Objects(Vec<Bytes>),
    Values(Vec<Vec<u8>>),
    ListInJson(Bytes),
}

impl Listed {
    fn count(&self) -> anyhow::Result<usize> {
        match self {
            Self::Objects(objects) => Ok(objects.len()),
            Self::Values(values) => Ok(values.len()),
            Self::ListInJson(list) => {
                let list: Value = serde_json::from_slice(list)?;
                let items = list["items"].as_array();
                Ok(items.context("a list without items")?.len())
            }
        }
    }
}

impl Connection {
    async fn new(name: &str, namespace: &str) -> anyhow::Result<Self> {
        Ok(Self {
            store: Store::connect(name).await?,
            namespace: namespace.to_owned(),
        })
    }

    async fn prepare(&mut self) -> anyhow::Result<()> {
        match &mut self.store {
            Store::ApiServer(server) => {
                server.wait_until_ready().await?;
                server.make_namespace(&self.namespace).await
            }
            Store::Kvmlet(_) | Store::Etcd(_) => Ok(()),
        }
    }

    /// Creates one object and waits until it is on disk, which all do before they answer.
    async fn create(&mut self, name: &str) -> anyhow::Result<()> {
        let namespace = self.namespace.as_str();
        let object = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"{namespace}\"}},\
             \"data\":{{\"key\":\"value\"}}}}"
        );
        let object = object.into_bytes();
        match &mut self.store {
            Store::Kvmlet(client) => {
                let request = CreateObjectRequest {
                    object,
                    ..CreateObjectRequest::default()
                };
                client.create_object(request).await?;
                Ok(())
            }
            Store::Etcd(etcd) => etcd.put(namespace, name, object).await,
            Store::ApiServer(server) => server.create(namespace, object).await,
        }
    }

    async fn list(&mut self) -> anyhow::Result<Listed> {
        let namespace = self.namespace.as_str();
        match &mut self.store {
            Store::Kvmlet(client) => {
                let request = ListObjectsRequest {
                    kind: String::from("ConfigMap"),
                    namespace: namespace.to_owned(),
                    // As etcd keeps what a kube-apiserver wrote.
                    encoding: Encoding::Protobuf.into(),
                    ..ListObjectsRequest::default()
                };
                let listed = client.list_objects(request).await?.into_inner();
                Ok(Listed::Objects(listed.items))
            }
            Store::Etcd(etcd) => Ok(Listed::Values(etcd.list(namespace).await?)),
            Store::ApiServer(server) => Ok(Listed::ListInJson(server.list(namespace).await?)),
        }
    }
}

impl Store {
    async fn connect(name: &str) -> anyhow::Result<Self> {
        match name {
            "kvmlet" => {
                let channel = Endpoint::from_static(SOCKET).connect().await;
                let client = ObjectServiceClient::new(channel.context("the agent")?);
                let client = client.max_decoding_message_size(MAX_LIST_BYTES);
                Ok(Self::Kvmlet(client))
            }
            "etcd" => Ok(Self::Etcd(Etcd::connect(MAX_LIST_BYTES).await?)),
            "kube-apiserver" => Ok(Self::ApiServer(ApiServer::connect().await?)),
            other => anyhow::bail!("{other:?} is not kvmlet, etcd or kube-apiserver"),
        }
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, clients, each, namespace] = arguments.as_slice() else {
        anyhow::bail!("usage: store-bench kvmlet|etcd|kube-apiserver CLIENTS EACH NAMESPACE");
    };
    let (clients, each): (usize, usize) = (clients.parse()?, each.parse()?);
    Connection::new(store, namespace).await?.prepare().await?;
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(Connection::new(store, namespace).await?);
    }
    let begun = Instant::now();
    let mut running = JoinSet::new();
    for (number, mut connection) in connections.into_iter().enumerate() {
        running.spawn(async move {
            for object in 0..each {
                connection.create(&format!("b{number}-{object}")).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    let count = clients * each;
    #[expect(clippy::cast_precision_loss, reason = "some thousands")]
    let rate = count as f64 / begun.elapsed().as_secs_f64();
    let mut connection = Connection::new(store, namespace).await?;
    let begun = Instant::now();
    let listed = connection.list().await?;
    let seconds = begun.elapsed().as_secs_f64();
    let found = listed.count()?;
    ensure!(found == count, "{found} of {count} objects are listed");
    println!("{rate} {seconds}");
    Ok(())
}

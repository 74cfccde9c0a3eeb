//! Measures what creating objects and listing them takes, with the same objects and clients beside an agent and beside etcd:
//! `store-bench kvmlet|etcd CLIENTS EACH`. Prints the objects created in a second, and the seconds that a list of
//! all takes.

#![forbid(unsafe_code)]

use std::time::Instant;

use anyhow::{Context, ensure};
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::{CreateObjectRequest, ListObjectsRequest};
use tokio::task::JoinSet;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const SOCKET: &str = "unix:///run/kvmlet/kvmlet.sock";
const ETCD: &str = "http://127.0.0.1:2379";
/// Where an API server keeps objects of this kind.
const PREFIX: &str = "/registry/configmaps/bench/";
/// A list of thousands of objects is one message.
const MAX_MESSAGE_BYTES: usize = 256 << 20;

/// `etcdserverpb.PutRequest`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct PutRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

/// `etcdserverpb.PutResponse`, of which nothing is read.
#[derive(Clone, PartialEq, prost::Message)]
struct PutResponse {}

/// `etcdserverpb.RangeRequest`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct RangeRequest {
    #[prost(bytes = "vec", tag = "1")]
    key: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    range_end: Vec<u8>,
}

/// `mvccpb.KeyValue`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(bytes = "vec", tag = "5")]
    value: Vec<u8>,
}

/// `etcdserverpb.RangeResponse`, as far as it is needed.
#[derive(Clone, PartialEq, prost::Message)]
struct RangeResponse {
    #[prost(message, repeated, tag = "2")]
    kvs: Vec<KeyValue>,
}

/// A connection to what is measured.
#[derive(Clone)]
enum Store {
    Kvmlet(ObjectServiceClient<Channel>),
    Etcd(Grpc<Channel>),
}

impl Store {
    async fn connect(name: &str) -> anyhow::Result<Self> {
        match name {
            "kvmlet" => {
                let channel = Endpoint::from_static(SOCKET).connect().await;
                let client = ObjectServiceClient::new(channel.context("the agent")?);
                let client = client.max_decoding_message_size(MAX_MESSAGE_BYTES);
                Ok(Self::Kvmlet(client))
            }
            "etcd" => {
                let channel = Endpoint::from_static(ETCD).connect().await;
                let client = Grpc::new(channel.context("etcd")?);
                let client = client.max_decoding_message_size(MAX_MESSAGE_BYTES);
                Ok(Self::Etcd(client))
            }
            other => anyhow::bail!("{other:?} is neither kvmlet nor etcd"),
        }
    }

    /// Creates one object and waits until it is on disk, which both do before they answer.
    async fn create(&mut self, name: &str) -> anyhow::Result<()> {
        let object = format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"ConfigMap\",\"metadata\":{{\"name\":\"{name}\",\"namespace\":\"bench\"}},\
             \"data\":{{\"key\":\"value\"}}}}"
        );
        match self {
            Self::Kvmlet(client) => {
                let request = CreateObjectRequest {
                    object: object.into_bytes(),
                    ..CreateObjectRequest::default()
                };
                client.create_object(request).await?;
            }
            Self::Etcd(client) => {
                let request = PutRequest {
                    key: format!("{PREFIX}{name}").into_bytes(),
                    value: object.into_bytes(),
                };
                let _: PutResponse = unary(client, "/etcdserverpb.KV/Put", request).await?;
            }
        }
        Ok(())
    }

    /// How many objects a list has.
    async fn list(&mut self) -> anyhow::Result<usize> {
        match self {
            Self::Kvmlet(client) => {
                let request = ListObjectsRequest {
                    kind: String::from("ConfigMap"),
                    namespace: String::from("bench"),
                    ..ListObjectsRequest::default()
                };
                let listed = client.list_objects(request).await?;
                Ok(listed.into_inner().items.len())
            }
            Self::Etcd(client) => {
                // The key after all that begin with the prefix: its last byte is one more.
                let range_end = PREFIX.replace("bench/", "bench0").into_bytes();
                let request = RangeRequest {
                    key: PREFIX.into(),
                    range_end,
                };
                let listed: RangeResponse =
                    unary(client, "/etcdserverpb.KV/Range", request).await?;
                Ok(listed.kvs.len())
            }
        }
    }
}

async fn unary<I, O>(
    client: &mut Grpc<Channel>,
    method: &'static str,
    request: I,
) -> anyhow::Result<O>
where
    I: prost::Message + 'static,
    O: prost::Message + Default + 'static,
{
    client.ready().await?;
    let path = PathAndQuery::from_static(method);
    let codec = ProstCodec::<I, O>::default();
    let answer = client
        .unary(tonic::Request::new(request), path, codec)
        .await?;
    Ok(answer.into_inner())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [store, clients, each] = arguments.as_slice() else {
        anyhow::bail!("usage: store-bench kvmlet|etcd CLIENTS EACH");
    };
    let (clients, each): (usize, usize) = (clients.parse()?, each.parse()?);
    let mut connections = Vec::new();
    for _ in 0..clients {
        connections.push(Store::connect(store).await?);
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
    let mut connection = Store::connect(store).await?;
    let begun = Instant::now();
    let listed = connection.list().await?;
    ensure!(listed == count, "{listed} of {count} objects are listed");
    println!("{rate} {}", begun.elapsed().as_secs_f64());
    Ok(())
}

//! etcd, called as an API server calls it.

use anyhow::Context;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic_prost::ProstCodec;

const ADDRESS: &str = "http://127.0.0.1:2379";
/// Keys of the objects, as an API server makes them, below a directory that none uses: a namespace and a name follow.
const PREFIX: &str = "/bench/configmaps/";

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

/// A connection to etcd.
pub(crate) struct Etcd(Grpc<Channel>);

impl Etcd {
    /// Connects; a list has at most so many bytes.
    pub(crate) async fn connect(max_list_bytes: usize) -> anyhow::Result<Self> {
        let channel = Endpoint::from_static(ADDRESS).connect().await;
        let client = Grpc::new(channel.context("etcd")?);
        Ok(Self(client.max_decoding_message_size(max_list_bytes)))
    }

    /// Stores a value, which is on disk when etcd answers.
    pub(crate) async fn put(
        &mut self,
        namespace: &str,
        name: &str,
        value: Vec<u8>,
    ) -> anyhow::Result<()> {
        let key = format!("{PREFIX}{namespace}/{name}").into_bytes();
        let _: PutResponse = self
            .unary("/etcdserverpb.KV/Put", PutRequest { key, value })
            .await?;
        Ok(())
    }

    /// The values of all objects of a namespace.
    pub(crate) async fn list(&mut self, namespace: &str) -> anyhow::Result<Vec<Vec<u8>>> {
        let request = RangeRequest {
            key: format!("{PREFIX}{namespace}/").into(),
            // The byte after a slash.
            range_end: format!("{PREFIX}{namespace}0").into(),
        };
        let listed: RangeResponse = self.unary("/etcdserverpb.KV/Range", request).await?;
        Ok(listed.kvs.into_iter().map(|pair| pair.value).collect())
    }

    async fn unary<I, O>(&mut self, method: &'static str, request: I) -> anyhow::Result<O>
    where
        I: prost::Message + 'static,
        O: prost::Message + Default + 'static,
    {
        self.0.ready().await?;
        let path = PathAndQuery::from_static(method);
        let codec = ProstCodec::<I, O>::default();
        let answer = self
            .0
            .unary(tonic::Request::new(request), path, codec)
            .await?;
        Ok(answer.into_inner())
    }
}

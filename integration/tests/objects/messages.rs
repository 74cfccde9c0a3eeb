//! Objects as the messages of their kinds: the same that JSON says, Secrets among them, and nothing that is no JSON where
//! JSON belongs.

use anyhow::{Context, ensure};
use integration::host::{self, Host};
use integration::skip_if;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::{
    ApplyRequest, Encoding, GetObjectRequest, ListObjectsRequest, Object, ObjectName,
    WatchObjectsRequest,
};
use proto_node::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use serde_json::Value;
use tonic::Code;
use tonic::transport::{Channel, Endpoint};

use super::{MAP, SECRET, started};

/// The object of a message.
fn read(kind: &str, message: &[u8]) -> anyhow::Result<Value> {
    let kinds = agent_objects::Kinds::built_in();
    let object = kinds.from_wire(kinds.named(kind)?, message)?;
    Ok(object.to_json())
}

async fn connect(host: &Host) -> anyhow::Result<Channel> {
    let socket = host.path("/run/kvmlet/kvmlet.sock");
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    endpoint.connect().await.context("the agent")
}

#[tokio::test]
async fn objects_are_listed_read_and_watched_as_messages() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    let namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: other}\n";
    agent.apply(&format!("{SECRET}---\n{MAP}---\n{namespace}"))?;
    let mut client = ObjectServiceClient::new(connect(&host).await?);
    for (kind, selector, found) in [
        ("Secret", "", 1),
        ("Secret", "metadata.name=web", 1),
        ("Secret", "metadata.name=other", 0),
        ("ConfigMap", "metadata.namespace=default", 1),
        ("Namespace", "metadata.name=other", 1),
    ] {
        let list = |encoding: Encoding| ListObjectsRequest {
            kind: kind.to_owned(),
            field_selector: selector.to_owned(),
            encoding: encoding.into(),
            ..ListObjectsRequest::default()
        };
        let texts = client
            .list_objects(list(Encoding::Json))
            .await?
            .into_inner();
        let texts = texts.items.iter().map(|text| serde_json::from_slice(text));
        let texts = texts.collect::<Result<Vec<Value>, _>>()?;
        ensure!(texts.len() == found, "{kind} {selector}: {texts:?}");
        let messages = client.list_objects(list(Encoding::Protobuf)).await?;
        let messages = messages.into_inner().items;
        let messages = messages.iter().map(|message| read(kind, message));
        let messages = messages.collect::<anyhow::Result<Vec<Value>>>()?;
        ensure!(messages == texts, "{kind}: {messages:?}, {texts:?}");
        let Some(text) = texts.first() else { continue };

        let name = ObjectName {
            kind: kind.to_owned(),
            namespace: text["metadata"]["namespace"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
            name: text["metadata"]["name"]
                .as_str()
                .unwrap_or_default()
                .to_owned(),
        };
        let get = GetObjectRequest {
            name: Some(name),
            encoding: Encoding::Protobuf.into(),
        };
        let got = client.get_object(get).await?.into_inner().object;
        ensure!(&read(kind, &got)? == text, "{kind}");
        let watch = WatchObjectsRequest {
            kind: kind.to_owned(),
            field_selector: selector.to_owned(),
            encoding: Encoding::Protobuf.into(),
            ..WatchObjectsRequest::default()
        };
        let mut watch = client.watch_objects(watch).await?.into_inner();
        let first = watch.message().await?.context("nothing is there")?;
        ensure!(&read(kind, &first.object)? == text, "{kind}");
    }
    Ok(())
}

#[tokio::test]
async fn a_vmi_that_comes_as_a_message_has_json_where_json_belongs() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let _agent = started(&host)?;
    let mut client = NodeServiceClient::new(connect(&host).await?);
    let vmi = VirtualMachineInstance {
        spec: Some(VirtualMachineInstanceSpec {
            tolerations: vec![b"{}".to_vec(), b"all".to_vec()],
            ..VirtualMachineInstanceSpec::default()
        }),
        ..VirtualMachineInstance::default()
    };
    let request = ApplyRequest {
        object: Some(Object::from(vmi)),
        dry_run: true,
        ..ApplyRequest::default()
    };
    let answer = client.apply(request).await;
    let refused = answer.err().context("is taken")?;
    ensure!(refused.code() == Code::InvalidArgument, "{refused}");
    let fields = proto_node::violations(&refused);
    let paths: Vec<&str> = fields.iter().map(|field| field.path.as_str()).collect();
    ensure!(paths == ["spec.tolerations[1]"], "{fields:?}");
    Ok(())
}

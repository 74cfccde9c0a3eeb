//! The service as a client meets it, with a registry of tests behind it.

use std::sync::Arc;

use agent_objects::{Encoding, Kinds};
use prost::Message;
use proto_node::Schema;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::watch_response::Type;
use proto_node::node::{
    self, CreateObjectRequest, DescribeKindRequest, GetObjectRequest, ListKindsRequest,
    ListObjectsRequest, ObjectName, Role, WatchObjectsRequest,
};
use proto_node::vmi::{VirtualMachineInstance, VirtualMachineInstanceSpec};
use serde_json::json;
use tonic::Code;
use tonic::transport::Channel;

use super::Forms;
use crate::testing::{FakeRegistry, Server, grant};

const KIND: &str = "VirtualMachineInstance";

/// VMIs of the namespaces a and b, and a server for callers with grants.
fn server() -> Server {
    let registry = FakeRegistry::new();
    let vmi = |namespace: &str| {
        format!(
            "{{apiVersion: kubevirt.io/v1, kind: {KIND}, metadata: {{name: web, namespace: {namespace}, uid: {namespace}-1}}}}"
        )
    };
    registry.put(&[vmi("a"), vmi("b")]);
    let grants = vec![
        grant(Role::View, Some(&["a"]), "viewer"),
        grant(Role::Operate, Some(&["a"]), "operator"),
    ];
    Server::start(registry, grants)
}

async fn client(server: &Server, name: &str) -> ObjectServiceClient<Channel> {
    let channel = server.channel(name, &Arc::default(), 1 << 16).await;
    ObjectServiceClient::new(channel)
}

fn set(namespace: &str) -> CreateObjectRequest {
    let object = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "web", "namespace": namespace},
    });
    CreateObjectRequest {
        object: object.to_string().into_bytes(),
        dry_run: false,
        ..CreateObjectRequest::default()
    }
}

#[tokio::test]
async fn a_caller_sees_and_writes_objects_of_its_namespaces_alone() {
    let server = server();
    let mut viewer = client(&server, "viewer").await;
    let list = ListObjectsRequest {
        kind: KIND.to_owned(),
        ..ListObjectsRequest::default()
    };
    let listed = viewer.list_objects(list).await.expect("is granted");
    assert_eq!(listed.into_inner().items.len(), 1);
    let get = GetObjectRequest {
        name: Some(ObjectName {
            kind: KIND.to_owned(),
            namespace: String::from("b"),
            name: String::from("web"),
        }),
        ..GetObjectRequest::default()
    };
    let refused = viewer.get_object(get).await.expect_err("is another's");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let refused = viewer.create_object(set("a")).await;
    let refused = refused.expect_err("may only look");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");

    let mut operator = client(&server, "operator").await;
    let refused = operator.create_object(set("b")).await;
    let refused = refused.expect_err("is another's");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    operator.create_object(set("a")).await.expect("is granted");
}

#[tokio::test]
async fn what_has_no_form_or_kind_is_refused_before_anybody_asks_the_registry() {
    let server = server();
    let mut operator = client(&server, "operator").await;
    for (object, wanted) in [
        ("{", "is no JSON"),
        (
            "{\"apiVersion\": \"v1\", \"kind\": \"Pod\"}",
            "no matches for kind \"Pod\" in version \"v1\"",
        ),
        (
            "{\"apiVersion\": \"networking.k8s.io/v1\", \"kind\": \"NetworkPolicy\"}",
            "in version \"networking.k8s.io/v1\": a node keeps no guests from each other, so it would protect nothing",
        ),
        (
            "{\"apiVersion\": \"kubevirt.io/v1\", \"kind\": \"VirtualMachineInstanceReplicaSet\", \"specs\": {}}",
            "is invalid",
        ),
    ] {
        let request = CreateObjectRequest {
            object: object.as_bytes().to_vec(),
            ..CreateObjectRequest::default()
        };
        let refused = operator.create_object(request).await.expect_err("is wrong");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        assert!(refused.message().contains(wanted), "{refused}");
    }
}

#[tokio::test]
async fn a_watch_begins_with_what_is_there_and_says_when_that_is_all() {
    let server = server();
    let mut viewer = client(&server, "viewer").await;
    let request = WatchObjectsRequest {
        kind: KIND.to_owned(),
        ..WatchObjectsRequest::default()
    };
    let changes = viewer.watch_objects(request).await.expect("is granted");
    let mut changes = changes.into_inner();
    for wanted in [Type::Added, Type::Bookmark] {
        let change = changes.message().await.expect("goes on").expect("goes on");
        assert_eq!(change.r#type(), wanted);
        assert_eq!(change.object.is_empty(), wanted == Type::Bookmark);
    }
}

#[tokio::test]
async fn a_watch_of_messages_has_json_made_where_fields_are_selected_alone() {
    let messages = Forms::of(Encoding::Protobuf, false);
    assert!(messages.message && !messages.json);
    let server = server();
    let mut viewer = client(&server, "viewer").await;
    let kinds = Kinds::this_release();
    let kind = kinds.named(KIND).expect("a kind");
    for (selector, wanted) in [
        ("", Type::Added),
        ("metadata.name=web", Type::Added),
        ("metadata.name=other", Type::Bookmark),
    ] {
        let request = WatchObjectsRequest {
            kind: KIND.to_owned(),
            field_selector: selector.to_owned(),
            encoding: node::Encoding::Protobuf.into(),
            ..WatchObjectsRequest::default()
        };
        let changes = viewer.watch_objects(request).await.expect("is granted");
        let first = changes.into_inner().message().await.expect("goes on");
        let first = first.expect("goes on");
        assert_eq!(first.r#type(), wanted, "{selector}");
        if wanted == Type::Added {
            let object = kinds.from_wire(kind, &first.object).expect("a message");
            assert_eq!(object.metadata.name, "web");
        }
    }
}

#[tokio::test]
async fn kinds_are_listed_with_their_names_and_columns() {
    let server = server();
    let mut viewer = client(&server, "viewer").await;
    let kinds = viewer.list_kinds(ListKindsRequest {}).await;
    let kinds = kinds.expect("is granted").into_inner().kinds;
    let set = kinds
        .iter()
        .find(|kind| kind.short_names.contains(&String::from("vmirs")));
    let set = set.expect("is served");
    assert_eq!(set.scale_path, ".spec.replicas");
    let columns: Vec<&str> = set
        .columns
        .iter()
        .map(|column| column.name.as_str())
        .collect();
    assert_eq!(columns, ["DESIRED", "CURRENT", "READY", "AGE"]);
}

#[tokio::test]
async fn a_kind_is_described_by_its_messages() {
    let server = server();
    let mut viewer = client(&server, "viewer").await;
    let asked = |kind: &str| DescribeKindRequest {
        kind: kind.to_owned(),
    };
    let described = viewer.describe_kind(asked(KIND)).await;
    let described = described.expect("is granted").into_inner();
    let schema = Schema::of_descriptors(&described.descriptors).expect("descriptors");
    let ours = Schema::this_release().explain(&described.message);
    assert!(!ours.is_empty());
    assert_eq!(schema.explain(&described.message), ours);
    let refused = viewer.describe_kind(asked("Gadget")).await;
    let refused = refused.expect_err("is not served");
    assert!(refused.message().contains("Gadget"), "{refused}");
}

#[tokio::test]
async fn a_caller_that_may_only_read_sees_no_secrets() {
    let server = server();
    let list = |kind: &str| ListObjectsRequest {
        kind: kind.to_owned(),
        ..ListObjectsRequest::default()
    };
    let mut viewer = client(&server, "viewer").await;
    let refused = viewer.list_objects(list("Secret")).await;
    let refused = refused.expect_err("takes a higher role");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    assert!(refused.message().contains("role operate"), "{refused}");
    let watch = WatchObjectsRequest {
        kind: String::from("Secret"),
        namespace: String::from("a"),
        ..WatchObjectsRequest::default()
    };
    let refused = viewer.watch_objects(watch).await;
    let refused = refused.expect_err("takes a higher role");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    let get = GetObjectRequest {
        name: Some(ObjectName {
            kind: String::from("Secret"),
            namespace: String::from("a"),
            name: String::from("web"),
        }),
        ..GetObjectRequest::default()
    };
    let refused = viewer
        .get_object(get)
        .await
        .expect_err("takes a higher role");
    assert_eq!(refused.code(), Code::PermissionDenied, "{refused}");
    // Namespaces are the whole node's.
    let refused = viewer.list_objects(list("Namespace")).await;
    assert_eq!(
        refused.expect_err("is the node's").code(),
        Code::PermissionDenied
    );

    let mut operator = client(&server, "operator").await;
    let listed = operator.list_objects(list("Secret")).await;
    listed.expect("is granted");
}

#[tokio::test]
async fn objects_come_as_messages_too_and_with_no_field_that_is_unknown() {
    let server = server();
    let mut operator = client(&server, "operator").await;
    let kinds = Kinds::this_release();
    let value = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "one", "namespace": "a"}, "data": {"key": "value"}});
    let (kind, object) = kinds.read(value).expect("is one");
    let message = kinds.to_wire(kind, &object).expect("is one");
    let create = |object: Vec<u8>, encoding| CreateObjectRequest {
        object,
        encoding,
        ..CreateObjectRequest::default()
    };
    let created = operator.create_object(create(message.clone(), 1)).await;
    let created = created.expect("is granted").into_inner().object;
    let read = kinds.from_wire(kind, &created).expect("is a message");
    assert_eq!(
        (read.metadata.name.as_str(), &read.content),
        ("one", &object.content)
    );

    let mut unknown = message.clone();
    // Field 1000, of one byte.
    unknown.extend([0xc2, 0x3e, 1, b'x']);
    let no_json = VirtualMachineInstance {
        api_version: String::from("kubevirt.io/v1"),
        kind: KIND.to_owned(),
        spec: Some(VirtualMachineInstanceSpec {
            tolerations: vec![b"all".to_vec()],
            ..VirtualMachineInstanceSpec::default()
        }),
        ..VirtualMachineInstance::default()
    };
    for (object, encoding, wanted) in [
        (unknown, 1, "unknown field with number 1000"),
        (no_json.encode_to_vec(), 1, "spec.tolerations[0]"),
        (message, 7, "encoding 7 is not known"),
        (Vec::new(), 1, "no matches for kind"),
        (vec![0xff], 1, "is invalid"),
    ] {
        let refused = operator.create_object(create(object, encoding)).await;
        let refused = refused.expect_err("is wrong");
        assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");
        let said = format!(
            "{} {:?}",
            refused.message(),
            proto_node::violations(&refused)
        );
        assert!(said.contains(wanted), "{said}");
    }
}

#[tokio::test]
async fn lists_come_in_pages() {
    let registry = FakeRegistry::new();
    let vmi = |name: &str| {
        format!(
            "{{apiVersion: kubevirt.io/v1, kind: {KIND}, metadata: {{name: {name}, namespace: a, uid: {name}-1}}}}"
        )
    };
    registry.put(&[vmi("vx"), vmi("vy"), vmi("vz")]);
    let grants = vec![grant(Role::View, None, "viewer")];
    let server = Server::start(registry, grants);
    let mut viewer = client(&server, "viewer").await;
    let (mut sizes, mut token) = (Vec::new(), String::new());
    loop {
        let list = ListObjectsRequest {
            kind: KIND.to_owned(),
            limit: 2,
            r#continue: token,
            ..ListObjectsRequest::default()
        };
        let listed = viewer.list_objects(list).await.expect("is granted");
        let listed = listed.into_inner();
        sizes.push(listed.items.len());
        token = listed.metadata.expect("is there").r#continue;
        if token.is_empty() {
            break;
        }
    }
    assert_eq!(sizes, [2, 1]);
}

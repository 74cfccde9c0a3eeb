//! The service as a client meets it, with a registry of tests behind it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::{
    ConsoleAttach, ConsoleRequest, GetNodeInfoRequest, GetNodeInfoResponse, ListRequest,
    LogsRequest, PortForwardRequest, Role, WatchRequest, console_request,
};
use tokio::io::AsyncReadExt;
use tokio_stream::StreamExt;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use crate::CallLimits;
use crate::testing::{FakeRegistry, PIECE, Server, Silent, grant, policy};

/// After this long nothing comes any more.
const PATIENCE: Duration = Duration::from_secs(20);

fn everywhere() -> Vec<crate::Grant> {
    vec![grant(Role::Admin, None, "root")]
}

#[tokio::test]
async fn node_info_names_no_vmis_of_namespaces_that_the_caller_may_not_see() {
    let mut grants = everywhere();
    grants.push(grant(Role::View, Some(&["a"]), "alice"));
    let server = Server::start(FakeRegistry::new(), grants);
    for (who, names) in [
        ("alice", vec!["a-guest"]),
        ("root", vec!["a-guest", "b-guest"]),
    ] {
        let mut client = server.client(who).await;
        let info = client.get_node_info(GetNodeInfoRequest {}).await;
        let info = info.expect("is granted").into_inner();
        let named: Vec<_> = info.dedicated_cpus.iter().map(|it| &it.name).collect();
        assert_eq!(named, names, "{who}");
        assert_eq!(info.vmis, 2, "the totals are everybody's");
    }
}

#[tokio::test]
async fn streams_whose_first_request_does_not_come_are_refused() {
    let server = Server::start(FakeRegistry::new(), everywhere());
    let mut client = server.client("root").await;
    let console = client.console(Silent::<ConsoleRequest>::new());
    let refused = tokio::time::timeout(PATIENCE, console).await;
    let refused = refused.expect("a console waits without a deadline");
    let refused = refused.map(drop).expect_err("nothing was asked");
    assert_eq!(refused.code(), Code::InvalidArgument, "{refused}");

    let mut client = server.client("root").await;
    let forward = client.port_forward(Silent::<PortForwardRequest>::new());
    let refused = tokio::time::timeout(PATIENCE, forward).await;
    let refused = refused.expect("a forward waits without a deadline");
    assert!(refused.is_err());
}

fn logs() -> LogsRequest {
    LogsRequest {
        name: String::from("web"),
        follow: true,
        ..LogsRequest::default()
    }
}

fn watch() -> WatchRequest {
    WatchRequest {
        kind: String::from("VirtualMachineInstance"),
        ..WatchRequest::default()
    }
}

/// The attack of many connections with many streams that ask for much and read nothing.
#[tokio::test]
async fn a_caller_that_reads_nothing_pins_no_more_than_its_budget_over_all_its_connections() {
    const LIMITS: CallLimits = CallLimits {
        calls_each: 24,
        calls: 1000,
        bytes_each: 1 << 20,
        bytes: 8 << 20,
    };
    let registry = FakeRegistry::new();
    let mut grants = everywhere();
    grants.push(grant(Role::Console, None, "mallory"));
    let server = Server::limited(registry.clone(), grants, LIMITS);
    let (mut open, mut refused) = (Vec::new(), 0);
    let deaf = Arc::default();
    for _ in 0..4 {
        let channel = server.channel("mallory", &deaf, 1 << 30).await;
        let mut client = NodeServiceClient::new(channel);
        for _ in 0..8 {
            match client.logs(logs()).await {
                Ok(stream) => open.push((client.clone(), stream)),
                Err(status) => {
                    assert_eq!(status.code(), Code::Unavailable, "{status}");
                    assert!(status.message().contains("over all its connections"));
                    refused += 1;
                }
            }
        }
    }
    assert_eq!((open.len(), refused), (24, 8));
    deaf.store(true, Ordering::Relaxed);
    registry.print();
    // It stands still when as much waits as may, which nothing signals: nothing more is made in a while.
    let mut made = usize::MAX;
    while made != registry.logged() || made == 0 {
        made = registry.logged();
        // A pause in which a stream that is not full would make more.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Besides, each stream has a frame, a piece with the encoder and one in the channel, and each transport is full.
    let most = LIMITS.bytes_each + 24 * 3 * (PIECE + 1024) + 4 * (128 << 10);
    assert!(made <= most, "{made} bytes were made, and {most} may be");

    // Others are served meanwhile.
    let mut other = server.client("root").await;
    let served = other.get_node_info(GetNodeInfoRequest {}).await;
    served.expect("is served");
    drop(open);
    let again = async {
        let mut client = server.client("mallory").await;
        while client.logs(logs()).await.is_err() {
            tokio::task::yield_now().await;
        }
    };
    let again = tokio::time::timeout(PATIENCE, again).await;
    again.expect("what has ended is free again");
}

#[tokio::test]
async fn a_grant_that_is_withdrawn_ends_the_streams_of_its_holder_and_no_others() {
    let registry = FakeRegistry::new();
    let mut grants = everywhere();
    grants.push(grant(Role::Console, Some(&["a", "default"]), "alice"));
    let server = Server::start(registry.clone(), grants);
    let (mut alice, mut root) = (server.client("alice").await, server.client("root").await);
    let mut hers = alice.watch(watch()).await.expect("is granted").into_inner();
    let mut others = root.watch(watch()).await.expect("is granted").into_inner();
    for stream in [&mut hers, &mut others] {
        stream
            .message()
            .await
            .expect("in order")
            .expect("a bookmark");
    }
    // A console that is not read, into which she could go on to type.
    let attach = ConsoleAttach {
        name: String::from("web"),
        ..ConsoleAttach::default()
    };
    let attach = ConsoleRequest {
        body: Some(console_request::Body::Attach(attach)),
    };
    let requests = tokio_stream::once(attach).chain(Silent::new());
    let console = alice
        .console(Request::new(requests))
        .await
        .expect("is granted");
    let mut guest = registry.guest().expect("is attached");

    // Another namespace of hers than the one that is in use.
    let mut fewer = everywhere();
    fewer.push(grant(Role::Console, Some(&["default"]), "alice"));
    server.access.set(policy(fewer));
    let ended = tokio::time::timeout(PATIENCE, hers.message()).await;
    let ended = ended.expect("ends").expect_err("is withdrawn");
    assert_eq!(ended.code(), Code::PermissionDenied, "{ended}");
    let typed = tokio::time::timeout(PATIENCE, guest.read(&mut [0])).await;
    assert_eq!(typed.expect("the console ends").expect("in order"), 0);
    drop(console);
    // A change that takes nothing from a caller ends nothing of it.
    server.access.set(policy(everywhere()));
    let quiet = tokio::time::timeout(Duration::from_millis(300), others.message()).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

#[tokio::test]
async fn a_request_that_does_not_come_as_a_whole_is_given_up() {
    let server = Server::start(FakeRegistry::new(), everywhere());
    let channel = server.channel("root", &Arc::default(), 1 << 16).await;
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.expect("is connected");
    // A call of one request, which never comes.
    let path = PathAndQuery::from_static("/kvmlet.node.v1.NodeService/GetNodeInfo");
    let never = Request::new(Silent::<GetNodeInfoRequest>::new());
    let codec = ProstCodec::<GetNodeInfoRequest, GetNodeInfoResponse>::default();
    let answer = client.client_streaming(never, path, codec);
    let refused = tokio::time::timeout(PATIENCE, answer).await;
    let refused = refused.expect("a call waits without a deadline");
    assert_eq!(
        refused.expect_err("nothing was asked").code(),
        Code::DeadlineExceeded
    );
}

#[tokio::test]
async fn an_answer_that_was_made_as_a_whole_counts_until_it_is_read() {
    let limits = CallLimits {
        bytes_each: 64 << 10,
        ..CallLimits::default()
    };
    let registry = FakeRegistry::new();
    let note = "n".repeat(100 << 10);
    let manifests = ["a", "b"].map(|namespace| {
        format!(
            "{{apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {{name: web, namespace: \
             {namespace}, uid: {namespace}, annotations: {{note: {note}}}}}}}"
        )
    });
    registry.put(&manifests);
    let mut grants = everywhere();
    grants.push(grant(Role::View, Some(&["a"]), "alice"));
    let server = Server::limited(registry, grants, limits);
    let list = || ListRequest {
        kind: String::from("VirtualMachineInstance"),
        ..ListRequest::default()
    };
    // Read, it is charged no longer: any number of them in a row.
    let mut alice = server.client("alice").await;
    for _ in 0..5 {
        let listed = alice.list(list()).await.expect("is granted").into_inner();
        let seen: Vec<_> = listed
            .items
            .iter()
            .filter_map(|item| item.metadata())
            .collect();
        assert_eq!(seen.len(), 1);
        assert_eq!(seen[0].namespace, "a");
    }
    // A watch that is not read keeps what it has to tell, and nothing large is made for its caller meanwhile.
    let mut root = server.client("root").await;
    let unread = root.watch(watch()).await.expect("is granted");
    let refused = loop {
        match root.list(list()).await {
            Ok(_) => tokio::task::yield_now().await,
            Err(status) => break status,
        }
    };
    assert_eq!(refused.code(), Code::Unavailable, "{refused}");
    assert!(
        refused.message().contains("read what was asked for before"),
        "{refused}"
    );
    alice.list(list()).await.expect("is not in the way");
    drop(unread);
}

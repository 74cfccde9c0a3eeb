//! The service as a client meets it, with a registry of tests behind it.

use std::time::Duration;

use proto_node::node::{ConsoleRequest, GetNodeInfoRequest, PortForwardRequest, Role};
use tonic::Code;

use crate::testing::{FakeRegistry, Server, Silent, grant};

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

//! VMIs among other objects: they are applied, replaced and patched by the rules of all.

use anyhow::Context;
use integration::agent::{Agent, GuestSpec};
use integration::host::{self, Host};
use integration::skip_if;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::{ApplyRequest, Object, apply_response, object};
use proto_node::vmi::VirtualMachineInstance;
use serde_json::Value;
use tonic::transport::Endpoint;

use super::{fail, put, started, succeed};

const FILE: &str = "-f /run/kvmlet-test/object.yaml";

const NAME: &str = "virtualmachineinstance.kubevirt.io/web";

/// A guest that says no more than it has to: the bus of its disk, the hardware address of its NIC and much else are filled in.
fn manifest(labels: &str) -> String {
    let full = GuestSpec::testguest("web", "tests=none then=idle").manifest();
    let bus = "        disk:\n          bus: virtio\n";
    assert!(full.contains(bus), "{full}");
    full.replace(bus, "        disk: {}\n").replace(
        "  name: web\n",
        &format!("  name: web\n  labels: {labels}\n"),
    )
}

fn labels(agent: &Agent<'_, Host>) -> anyhow::Result<Value> {
    let labels = succeed(agent, "get vmi web -o jsonpath={.metadata.labels}")?;
    Ok(serde_json::from_str(&labels)?)
}

/// Applies a manifest as clients do that know of VMIs alone.
fn apply_by_node_service(
    host: &Host,
    manifest: &str,
) -> anyhow::Result<Result<apply_response::Result, tonic::Status>> {
    let documents = proto_node::manifest::parse(manifest.as_bytes())?;
    let document = documents.into_iter().next().context("a document")?;
    let vmi: VirtualMachineInstance = match document.object {
        Ok(Object {
            kind: Some(object::Kind::VirtualMachineInstance(vmi)),
        }) => vmi,
        other => anyhow::bail!("no VMI: {other:?}"),
    };
    let socket = host.path("/run/kvmlet/kvmlet.sock");
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        let mut client = NodeServiceClient::new(endpoint.connect().await?);
        let request = ApplyRequest {
            object: Some(Object::from(vmi)),
            ..ApplyRequest::default()
        };
        let applied = client.apply(request).await;
        Ok(applied.map(|response| response.into_inner().result()))
    })
}

#[test]
fn an_apply_of_a_vmi_takes_back_what_it_set_and_leaves_what_others_set() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let apply = |labels: &str| {
        put(&host, &manifest(labels))?;
        succeed(&agent, &format!("apply {FILE}"))
    };
    assert_eq!(
        apply("{mine: x, tier: front}")?,
        format!("{NAME} created\n")
    );
    succeed(&agent, "label vmi web a=b")?;
    succeed(&agent, "annotate vmi web c=d")?;
    assert_eq!(
        apply("{mine: x, tier: front}")?,
        format!("{NAME} unchanged\n")
    );
    assert_eq!(apply("{tier: back}")?, format!("{NAME} configured\n"));
    assert_eq!(
        labels(&agent)?,
        serde_json::json!({"a": "b", "tier": "back"})
    );
    let note = "get vmi web -o jsonpath={.metadata.annotations.c}";
    assert_eq!(succeed(&agent, note)?, "d");

    // A replacement has nothing but what it says, and what is filled in.
    assert_eq!(
        succeed(&agent, &format!("replace {FILE}"))?,
        format!("{NAME} replaced\n")
    );
    assert_eq!(labels(&agent)?, serde_json::json!({"tier": "back"}));
    assert_eq!(succeed(&agent, note)?, "");
    let generation = "get vmi web -o jsonpath={.metadata.generation}";
    assert_eq!(succeed(&agent, generation)?, "1");
    Ok(())
}

#[test]
fn the_spec_of_a_vmi_is_immutable_by_one_rule_whoever_changes_it() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let same = manifest("{tier: front}");
    agent.apply(&same)?;
    let before = succeed(&agent, "get vmi web -o jsonpath={.spec}")?;
    for manifest in [
        same.replace("guest: 16Mi", "guest: 32Mi"),
        same.replace("disk: {}", "disk: {bus: virtio, readonly: true}"),
        same.replace("  terminationGracePeriodSeconds: 10\n", ""),
    ] {
        assert_ne!(manifest, same);
        put(&host, &manifest)?;
        for verb in ["apply", "replace"] {
            let refused = fail(&agent, &format!("{verb} {FILE}"))?;
            let words =
                "spec: Forbidden: update of VMI object is restricted (delete web and apply again)";
            assert!(refused.contains(words), "{verb}: {refused}");
        }
        let refused = apply_by_node_service(&host, &manifest)?.expect_err("another spec");
        let fields = format!("{:?}", proto_node::violations(&refused));
        let words = "update of VMI object is restricted";
        assert!(fields.contains(words), "{refused}: {fields}");
    }
    let refused = fail(
        &agent,
        "patch vmi web -p '{spec: {domain: {memory: {guest: 32Mi}}}}'",
    )?;
    assert!(
        refused.contains("update of VMI object is restricted"),
        "{refused}"
    );
    assert_eq!(succeed(&agent, "get vmi web -o jsonpath={.spec}")?, before);

    // What the defaults say anyway changes nothing.
    let said = same.replace("disk: {}", "disk: {bus: virtio}");
    put(&host, &said)?;
    succeed(&agent, &format!("apply {FILE}"))?;
    succeed(
        &agent,
        "patch vmi web -p '{spec: {terminationGracePeriodSeconds: 10}}'",
    )?;
    assert_eq!(succeed(&agent, "get vmi web -o jsonpath={.spec}")?, before);
    let unchanged = apply_by_node_service(&host, &same)?.context("the same spec")?;
    assert_eq!(unchanged, apply_response::Result::Configured);
    let unchanged = apply_by_node_service(&host, &same)?.context("the same manifest")?;
    assert_eq!(unchanged, apply_response::Result::Unchanged);
    Ok(())
}

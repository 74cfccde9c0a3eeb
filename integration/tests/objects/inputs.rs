//! What a write is judged on beside its own object: it is as it was when the write is stored.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::host::{self, Host};
use integration::skip_if;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::{CreateObjectRequest, DeleteObjectRequest, ObjectName};
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};

use super::started;

/// How long an instance type comes and goes while machines are made that name it.
const WHILE: Duration = Duration::from_secs(8);

const KIND: &str = "VirtualMachineInstancetype";

async fn client(host: &Host) -> anyhow::Result<ObjectServiceClient<Channel>> {
    let socket = host.path("/run/kvmlet/kvmlet.sock");
    let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
    let channel = endpoint.connect().await.context("the agent")?;
    Ok(ObjectServiceClient::new(channel))
}

fn version(object: &[u8]) -> anyhow::Result<u64> {
    let object: Value = serde_json::from_slice(object)?;
    let version = object["metadata"]["resourceVersion"].as_str();
    Ok(version.context("a version")?.parse()?)
}

/// Makes an instance type and deletes it until others are done. Returns from which version to which it was there each time.
async fn come_and_go(host: &Host, is_over: &AtomicBool) -> anyhow::Result<Vec<(u64, u64)>> {
    let mut client = client(host).await?;
    let object = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": KIND,
        "metadata": {"name": "small"}, "spec": {"cpu": {"guest": 1}, "memory": {"guest": "64Mi"}},
    });
    let mut times = Vec::new();
    while !is_over.load(Ordering::Relaxed) {
        let request = CreateObjectRequest {
            object: object.to_string().into_bytes(),
            ..CreateObjectRequest::default()
        };
        let made = client.create_object(request).await?.into_inner();
        let request = DeleteObjectRequest {
            name: Some(ObjectName {
                kind: KIND.to_owned(),
                name: String::from("small"),
                ..ObjectName::default()
            }),
            ..DeleteObjectRequest::default()
        };
        let gone = client.delete_object(request).await?.into_inner();
        ensure!(gone.gone, "an instance type has no finalizers");
        times.push((version(&made.object)?, version(&gone.object)?));
    }
    Ok(times)
}

/// Makes machines of the instance type. Returns at which version each was made, and whether its admission found the type.
async fn make_machines(host: &Host, is_over: &AtomicBool) -> anyhow::Result<Vec<(u64, bool)>> {
    let mut client = client(host).await?;
    let mut made = Vec::new();
    let begun = Instant::now();
    while begun.elapsed() < WHILE {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"generateName": "machine-"},
            "spec": {
                "runStrategy": "Halted", "instancetype": {"name": "small", "kind": KIND},
                "template": {"spec": {"domain": {"devices": {}}}},
            },
        });
        let request = CreateObjectRequest {
            object: object.to_string().into_bytes(),
            ..CreateObjectRequest::default()
        };
        let created = client.create_object(request).await?.into_inner();
        let mut warnings = created.warnings.iter();
        let is_missed = warnings.any(|warning| warning.contains("\"small\" not found"));
        made.push((version(&created.object)?, !is_missed));
    }
    is_over.store(true, Ordering::Relaxed);
    Ok(made)
}

#[test]
fn a_machine_is_judged_on_the_instance_type_that_is_there_when_it_is_stored() -> anyhow::Result<()>
{
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let _agent = started(&host)?;
    let runtime = tokio::runtime::Runtime::new()?;
    let is_over = AtomicBool::new(false);
    let (times, made) = runtime.block_on(async {
        tokio::try_join!(come_and_go(&host, &is_over), make_machines(&host, &is_over))
    })?;
    let is_there = |version: u64| {
        let mut times = times.iter();
        times.any(|(from, until)| *from < version && version < *until)
    };
    let wrong: Vec<&(u64, bool)> = made
        .iter()
        .filter(|(version, found)| is_there(*version) != *found)
        .collect();
    assert!(
        wrong.is_empty(),
        "{} of {} machines: {wrong:?}",
        wrong.len(),
        made.len()
    );
    // Both were met with, or nothing was tried.
    for found in [true, false] {
        assert!(made.iter().any(|(_, was)| *was == found), "{found}");
    }
    Ok(())
}

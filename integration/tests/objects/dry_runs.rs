//! Dry runs: each write, judged only, stores nothing and is answered as it is when it is carried out.

use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use integration::agent::GuestSpec;
use integration::host::{self, Host};
use integration::skip_if;
use proto_node::node::node_service_client::NodeServiceClient;
use proto_node::node::object_service_client::ObjectServiceClient;
use proto_node::node::{
    ApplyObjectRequest, ApplyRequest, CreateObjectRequest, DeleteObjectRequest, ListKindsRequest,
    ListObjectsRequest, Object, ObjectName, PatchObjectRequest, Preconditions, Propagation,
    ReplaceObjectRequest, SetScaleRequest,
};
use proto_node::vmi::VirtualMachineInstance;
use serde_json::{Value, json};
use tonic::transport::{Channel, Endpoint};
use tonic::{Response, Status};

use super::{PATIENCE, SECRET, put, started, succeed};

/// What does not change for so long is supposed to stay as it is.
const QUIET: Duration = Duration::from_millis(100);

/// One write.
#[derive(Clone, Debug)]
enum Write {
    Create(Value),
    Apply(Value),
    Replace(Value),
    Patch(ObjectName, &'static str, Value),
    Scale(ObjectName, i32),
    Delete(ObjectName, Propagation, &'static str),
    /// By the service that knows of VMIs alone.
    ApplyVmi(Value),
}

struct Clients {
    objects: ObjectServiceClient<Channel>,
    vmis: NodeServiceClient<Channel>,
}

impl Clients {
    async fn of(host: &Host) -> anyhow::Result<Self> {
        let socket = host.path("/run/kvmlet/kvmlet.sock");
        let endpoint = Endpoint::from_shared(format!("unix://{}", socket.display()))?;
        let channel = endpoint.connect().await.context("the agent")?;
        Ok(Self {
            objects: ObjectServiceClient::new(channel.clone()),
            vmis: NodeServiceClient::new(channel),
        })
    }

    /// What a write is answered, but for what no two writes have alike.
    async fn carry_out(&mut self, write: &Write, dry_run: bool) -> Result<String, String> {
        let answered = self.answer(write, dry_run).await;
        answered.map_err(|status| {
            let fields = proto_node::violations(&status);
            format!("{:?}: {}: {fields:?}", status.code(), status.message())
        })
    }

    async fn answer(&mut self, write: &Write, dry_run: bool) -> Result<String, Status> {
        let objects = &mut self.objects;
        let bytes = |object: &Value| object.to_string().into_bytes();
        Ok(match write.clone() {
            Write::Create(object) => {
                let request = CreateObjectRequest {
                    object: bytes(&object),
                    dry_run,
                    ..CreateObjectRequest::default()
                };
                let answer = objects.create_object(request).await?.into_inner();
                format!("created {}", name_in(&answer.object))
            }
            Write::Apply(object) => {
                let request = ApplyObjectRequest {
                    object: bytes(&object),
                    dry_run,
                    ..ApplyObjectRequest::default()
                };
                let answer = objects.apply_object(request).await?.into_inner();
                format!("{:?} {}", answer.result(), name_in(&answer.object))
            }
            Write::Replace(object) => {
                let request = ReplaceObjectRequest {
                    object: bytes(&object),
                    dry_run,
                    ..ReplaceObjectRequest::default()
                };
                let answer = objects.replace_object(request).await?.into_inner();
                format!("changed: {}", answer.changed)
            }
            Write::Patch(name, subresource, patch) => {
                let request = PatchObjectRequest {
                    name: Some(name),
                    subresource: subresource.to_owned(),
                    merge_patch: bytes(&patch),
                    dry_run,
                    ..PatchObjectRequest::default()
                };
                let answer = objects.patch_object(request).await?.into_inner();
                format!("changed: {}", answer.changed)
            }
            Write::Scale(name, replicas) => {
                let request = SetScaleRequest {
                    name: Some(name),
                    replicas,
                    dry_run,
                    ..SetScaleRequest::default()
                };
                let scale = objects.set_scale(request).await?.into_inner().scale;
                format!("scaled to {}", scale.unwrap_or_default().spec_replicas)
            }
            Write::Delete(name, propagation, uid) => {
                self.delete(name, propagation, uid, dry_run).await?
            }
            Write::ApplyVmi(object) => self.apply_vmi(object, dry_run).await?,
        })
    }

    async fn delete(
        &mut self,
        name: ObjectName,
        propagation: Propagation,
        uid: &str,
        dry_run: bool,
    ) -> Result<String, Status> {
        let request = DeleteObjectRequest {
            name: Some(name),
            preconditions: Some(Preconditions {
                uid: uid.to_owned(),
                ..Preconditions::default()
            }),
            propagation: propagation.into(),
            dry_run,
            ..DeleteObjectRequest::default()
        };
        let answer = self.objects.delete_object(request).await;
        let answer = answer.map(Response::into_inner)?;
        let object: Value = serde_json::from_slice(&answer.object).unwrap_or_default();
        Ok(format!(
            "gone: {}, finalizers {}",
            answer.gone, object["metadata"]["finalizers"]
        ))
    }

    async fn apply_vmi(&mut self, object: Value, dry_run: bool) -> Result<String, Status> {
        let vmi = proto_node::from_json::<VirtualMachineInstance>(object);
        let vmi = vmi.map_err(|errors| Status::internal(format!("{errors:?}")))?;
        let request = ApplyRequest {
            object: Some(Object::from(vmi)),
            dry_run,
            ..ApplyRequest::default()
        };
        let answer = self.vmis.apply(request).await?.into_inner();
        Ok(format!("{:?}", answer.result()))
    }

    /// All that callers wrote. What agent and controllers report of it may change at any time.
    async fn stored(&mut self) -> anyhow::Result<Vec<Value>> {
        let kinds = self.objects.list_kinds(ListKindsRequest {}).await?;
        let mut stored = Vec::new();
        for kind in kinds.into_inner().kinds {
            if kind.kind == "Event" {
                continue;
            }
            let request = ListObjectsRequest {
                kind: kind.kind,
                ..ListObjectsRequest::default()
            };
            let listed = self.objects.list_objects(request).await?.into_inner();
            for item in listed.items {
                let mut object: Value = serde_json::from_slice(&item)?;
                if let Some(members) = object.as_object_mut() {
                    members.remove("status");
                }
                if let Some(metadata) = object["metadata"].as_object_mut() {
                    metadata.remove("resourceVersion");
                    metadata.remove("managedFields");
                }
                stored.push(object);
            }
        }
        Ok(stored)
    }

    /// The same once the agent has nothing left to do about the write before: an object that is deleted goes later.
    async fn settled(&mut self) -> anyhow::Result<Vec<Value>> {
        let begun = Instant::now();
        let mut before = self.stored().await?;
        loop {
            // That the agent writes nothing more is observed for a while.
            tokio::time::sleep(QUIET).await;
            let now = self.stored().await?;
            if now == before {
                return Ok(now);
            }
            ensure!(begun.elapsed() < PATIENCE, "objects change for ever");
            before = now;
        }
    }

    /// Carries a write out after a dry run of it; both have to be answered alike, and as is `wanted`.
    async fn compare(&mut self, write: &Write, wanted: &str) -> anyhow::Result<()> {
        let before = self.settled().await?;
        let tried = self.carry_out(write, true).await;
        ensure!(self.stored().await? == before, "{write:?} is stored");
        let done = self.carry_out(write, false).await;
        ensure!(tried == done, "{write:?}: {tried:?}, but {done:?}");
        let text = done.unwrap_or_else(|refused| refused);
        ensure!(text.contains(wanted), "{write:?}: {text}");
        Ok(())
    }
}

fn name_in(object: &[u8]) -> String {
    let object: Value = serde_json::from_slice(object).unwrap_or_default();
    object["metadata"]["name"].to_string()
}

fn name(kind: &str, name: &str) -> ObjectName {
    ObjectName {
        kind: kind.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

fn map(name: &str, namespace: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": namespace}, "data": {"mode": mode},
    })
}

/// A guest that is never started: its status does not change.
fn vmi(name: &str, namespace: &str) -> anyhow::Result<Value> {
    let spec = GuestSpec::testguest(name, "tests=none then=idle").without_devices();
    let documents = proto_node::manifest::parse(spec.manifest().as_bytes())?;
    let document = documents.into_iter().next().context("a document")?;
    let Ok(object) = document.object else {
        anyhow::bail!("no object");
    };
    let mut value = object.to_json();
    value["metadata"]["namespace"] = json!(namespace);
    Ok(value)
}

fn with(mut object: Value, path: &str, value: Value) -> Value {
    if let Some(place) = object.pointer_mut(path) {
        *place = value;
    }
    object
}

fn creates() -> anyhow::Result<Vec<(Write, &'static str)>> {
    let set = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": "set", "namespace": "default"},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": {"app": "set"}},
            "template": {"metadata": {"labels": {"app": "set"}}, "spec": vmi("x", "default")?["spec"]},
        },
    });
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "node1"}});
    let no_memory = with(vmi("bad", "default")?, "/spec/domain/memory", Value::Null);
    let is_ending = "because it is being terminated";
    Ok(vec![
        (Write::Create(map("a", "default", "slow")), "created \"a\""),
        (Write::Create(map("a", "default", "slow")), "AlreadyExists"),
        (
            Write::Create(map("A!", "default", "slow")),
            "InvalidArgument",
        ),
        (Write::Create(map("a", "ending", "slow")), is_ending),
        (Write::Create(node.clone()), "written by the agent alone"),
        (Write::Create(set), "created \"set\""),
        (Write::Create(vmi("web", "default")?), "created \"web\""),
        (Write::Create(vmi("web", "default")?), "AlreadyExists"),
        (Write::Create(vmi("web", "ending")?), is_ending),
        (Write::Create(no_memory), "InvalidArgument"),
        (Write::ApplyVmi(vmi("web2", "default")?), "Created"),
        (Write::ApplyVmi(vmi("web2", "default")?), "Unchanged"),
        (Write::ApplyVmi(vmi("web2", "ending")?), is_ending),
        (Write::Apply(map("a", "ending", "slow")), is_ending),
        (Write::Apply(vmi("web3", "ending")?), is_ending),
        (Write::Apply(vmi("web3", "default")?), "Created \"web3\""),
        (Write::Apply(map("b", "default", "slow")), "Created \"b\""),
        (Write::Apply(node), "written by the agent alone"),
    ])
}

fn changes() -> anyhow::Result<Vec<(Write, &'static str)>> {
    let labelled = |name: &str| -> anyhow::Result<Value> {
        let mut object = vmi(name, "default")?;
        object["metadata"]["labels"] = json!({"tier": "front"});
        Ok(object)
    };
    let other = |name: &str| -> anyhow::Result<Value> {
        let memory = json!({"guest": "32Mi"});
        Ok(with(vmi(name, "default")?, "/spec/domain/memory", memory))
    };
    let is_restricted = "update of VMI object is restricted";
    let bigger = json!({"spec": {"domain": {"memory": {"guest": "32Mi"}}}});
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    let guest = |text: &str| name("VirtualMachineInstance", text);
    let data = |text: &str| name("ConfigMap", text);
    let set = |text: &str| name("VirtualMachineInstanceReplicaSet", text);
    Ok(vec![
        (Write::Apply(map("b", "default", "fast")), "Configured"),
        (Write::Apply(map("b", "default", "fast")), "Unchanged"),
        (Write::Apply(labelled("web3")?), "Configured"),
        (Write::Apply(labelled("web3")?), "Unchanged"),
        (Write::Apply(other("web3")?), is_restricted),
        (Write::ApplyVmi(labelled("web2")?), "Configured"),
        (Write::ApplyVmi(other("web2")?), is_restricted),
        (Write::Replace(map("a", "default", "fast")), "changed: true"),
        (Write::Replace(map("none", "default", "fast")), "NotFound"),
        (Write::Replace(labelled("web")?), "changed: true"),
        (Write::Replace(labelled("web")?), "changed: false"),
        (Write::Replace(other("web")?), is_restricted),
        (
            Write::Patch(data("a"), "", json!({"data": {"mode": "x"}})),
            "changed: true",
        ),
        (
            Write::Patch(data("a"), "", json!({"data": {"mode": "x"}})),
            "changed: false",
        ),
        (
            Write::Patch(data("a"), "", json!({"data": {"mode": 1}})),
            "InvalidArgument",
        ),
        (Write::Patch(data("none"), "", label.clone()), "NotFound"),
        (
            Write::Patch(guest("web"), "", label.clone()),
            "changed: true",
        ),
        (Write::Patch(guest("web"), "", bigger), is_restricted),
        (
            Write::Patch(guest("web"), "status", json!({"status": {}})),
            "is what its guest is",
        ),
        (
            Write::Patch(name("Node", "node1"), "", label),
            "written by the agent alone",
        ),
        (Write::Scale(set("set"), 0), "scaled to 0"),
        (Write::Scale(data("a"), 1), "has no scale"),
        (Write::Scale(set("none"), 1), "NotFound"),
    ])
}

fn deletes(event: &str) -> Vec<(Write, &'static str)> {
    let delete =
        |kind: &str, text: &str| Write::Delete(name(kind, text), Propagation::Background, "");
    let orphan = |kind: &str, text: &str| Write::Delete(name(kind, text), Propagation::Orphan, "");
    let guest = "VirtualMachineInstance";
    vec![
        (delete("ConfigMap", "none"), "NotFound"),
        (
            Write::Delete(name("ConfigMap", "a"), Propagation::Background, "another"),
            "Aborted",
        ),
        (
            orphan("ConfigMap", "a"),
            "gone: false, finalizers [\"orphan\"]",
        ),
        (delete("ConfigMap", "b"), "gone: true"),
        (delete("Namespace", "default"), "may not be deleted"),
        (delete("Node", "node1"), "written by the agent alone"),
        (delete("Event", event), "gone: true"),
        (delete("Event", event), "NotFound"),
        (delete(guest, "none"), "NotFound"),
        (
            Write::Delete(name(guest, "web"), Propagation::Background, "another"),
            "Aborted",
        ),
        (delete(guest, "web"), "gone: false"),
        (orphan(guest, "web2"), "\"orphan\""),
        (
            delete("VirtualMachineInstanceReplicaSet", "set"),
            "gone: true",
        ),
    ]
}

#[test]
fn a_dry_run_stores_nothing_and_is_answered_as_the_write_is() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    // Nothing is started on a node that is cordoned.
    succeed(&agent, "cordon")?;
    let kept = "metadata: {name: kept, namespace: ending, finalizers: [example.com/keep]}";
    agent.apply(&format!(
        "apiVersion: v1\nkind: Namespace\nmetadata: {{name: ending}}\n---\n\
         apiVersion: v1\nkind: Namespace\nmetadata: {{name: default}}\n---\n\
         apiVersion: v1\nkind: ConfigMap\n{kept}\n"
    ))?;
    succeed(&agent, "delete namespace ending --wait=false")?;
    let runtime = tokio::runtime::Runtime::new()?;
    runtime.block_on(async {
        let mut clients = Clients::of(&host).await?;
        for (write, wanted) in creates()?.into_iter().chain(changes()?) {
            clients.compare(&write, wanted).await?;
        }
        anyhow::Ok(())
    })?;
    let event = succeed(
        &agent,
        "get events --field-selector involvedObject.name=web -o jsonpath='{.items[0].metadata.name}'",
    )?;
    runtime.block_on(async {
        let mut clients = Clients::of(&host).await?;
        for (write, wanted) in deletes(&event) {
            clients.compare(&write, wanted).await?;
        }
        anyhow::Ok(())
    })
}

#[test]
fn kvmctl_says_what_a_delete_would_do() -> anyhow::Result<()> {
    skip_if!(host::without_host(), Ok(()));
    let host = Host::enter()?;
    let agent = started(&host)?;
    agent.add_image("/run/bin/testguest", "testguest")?;
    let guest = GuestSpec::testguest("web", "tests=none then=idle").without_devices();
    agent.apply(&guest.manifest())?;
    put(&host, SECRET)?;
    succeed(&agent, "apply -f /run/kvmlet-test/object.yaml")?;
    let vmi = "virtualmachineinstance.kubevirt.io \"web\" deleted";
    for (arguments, said) in [
        (
            "vmi web --dry-run=server",
            format!("{vmi} (server dry run)\n"),
        ),
        ("vmi web --dry-run=client", format!("{vmi} (dry run)\n")),
        (
            "secret web --dry-run=server --cascade=orphan",
            "secret \"web\" deleted (server dry run)\n".to_owned(),
        ),
        (
            "-f /run/kvmlet-test/object.yaml --dry-run=client",
            "secret \"web\" deleted (dry run)\n".to_owned(),
        ),
        (
            "secret none --dry-run=client --ignore-not-found",
            String::new(),
        ),
    ] {
        assert_eq!(
            succeed(&agent, &format!("delete {arguments}"))?,
            said,
            "{arguments}"
        );
    }
    for (arguments, words) in [
        ("node node1 --dry-run=server", "written by the agent alone"),
        ("vmi none --dry-run=server", "NotFound"),
        ("vmi none --dry-run=client", "NotFound"),
    ] {
        let refused = super::fail(&agent, &format!("delete {arguments}"))?;
        assert!(refused.contains(words), "{arguments}: {refused}");
    }
    let marked = "get vmi web -o jsonpath={.metadata.deletionTimestamp}";
    assert_eq!(succeed(&agent, marked)?, "");
    succeed(&agent, "get secret web")?;
    Ok(())
}

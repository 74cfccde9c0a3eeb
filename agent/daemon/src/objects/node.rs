//! The Node object: what this node is, for whoever reads objects.

use agent_domain::ObjectSource;
use agent_objects::{Object, ObjectId, ObjectKind, Part, Written};
use agent_sources::{ApiError, ObjectRegistry, WriteBy};
use proto_node::node::{GetNodeInfoResponse, NodeResources};
use serde_json::{Map, Value, json};

use super::inputs::Inputs;
use super::wait::wait;
use super::write::Decision;
use super::{Objects, kind_of};
use crate::{clock, facts};

const KIND: &str = "Node";

/// A condition without its times.
struct NodeCondition {
    kind: &'static str,
    is_true: bool,
    reason: String,
    message: String,
}

impl Objects {
    /// Has the Node object say what this node is now, by what it says of itself (`info`).
    ///
    /// # Errors
    /// Why it stays as it was.
    pub(crate) fn publish_node(
        &self,
        info: impl Fn() -> Result<GetNodeInfoResponse, ApiError> + Send + Sync,
    ) -> Result<(), ApiError> {
        let kind = kind_of(KIND)?;
        let name = self.node.name.clone();
        let (id, by) = (id_of(&name), own());
        let published = self.change(kind, (&id, Part::Main), &by, |present| {
            let created = present.is_none();
            Ok(Decision {
                written: Written::Changed(self.node_object(kind, info()?, present)?),
                created,
                warnings: Vec::new(),
                inputs: Inputs::default(),
            })
        });
        wait(published)?;
        // A node whose name was changed has been another one.
        for former in self.list_objects(KIND)?.items {
            if former.metadata.name != name {
                let id = former.id();
                let removed = self.change(kind, (&id, Part::Main), &by, |present| {
                    Ok(Decision {
                        written: present.map_or(Written::Unchanged, Written::Gone),
                        created: false,
                        warnings: Vec::new(),
                        inputs: Inputs::default(),
                    })
                });
                wait(removed)?;
            }
        }
        Ok(())
    }

    fn node_object(
        &self,
        kind: &ObjectKind,
        info: GetNodeInfoResponse,
        present: Option<Object>,
    ) -> Result<Object, ApiError> {
        let name = &self.node.name;
        let mut object = match present {
            Some(present) => present,
            None => self.new_object(kind, bare(kind, name))?,
        };
        object.metadata.labels = self.node.configured_caps().labels;
        let spec = Map::from_iter(
            info.unschedulable
                .then(|| (String::from("unschedulable"), json!(true))),
        );
        let before = object.content.remove("spec");
        if before.is_some_and(|before| before.as_object() != Some(&spec)) {
            object.metadata.generation += 1;
        }
        let system = &self.node.facts.system;
        let mut present_conditions = vec![self.readiness()];
        present_conditions.extend(
            self.node
                .maintenance
                .closed(name)
                .map(|closed| NodeCondition {
                    kind: "SchedulingDisabled",
                    is_true: true,
                    reason: closed.reason.to_owned(),
                    message: closed.message,
                }),
        );
        let status = json!({
            "capacity": quantities(&info.capacity.unwrap_or_default()),
            "allocatable": quantities(&info.allocatable.unwrap_or_default()),
            "conditions": conditions(&present_conditions, object.content.get("status")),
            "addresses": [{"type": "Hostname", "address": name}],
            "nodeInfo": {
                "machineID": system.machine_id,
                "bootID": info.boot_id,
                "kernelVersion": system.kernel_version,
                "osImage": system.os_image,
                "containerRuntimeVersion": format!("kvmlet://{}", info.agent_version),
                "kubeletVersion": info.agent_version,
                "operatingSystem": "linux",
                "architecture": facts::ARCHITECTURE,
            },
        });
        object.content.insert(String::from("spec"), spec.into());
        object.content.insert(String::from("status"), status);
        Ok(object)
    }

    /// Whether guests can run here at all.
    fn readiness(&self) -> NodeCondition {
        let (is_true, reason, message) = match &self.node.facts.kvm {
            Ok(_) => (true, "KubeletReady", String::from("kvmlet starts guests")),
            Err(why) => (false, "NoKvm", why.clone()),
        };
        NodeCondition {
            kind: "Ready",
            is_true,
            reason: reason.to_owned(),
            message,
        }
    }
}

fn id_of(name: &str) -> ObjectId {
    ObjectId {
        kind: KIND.to_owned(),
        namespace: String::new(),
        name: name.to_owned(),
    }
}

fn own() -> WriteBy {
    WriteBy {
        source: ObjectSource::GrpcCaller,
        dry_run: false,
        idempotency_key: String::new(),
        manager: String::new(),
    }
}

fn bare(kind: &ObjectKind, name: &str) -> Object {
    let mut object = Object {
        api_version: kind.api_version(),
        kind: KIND.to_owned(),
        ..Object::default()
    };
    object.metadata.name = name.to_owned();
    object
}

/// Resources by Kubernetes' names, in its quantities.
fn quantities(resources: &NodeResources) -> Value {
    let millis = resources.cpu_millis;
    let cpu = if millis.is_multiple_of(1000) {
        (millis / 1000).to_string()
    } else {
        format!("{millis}m")
    };
    let mut all = Map::new();
    all.insert(String::from("cpu"), json!(cpu));
    let kib = |bytes: u64| json!(format!("{}Ki", bytes >> 10));
    all.insert(String::from("memory"), kib(resources.memory_bytes));
    for (page, bytes) in &resources.hugepages_bytes {
        all.insert(format!("hugepages-{page}"), kib(*bytes));
    }
    Value::Object(all)
}

/// Conditions with their times: one whose status is as before has kept it since then.
fn conditions(all: &[NodeCondition], before: Option<&Value>) -> Vec<Value> {
    let now = clock::rfc3339(clock::now());
    let before = before
        .and_then(|status| status.get("conditions"))
        .and_then(Value::as_array);
    let known = |kind: &str, status: &str| {
        let mut known = before.into_iter().flatten();
        known
            .find(|known| known["type"] == kind && known["status"] == status)
            .map(|known| known["lastTransitionTime"].clone())
    };
    let conditions = all.iter().map(|condition| {
        let status = if condition.is_true { "True" } else { "False" };
        json!({
            "type": condition.kind,
            "status": status,
            "reason": condition.reason,
            "message": condition.message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": known(condition.kind, status).unwrap_or_else(|| json!(now)),
        })
    });
    conditions.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_keeps_its_time_until_its_status_changes() {
        let ready = |is_true| {
            [NodeCondition {
                kind: "Ready",
                is_true,
                reason: String::from("Reason"),
                message: String::from("message"),
            }]
        };
        let then = "2020-01-01T00:00:00Z";
        let before = json!({"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": then},
        ]});
        let time = |is_true| {
            let all = conditions(&ready(is_true), Some(&before));
            all[0]["lastTransitionTime"].clone()
        };
        assert_eq!(time(true), then);
        assert_ne!(time(false), then);
    }

    #[test]
    fn resources_are_kubernetes_quantities() {
        let resources = NodeResources {
            memory_bytes: 3 << 30,
            cpu_millis: 1500,
            hugepages_bytes: [(String::from("2Mi"), 4 << 20)].into(),
            ..NodeResources::default()
        };
        assert_eq!(
            quantities(&resources),
            json!({"cpu": "1500m", "memory": "3145728Ki", "hugepages-2Mi": "4096Ki"})
        );
    }
}

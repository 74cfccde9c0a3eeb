//! A VMI of a kernel, a disk and a NIC, for tests of this crate and of those above it.

#[path = "node_caps.rs"]
mod node_caps;

use agent_domain::{Admitted, FieldError, Vmi};
use proto_node::{Node, from_node};
use serde_json::{Value, json};

/// Admits it with some members of `domain`, or `volumes`, replaced, on a node that has what it needs.
pub fn admit(domain: &Value) -> Result<Admitted, Vec<FieldError>> {
    let mut spec = json!({
        "memory": {"guest": "512Mi"},
        "firmware": {"kernelBoot": {"container": {"image": "dir:/images", "kernelPath": "/vmlinuz"}}},
        "devices": {"interfaces": [{"name": "net", "bridge": {}}]},
    });
    let mut volumes = json!([{"name": "scratch", "emptyDisk": {"capacity": "1Gi"}}]);
    for (member, value) in domain.as_object().unwrap() {
        match member.as_str() {
            "volumes" => volumes = value.clone(),
            member => spec[member] = value.clone(),
        }
    }
    let manifest = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "web", "uid": "7c1f8a52-0000-4000-8000-000000000001", "generation": 1},
        "spec": {
            "domain": spec,
            "networks": [{"name": "net", "multus": {"networkName": "lan"}}],
            "volumes": volumes,
        },
    });
    Vmi::admit(
        from_node(&Node::from(manifest)).unwrap(),
        &node_caps::caps(),
    )
}

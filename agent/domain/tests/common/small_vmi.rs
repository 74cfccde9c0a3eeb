//! A VMI of a kernel, a disk and a network card, for tests of this room and of those above it.

use std::collections::{BTreeMap, BTreeSet};

use agent_domain::{
    Admitted, FieldError, FirmwareLacks, NodeCaps, PathGrant, PathRules, PodPool, Vmi,
};
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
    let caps = NodeCaps {
        node_name: "node1".to_owned(),
        architecture: "amd64".to_owned(),
        max_vcpus: 8,
        memory_bytes: 16 << 30,
        networks: BTreeMap::from([("lan".to_owned(), "br0".to_owned())]),
        paths: PathRules {
            grants: vec![PathGrant {
                path: "/images".into(),
                namespaces: BTreeSet::from(["default".to_owned()]),
            }],
            ..PathRules::default()
        },
        pod_network: Some(PodPool {
            network: [10, 213, 0, 0].into(),
            prefix: 16,
            network6: None,
        }),
        labels: BTreeMap::new(),
        refuse_substitution: false,
        firmware: FirmwareLacks::default(),
    };
    Vmi::admit(from_node(&Node::from(manifest)).unwrap(), &caps)
}

//! A node with what small VMIs need.

use std::collections::{BTreeMap, BTreeSet};

use agent_domain::{MissingFirmware, NodeCaps, PathGrant, PathRules, PodPool};

/// Eight CPUs, 16 GiB, the network `lan`, images below `/images`, and the pod network by IPv4.
pub fn caps() -> NodeCaps {
    NodeCaps {
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
        firmware: MissingFirmware::default(),
    }
}

//! Kubernetes' Node: the one that this agent keeps.

use super::columns::{AGE, text, wide};
use crate::kind::{Column, ColumnType, ObjectKind, Scope};

pub(super) const KIND: ObjectKind = ObjectKind {
    kind: "Node",
    plural: "nodes",
    singular: "node",
    short_names: &["no"],
    scope: Scope::Cluster,
    message: "kvmlet.core.v1.Node",
    columns: &[
        Column {
            name: "STATUS",
            shown: ColumnType::List,
            json_path: ".status.conditions[?(@.status==\"True\")].type",
            wide: false,
        },
        AGE,
        text("VERSION", ".status.nodeInfo.kubeletVersion"),
        wide(text("CPU", ".status.allocatable.cpu")),
        wide(text("MEMORY", ".status.allocatable.memory")),
        wide(text("OS-IMAGE", ".status.nodeInfo.osImage")),
        wide(text("KERNEL-VERSION", ".status.nodeInfo.kernelVersion")),
    ],
    has_status: true,
    ..ObjectKind::PLAIN
};

//! Where a kind may be named, and why.

/// File, the kinds that it names, and why it may.
pub const ALLOWED: [(&str, &[&str], &str); 76] = [
    (
        "agent/cli/src/apply.rs",
        &["VirtualMachineInstance"],
        "VMIs are applied by a call of their own",
    ),
    (
        "agent/cli/src/apply/machine.rs",
        &["Event", "VirtualMachine"],
        "when a machine that was applied is ready",
    ),
    (
        "agent/cli/src/create/instancetype.rs",
        &[
            "VirtualMachineClusterInstancetype",
            "VirtualMachineInstancetype",
        ],
        "manifests of its kind",
    ),
    (
        "agent/cli/src/create/preference.rs",
        &[
            "VirtualMachineClusterPreference",
            "VirtualMachinePreference",
        ],
        "manifests of its kind",
    ),
    (
        "agent/cli/src/create/vm.rs",
        &["VirtualMachine"],
        "manifests of its kind",
    ),
    (
        "agent/cli/src/create/volumes.rs",
        &["ConfigMap"],
        "types of volumes, as they are typed",
    ),
    (
        "agent/cli/src/credentials.rs",
        &["Secret", "VirtualMachine", "VirtualMachineInstance"],
        "machines, and the Secrets that they name",
    ),
    (
        "agent/cli/src/describe.rs",
        &["Event", "Namespace"],
        "events of an object, and a heading that is the word",
    ),
    (
        "agent/cli/src/describe_node.rs",
        &["Node"],
        "what its agent says of itself",
    ),
    ("agent/cli/src/events.rs", &["Event"], "its verb"),
    ("agent/cli/src/expand.rs", &["VirtualMachine"], "its verb"),
    (
        "agent/cli/src/guest.rs",
        &["VirtualMachine", "VirtualMachineInstance"],
        "types that people type before a name",
    ),
    (
        "agent/cli/src/guest_info.rs",
        &["VirtualMachineInstance"],
        "what its verb prints",
    ),
    (
        "agent/cli/src/machines.rs",
        &["VirtualMachine"],
        "its verbs",
    ),
    (
        "agent/cli/src/maintenance.rs",
        &["Node"],
        "what its refusals are of",
    ),
    (
        "agent/cli/src/no_guest.rs",
        &["VirtualMachine"],
        "what a verb is refused for",
    ),
    (
        "agent/cli/src/resource.rs",
        &["Event", "Node", "VirtualMachineInstance"],
        "the kinds with calls of their own, and types of other servers",
    ),
    (
        "agent/cli/src/ssh/wait.rs",
        &["VirtualMachineInstance"],
        "what a login waits for",
    ),
    (
        "agent/cli/src/state.rs",
        &["VirtualMachineInstance"],
        "states of guests",
    ),
    (
        "agent/cli/src/top/machines.rs",
        &["VirtualMachine", "VirtualMachineInstance"],
        "whose guests it shows beside their states",
    ),
    (
        "agent/cli/src/validate/judge.rs",
        &["VirtualMachineInstance"],
        "VMIs are admitted by a call of their own",
    ),
    (
        "agent/cli/src/validate/kinds.rs",
        &[
            "VirtualMachine",
            "VirtualMachineClusterInstancetype",
            "VirtualMachineClusterPreference",
            "VirtualMachineInstance",
            "VirtualMachineInstanceReplicaSet",
            "VirtualMachineInstancetype",
            "VirtualMachinePreference",
        ],
        "what is known of KubeVirt's kinds without a node",
    ),
    (
        "agent/cli/src/validate/unserved.rs",
        &["VirtualMachine"],
        "what is known of KubeVirt's kinds without a node",
    ),
    (
        "agent/cli/src/validate/webhooks.rs",
        &["VirtualMachine"],
        "what is known of KubeVirt's kinds without a node",
    ),
    (
        "agent/cli/src/why/machine.rs",
        &["VirtualMachine"],
        "what a machine waits for",
    ),
    (
        "agent/controllers/src/namespace.rs",
        &["Namespace"],
        "its controller",
    ),
    (
        "agent/controllers/src/replica_set/view.rs",
        &["VirtualMachineInstance", "VirtualMachineInstanceReplicaSet"],
        "its controller, and what it makes",
    ),
    (
        "agent/controllers/src/virtual_machine/view.rs",
        &[
            "ControllerRevision",
            "VirtualMachine",
            "VirtualMachineInstance",
        ],
        "its controller, and what it makes",
    ),
    (
        "agent/daemon/src/agent/spawn.rs",
        &["VirtualMachineInstance"],
        "what has an actor",
    ),
    (
        "agent/daemon/src/control_plane/offer.rs",
        &["VirtualMachineInstance"],
        "what control planes offer",
    ),
    ("agent/daemon/src/events.rs", &["Event"], "what it writes"),
    (
        "agent/daemon/src/given.rs",
        &["ConfigMap", "Secret"],
        "what volumes are given",
    ),
    (
        "agent/daemon/src/given/service_account.rs",
        &["Secret", "ServiceAccount"],
        "what a volume names",
    ),
    (
        "agent/daemon/src/node_service/maintenance.rs",
        &["VirtualMachineInstance"],
        "what a drain ends",
    ),
    (
        "agent/daemon/src/node_service/maintenance/drain.rs",
        &["VirtualMachineInstance"],
        "what a drain ends",
    ),
    (
        "agent/daemon/src/node_service/usage.rs",
        &["VirtualMachineInstance"],
        "whose figures it reads",
    ),
    (
        "agent/daemon/src/object.rs",
        &["Event", "VirtualMachineInstance"],
        "the kinds with calls of their own",
    ),
    (
        "agent/daemon/src/objects/apply.rs",
        &["VirtualMachineInstance"],
        "the path of guests",
    ),
    (
        "agent/daemon/src/objects/apply/decision.rs",
        &["VirtualMachineInstance"],
        "the path of guests",
    ),
    (
        "agent/daemon/src/objects/apply/repeated.rs",
        &["VirtualMachineInstance"],
        "the path of guests",
    ),
    (
        "agent/daemon/src/objects/instancetypes.rs",
        &[
            "VirtualMachineClusterInstancetype",
            "VirtualMachineClusterPreference",
        ],
        "those that are there from the start",
    ),
    (
        "agent/daemon/src/objects/machines.rs",
        &["VirtualMachine", "VirtualMachineInstance"],
        "what its verbs ask of it",
    ),
    (
        "agent/daemon/src/objects/namespace.rs",
        &["Namespace"],
        "what namespaces mean to writes of all kinds",
    ),
    (
        "agent/daemon/src/objects/node.rs",
        &["Node"],
        "what this node is",
    ),
    (
        "agent/daemon/src/paths.rs",
        &["VirtualMachineInstance"],
        "which paths guests use",
    ),
    (
        "agent/daemon/src/pods.rs",
        &["VirtualMachine", "VirtualMachineInstance"],
        "a machine keeps the address of its VMI",
    ),
    (
        "agent/daemon/src/store.rs",
        &["VirtualMachineInstance"],
        "whose changes wake an actor",
    ),
    (
        "agent/domain/src/admit/data_volume.rs",
        &["ConfigMap", "Secret"],
        "sources of data",
    ),
    (
        "agent/domain/src/admit/metadata.rs",
        &["VirtualMachine"],
        "the owner that a name is shared with",
    ),
    (
        "agent/domain/src/cloud_init.rs",
        &["ConfigMap", "Secret"],
        "sources of data",
    ),
    (
        "agent/domain/src/instancetype/matcher.rs",
        &[
            "VirtualMachineClusterInstancetype",
            "VirtualMachineClusterPreference",
            "VirtualMachineInstancetype",
            "VirtualMachinePreference",
        ],
        "what a machine names",
    ),
    (
        "agent/domain/src/instancetype/requirements.rs",
        &["VirtualMachine"],
        "whose words a refusal repeats",
    ),
    (
        "agent/objects/src/kinds/config_map.rs",
        &["ConfigMap"],
        "its entry",
    ),
    (
        "agent/objects/src/kinds/controller_revision.rs",
        &["ControllerRevision"],
        "its entry",
    ),
    ("agent/objects/src/kinds/event.rs", &["Event"], "its entry"),
    (
        "agent/objects/src/kinds/instancetype.rs",
        &[
            "VirtualMachineClusterInstancetype",
            "VirtualMachineClusterPreference",
            "VirtualMachineInstancetype",
            "VirtualMachinePreference",
        ],
        "its entry",
    ),
    (
        "agent/objects/src/kinds/namespace.rs",
        &["Namespace"],
        "its entry",
    ),
    ("agent/objects/src/kinds/node.rs", &["Node"], "its entry"),
    (
        "agent/objects/src/kinds/replica_set.rs",
        &["VirtualMachineInstanceReplicaSet"],
        "its entry",
    ),
    (
        "agent/objects/src/kinds/secret.rs",
        &["Secret"],
        "its entry",
    ),
    (
        "agent/objects/src/kinds/service_account.rs",
        &["ServiceAccount"],
        "its entry",
    ),
    (
        "agent/objects/src/kinds/virtual_machine.rs",
        &["VirtualMachine"],
        "its entry",
    ),
    (
        "agent/objects/src/kinds/vmi.rs",
        &["VirtualMachineInstance"],
        "its entry",
    ),
    (
        "agent/objects/src/kit.rs",
        &["ControllerRevision"],
        "what a machine names",
    ),
    (
        "agent/sources/src/console.rs",
        &["VirtualMachineInstance"],
        "calls of guests",
    ),
    (
        "agent/sources/src/control_plane/reports.rs",
        &["VirtualMachineInstance"],
        "what control planes are sent",
    ),
    (
        "agent/sources/src/control_plane/session.rs",
        &["VirtualMachineInstance"],
        "what control planes offer",
    ),
    (
        "agent/sources/src/forward.rs",
        &["VirtualMachineInstance"],
        "calls of guests",
    ),
    (
        "agent/sources/src/grpc/node_service.rs",
        &["Event", "VirtualMachineInstance"],
        "the kinds with calls of their own",
    ),
    (
        "agent/sources/src/machines/expand.rs",
        &["VirtualMachine"],
        "what its verb answers",
    ),
    (
        "agent/sources/src/manifests/directory.rs",
        &["VirtualMachineInstance"],
        "the path of guests",
    ),
    (
        "agent/sources/src/manifests/source.rs",
        &["VirtualMachineInstance"],
        "the path of guests",
    ),
    (
        "agent/sources/src/registry.rs",
        &["Event", "VirtualMachineInstance"],
        "the kinds with calls of their own",
    ),
    (
        "agent/sources/src/testing/registry.rs",
        &["VirtualMachineInstance"],
        "examples of tests",
    ),
    (
        "proto/node/src/manifest.rs",
        &["VirtualMachineInstance"],
        "a manifest that holds one object",
    ),
    (
        "proto/node/src/object.rs",
        &["Event", "VirtualMachineInstance"],
        "the kinds with calls of their own",
    ),
];

//! Kinds that KubeVirt has, so that what this release does not take yet is told from what nobody takes.

use agent_objects::Kinds;
use proto_node::object::{ObjectName, VMI_KIND};

/// What a manifest's `apiVersion` and `kind` come to.
#[derive(Debug, PartialEq, Eq)]
pub enum Standing {
    /// This release takes it.
    Taken,
    /// It is a legal kind that this release does not take; what to do instead.
    Legal(&'static str),
    /// KubeVirt has no such kind, or not in that version.
    Unknown,
}

/// A group of kinds and the versions in which KubeVirt serves it.
struct Group {
    name: &'static str,
    versions: &'static [&'static str],
    kinds: &'static [&'static str],
}

const GROUPS: &[Group] = &[
    Group {
        name: "kubevirt.io",
        versions: &["v1", "v1alpha3"],
        kinds: &[
            "KubeVirt",
            "VirtualMachine",
            VMI_KIND,
            "VirtualMachineInstanceMigration",
            "VirtualMachineInstancePreset",
            "VirtualMachineInstanceReplicaSet",
        ],
    },
    Group {
        name: "instancetype.kubevirt.io",
        versions: &["v1beta1", "v1alpha2", "v1alpha1"],
        kinds: &[
            "VirtualMachineClusterInstancetype",
            "VirtualMachineClusterPreference",
            "VirtualMachineInstancetype",
            "VirtualMachinePreference",
        ],
    },
    Group {
        name: "pool.kubevirt.io",
        versions: &["v1beta1", "v1alpha1"],
        kinds: &["VirtualMachinePool"],
    },
    Group {
        name: "snapshot.kubevirt.io",
        versions: &["v1beta1", "v1alpha1"],
        kinds: &[
            "VirtualMachineRestore",
            "VirtualMachineSnapshot",
            "VirtualMachineSnapshotContent",
        ],
    },
    Group {
        name: "export.kubevirt.io",
        versions: &["v1beta1", "v1alpha1"],
        kinds: &["VirtualMachineExport"],
    },
    Group {
        name: "clone.kubevirt.io",
        versions: &["v1beta1", "v1alpha1"],
        kinds: &["VirtualMachineClone"],
    },
    Group {
        name: "migrations.kubevirt.io",
        versions: &["v1alpha1"],
        kinds: &["MigrationPolicy"],
    },
    Group {
        name: "cdi.kubevirt.io",
        versions: &["v1beta1"],
        kinds: &[
            "CDI",
            "CDIConfig",
            "DataImportCron",
            "DataSource",
            "DataVolume",
            "ObjectTransfer",
            "StorageProfile",
            "VolumeCloneSource",
            "VolumeImportSource",
            "VolumeUploadSource",
        ],
    },
];

/// Whether a word, in lower case, is one of those kinds: its singular or its plural.
pub fn is_type(word: &str) -> bool {
    let mut kinds = GROUPS.iter().flat_map(|group| group.kinds);
    kinds.any(|kind| {
        let singular = kind.to_lowercase();
        let plural = match singular.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{singular}s"),
        };
        word == singular || word == plural
    })
}

/// What to do with a manifest of another kind.
const WAY_OUT: &str = "`kvmctl api-resources` shows what a node takes";

/// What becomes of kinds whose spec holds a VMI's.
const TEMPLATE: &str =
    "a node takes VirtualMachines one by one: the template holds the spec of one";

/// Where an object stands.
pub fn standing(name: &ObjectName) -> Standing {
    let served = Kinds::this_release().find(&name.kind);
    if served.is_some_and(|kind| kind.is_served_as(&name.api_version)) {
        return Standing::Taken;
    }
    let (group, version) = name
        .api_version
        .split_once('/')
        .unwrap_or(("", &name.api_version));
    let Some(known) = GROUPS.iter().find(|known| known.name == group) else {
        // Secrets, claims and the like are Kubernetes', not ours to judge.
        return Standing::Legal(WAY_OUT);
    };
    // A list stands for its items; one that came this far has none.
    let kind = name.kind.strip_suffix("List").unwrap_or(&name.kind);
    if !known.versions.contains(&version) || !known.kinds.contains(&kind) {
        return Standing::Unknown;
    }
    match kind {
        "VirtualMachinePool" => Standing::Legal(TEMPLATE),
        _ => Standing::Legal(WAY_OUT),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_singular_or_plural() {
        for word in ["virtualmachine", "virtualmachines", "migrationpolicies"] {
            assert!(is_type(word), "{word}");
        }
        assert!(!is_type("virtualmachiness") && !is_type("web"));
    }

    #[test]
    fn kinds_are_known_by_group_version_and_name() {
        let of = |api_version: &str, kind: &str| {
            standing(&ObjectName {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                ..ObjectName::default()
            })
        };
        assert_eq!(of("kubevirt.io/v1", VMI_KIND), Standing::Taken);
        assert_eq!(of("kubevirt.io/v1alpha3", VMI_KIND), Standing::Taken);
        assert_eq!(of("kubevirt.io/v1alpha1", VMI_KIND), Standing::Unknown);
        assert_eq!(of("kubevirt.io/v1", "VirtualMachine"), Standing::Taken);
        assert_eq!(
            of("pool.kubevirt.io/v1beta1", "VirtualMachinePool"),
            Standing::Legal(TEMPLATE)
        );
        assert_eq!(
            of("kubevirt.io/v1alpha1", "OfflineVirtualMachine"),
            Standing::Unknown
        );
        assert_eq!(
            of("cdi.kubevirt.io/v1beta1", "DataVolume"),
            Standing::Legal(WAY_OUT)
        );
        assert_eq!(of("kubevirt.io/v1", "VirtualMachin"), Standing::Unknown);
        assert_eq!(of("v1", "Secret"), Standing::Taken);
        assert_eq!(of("v2", "Secret"), Standing::Legal(WAY_OUT));
        assert_eq!(of("v1", "Pod"), Standing::Legal(WAY_OUT));
    }
}

//! Kinds that KubeVirt has: a kind among them that this release does not take is unsupported, any other is unknown.

use agent_objects::{INSTEAD_OF_NETWORK_POLICY, Kinds};
use proto_node::object::{ObjectName, VMI_KIND};

use super::legal_kind::{Judge, LegalKind};
use super::{formed, unserved, webhooks};

/// What a manifest's `apiVersion` and `kind` come to.
pub(super) enum Standing {
    /// This release takes it.
    Taken,
    /// It is a legal kind that this release does not take.
    Legal(LegalKind),
    /// KubeVirt has no such kind, or not in that version.
    Unknown,
}

/// A group of kinds and the versions in which KubeVirt serves it.
struct Group {
    name: &'static str,
    versions: &'static [&'static str],
    kinds: &'static [LegalKind],
    /// There are others in it, which nothing is known of here.
    has_others: bool,
}

const fn kind(name: &'static str) -> LegalKind {
    LegalKind {
        name,
        way_out: WAY_OUT,
        form: "",
        judge: unserved::nothing,
    }
}

const fn formed(name: &'static str, form: &'static str) -> LegalKind {
    LegalKind {
        form,
        ..judged(name, formed::by_form)
    }
}

/// One whose webhook is known besides.
const fn hooked(name: &'static str, form: &'static str, judge: Judge) -> LegalKind {
    LegalKind {
        form,
        ..judged(name, judge)
    }
}

const fn judged(name: &'static str, judge: Judge) -> LegalKind {
    LegalKind {
        judge,
        ..kind(name)
    }
}

const POOL: LegalKind = LegalKind {
    way_out: "a node takes VirtualMachines one by one: the template holds the spec of one",
    ..judged("VirtualMachinePool", unserved::pool)
};

const NETWORK_POLICY: LegalKind = LegalKind {
    way_out: INSTEAD_OF_NETWORK_POLICY,
    ..kind("NetworkPolicy")
};

/// A kind of which nothing is known.
const OTHER: LegalKind = kind("");

const DATA_SOURCE: &str =
    "spec!{source!{dataSource{name! namespace!} pvc{name! namespace!} snapshot{name! namespace!}}}";

const GROUPS: &[Group] = &[
    Group {
        name: "kubevirt.io",
        versions: &["v1", "v1alpha3"],
        kinds: &[
            kind("KubeVirt"),
            kind("VirtualMachine"),
            kind(VMI_KIND),
            hooked(
                "VirtualMachineInstanceMigration",
                "spec!{addedNodeSelector.* priority receive{migrationID!} sendTo{connectURL! migrationID!} vmiName}",
                webhooks::migration,
            ),
            judged("VirtualMachineInstancePreset", unserved::preset),
            kind("VirtualMachineInstanceReplicaSet"),
        ],
        has_others: false,
    },
    Group {
        name: "instancetype.kubevirt.io",
        versions: &["v1beta1", "v1alpha2", "v1alpha1"],
        kinds: &[
            kind("VirtualMachineClusterInstancetype"),
            kind("VirtualMachineClusterPreference"),
            kind("VirtualMachineInstancetype"),
            kind("VirtualMachinePreference"),
        ],
        has_others: false,
    },
    Group {
        name: "pool.kubevirt.io",
        versions: &["v1beta1", "v1alpha1"],
        kinds: &[POOL],
        has_others: false,
    },
    Group {
        name: "snapshot.kubevirt.io",
        versions: &["v1beta1", "v1alpha1"],
        kinds: &[
            hooked(
                "VirtualMachineRestore",
                "spec!{patches[] target!{apiGroup kind! name!} targetReadinessPolicy virtualMachineSnapshotName! \
                 volumeOwnershipPolicy volumeRestoreOverrides[]{annotations.* labels.* restoreName volumeName} \
                 volumeRestorePolicy}",
                webhooks::restore,
            ),
            hooked(
                "VirtualMachineSnapshot",
                "spec!{deletionPolicy failureDeadline source!{apiGroup kind! name!}}",
                webhooks::snapshot,
            ),
            kind("VirtualMachineSnapshotContent"),
        ],
        has_others: false,
    },
    Group {
        name: "export.kubevirt.io",
        versions: &["v1", "v1beta1", "v1alpha1"],
        kinds: &[hooked(
            "VirtualMachineExport",
            "spec!{source!{apiGroup kind! name!} tokenSecretRef ttlDuration}",
            webhooks::export,
        )],
        has_others: false,
    },
    Group {
        name: "clone.kubevirt.io",
        versions: &["v1beta1", "v1alpha1"],
        kinds: &[hooked(
            "VirtualMachineClone",
            "spec!{annotationFilters[] labelFilters[] newMacAddresses.* newSMBiosSerial patches[] \
             source!{apiGroup kind! name!} target{apiGroup kind! name!} template{annotationFilters[] labelFilters[]} \
             volumeNamePolicy}",
            webhooks::clone,
        )],
        has_others: false,
    },
    Group {
        name: "migrations.kubevirt.io",
        versions: &["v1alpha1"],
        kinds: &[hooked(
            "MigrationPolicy",
            "spec!{allowAutoConverge:b allowPostCopy:b allowWorkloadDisruption:b bandwidthPerMigration:q \
             completionTimeoutPerGiB:i experimental:any maxDowntimeMs:i \
             selectors!{namespaceSelector.* virtualMachineInstanceSelector.*}}",
            webhooks::migration_policy,
        )],
        has_others: false,
    },
    Group {
        name: "backup.kubevirt.io",
        versions: &["v1alpha1"],
        kinds: &[
            formed(
                "VirtualMachineBackup",
                "spec!{forceFullBackup:b mode pvcName skipQuiesce:b source!{apiGroup kind! name!} tokenSecretRef \
                 ttlDuration}",
            ),
            formed(
                "VirtualMachineBackupTracker",
                "spec!{source!{apiGroup kind! name!}}",
            ),
        ],
        has_others: false,
    },
    Group {
        name: "cdi.kubevirt.io",
        versions: &["v1beta1"],
        kinds: &[
            kind("CDI"),
            kind("CDIConfig"),
            formed(
                "DataImportCron",
                "spec!{createdBy garbageCollect importsToKeep:i managedDataSource! retentionPolicy schedule! \
                 serviceAccountName template!:any}",
            ),
            formed("DataSource", DATA_SOURCE),
            judged("DataVolume", unserved::data_volume),
            formed(
                "ObjectTransfer",
                "spec!{parentName source!{apiVersion kind! name! namespace! requiredAnnotations.*} \
                 target!{name namespace}}",
            ),
            formed(
                "StorageProfile",
                "spec!{claimPropertySets[]{accessModes![] volumeMode!} cloneStrategy dataImportCronSourceFormat \
                 snapshotClass}",
            ),
            formed(
                "VolumeCloneSource",
                "spec!{preallocation:b priorityClassName source!{apiGroup kind! name!}}",
            ),
            formed(
                "VolumeImportSource",
                "spec!{checkpoints[]{current! previous!} contentType finalCheckpoint:b preallocation:b source:any \
                 targetClaim}",
            ),
            formed("VolumeUploadSource", "spec!{contentType preallocation:b}"),
        ],
        has_others: false,
    },
    Group {
        name: "",
        versions: &["v1"],
        kinds: &[judged("PersistentVolumeClaim", unserved::claim)],
        has_others: true,
    },
    Group {
        name: "networking.k8s.io",
        versions: &["v1"],
        kinds: &[NETWORK_POLICY],
        has_others: true,
    },
];

/// Whether a word, in lower case, is one of those kinds: its singular or its plural.
pub fn is_type(word: &str) -> bool {
    let groups = GROUPS.iter().filter(|group| !group.has_others);
    let mut kinds = groups.flat_map(|group| group.kinds);
    kinds.any(|kind| {
        let singular = kind.name.to_lowercase();
        let plural = match singular.strip_suffix('y') {
            Some(stem) => format!("{stem}ies"),
            None => format!("{singular}s"),
        };
        word == singular || word == plural
    })
}

/// What to do with a manifest of another kind.
const WAY_OUT: &str = "`kvmctl api-resources` shows what a node takes";

/// Where an object stands.
pub(super) fn standing(name: &ObjectName) -> Standing {
    let served = Kinds::this_release().find(&name.kind);
    if served.is_some_and(|kind| kind.is_served_as(&name.api_version)) {
        return Standing::Taken;
    }
    let (group, version) = name
        .api_version
        .split_once('/')
        .unwrap_or(("", &name.api_version));
    let Some(known) = GROUPS.iter().find(|known| known.name == group) else {
        // Others' are not ours to judge.
        return Standing::Legal(OTHER);
    };
    // A list stands for its items; one that came this far has none.
    let name = name.kind.strip_suffix("List").unwrap_or(&name.kind);
    let mut kinds = known.kinds.iter();
    match kinds.find(|kind| kind.name == name) {
        Some(kind) if known.versions.contains(&version) => Standing::Legal(*kind),
        _ if known.has_others => Standing::Legal(OTHER),
        _ => Standing::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::super::cause::Cause;
    use super::super::form;
    use super::*;

    /// Otherwise the rest of the form would be lost.
    #[test]
    fn forms_are_written_to_their_end() {
        let groups = GROUPS.iter().flat_map(|group| group.kinds);
        for kind in groups.filter(|kind| !kind.form.is_empty()) {
            let braces = |brace| kind.form.matches(brace).count();
            assert_eq!(braces('{'), braces('}'), "{}", kind.name);
            let object = serde_json::json!({"spec": {"novel": 1}});
            let causes = form::misfits(kind.form, &object);
            let is_named = |cause: &Cause| cause.field == "spec.novel";
            assert!(causes.iter().any(is_named), "{}: {causes:?}", kind.name);
        }
    }

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
            let standing = standing(&ObjectName {
                api_version: api_version.to_owned(),
                kind: kind.to_owned(),
                ..ObjectName::default()
            });
            match standing {
                Standing::Taken => "taken",
                Standing::Legal(LegalKind { name: "", .. }) => "not ours",
                Standing::Legal(kind) => kind.name,
                Standing::Unknown => "unknown",
            }
        };
        assert_eq!(of("kubevirt.io/v1", VMI_KIND), "taken");
        assert_eq!(of("kubevirt.io/v1alpha3", VMI_KIND), "taken");
        assert_eq!(of("kubevirt.io/v1alpha1", VMI_KIND), "unknown");
        assert_eq!(of("kubevirt.io/v1", "VirtualMachine"), "taken");
        for (api_version, kind) in [
            ("pool.kubevirt.io/v1beta1", "VirtualMachinePool"),
            ("cdi.kubevirt.io/v1beta1", "DataVolume"),
            ("v1", "PersistentVolumeClaim"),
            ("networking.k8s.io/v1", "NetworkPolicy"),
        ] {
            assert_eq!(of(api_version, kind), kind);
        }
        assert_eq!(
            of("kubevirt.io/v1alpha1", "OfflineVirtualMachine"),
            "unknown"
        );
        assert_eq!(of("cdi.kubevirt.io/v1alpha1", "DataVolume"), "unknown");
        assert_eq!(of("kubevirt.io/v1", "VirtualMachin"), "unknown");
        assert_eq!(of("v1", "Secret"), "taken");
        assert_eq!(of("v2", "Secret"), "not ours");
        assert_eq!(of("v1", "Pod"), "not ours");
        assert_eq!(of("networking.k8s.io/v1", "Ingress"), "not ours");
    }
}

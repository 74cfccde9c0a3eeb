//! What is illegal beneath fields that this release does not honour is refused as KubeVirt refuses it.

use agent_domain::{
    Bound, FieldError, admit_virtual_machine, judge_claim, judge_data_volume, judge_preset,
};
use proto_node::from_json;

use super::*;

/// Each row: what is changed, and what KubeVirt refuses: field and words. A row without is legal, and beyond this release.
const ROWS: &str = include_str!("../beneath.json");

/// The same of specs of DataVolumes.
const DATA_VOLUMES: &str = include_str!("../data_volumes.json");

/// The same of those of a VirtualMachine, with a volume of a claim.
const TEMPLATES: &str = include_str!("../data_volume_templates.json");

fn rows(text: &str) -> Vec<Value> {
    serde_json::from_str(text).unwrap()
}

/// What is illegal by a row.
fn wanted(row: &Value) -> Vec<&str> {
    let errors = row["illegal"].as_array();
    errors.map_or_else(Vec::new, |errors| {
        errors.iter().filter_map(Value::as_str).collect()
    })
}

/// What breaks the API's rules, as `field: words`.
fn illegal(errors: &[FieldError]) -> Vec<String> {
    let illegal = errors.iter().filter(|error| error.bound == Bound::Api);
    illegal
        .map(|error| format!("{}: {}", error.path, error.message))
        .collect()
}

#[test]
fn what_is_illegal_is_distinguished_from_what_is_unsupported() {
    let rows = rows(ROWS);
    assert!(rows.len() > 40);
    for row in &rows {
        let changes = row["change"].as_object().unwrap();
        let changes: Vec<(&str, Value)> = changes
            .iter()
            .map(|(pointer, value)| (pointer.as_str(), value.clone()))
            .collect();
        let wanted = wanted(row);
        let object = match from_node(&Node::from(with(&changes))) {
            Ok(object) => object,
            Err(errors) => {
                let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
                assert_eq!(errors, wanted, "{row}");
                continue;
            }
        };
        let errors = Vmi::admit(object, &caps()).unwrap_err();
        assert_eq!(illegal(&errors), wanted, "{row}");
        let is_unsupported = errors.iter().any(|error| error.bound != Bound::Api);
        assert!(is_unsupported || !wanted.is_empty(), "{row}");
    }
}

#[test]
fn what_has_no_effect_is_judged_too_unless_it_was_admitted_before() {
    let changes = [(
        "/spec/tolerations",
        json!([{"key": "a", "opertor": "Exists"}]),
    )];
    let errors = from_node::<proto_node::vmi::VirtualMachineInstance>(&Node::from(with(&changes)));
    let errors = errors.unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        errors[0].to_string(),
        "spec.tolerations[0].opertor: unknown field \"spec.tolerations[0].opertor\""
    );
    let spread = json!([{"maxSkew": 1, "topologyKey": "zone"}]);
    let value = with(&[("/spec/topologySpreadConstraints", spread)]);
    let object: proto_node::vmi::VirtualMachineInstance = from_node(&Node::from(value)).unwrap();
    let errors = Vmi::admit(object.clone(), &caps()).unwrap_err();
    assert_eq!(
        illegal(&errors),
        ["spec.topologySpreadConstraints[0].whenUnsatisfiable: \
             spec.topologySpreadConstraints.whenUnsatisfiable in body is required"]
    );
    Vmi::restore(object).unwrap();
}

/// A legal DataVolume with its spec replaced.
fn data_volume(spec: Value) -> Vec<String> {
    let object = json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "DataVolume", "metadata": {"name": "disk"}, "spec": spec,
    });
    match from_json(object) {
        Ok(object) => illegal(&judge_data_volume(&object)),
        Err(errors) => errors.iter().map(ToString::to_string).collect(),
    }
}

#[test]
fn data_volumes_are_judged_by_the_rules_of_cdi() {
    for row in rows(DATA_VOLUMES) {
        assert_eq!(data_volume(row["spec"].clone()), wanted(&row), "{row}");
    }
}

#[test]
fn claims_are_judged_by_the_rules_of_kubernetes() {
    let claim = |spec: Value| {
        let object = json!({
            "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "disk"}, "spec": spec,
            "status": {"phase": "Bound"},
        });
        illegal(&judge_claim(&from_json(object).unwrap()))
    };
    let resources = json!({"requests": {"storage": "1Gi"}});
    let legal =
        json!({"accessModes": ["ReadWriteOnce"], "resources": resources, "storageClassName": ""});
    assert_eq!(claim(legal), [""; 0]);
    let rendered = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "disk", "labels": {"cdi.kubevirt.io/applyStorageProfile": "true"}},
        "spec": {"volumeMode": "FromStorageProfile"},
    });
    assert_eq!(
        illegal(&judge_claim(&from_json(rendered).unwrap())),
        [""; 0]
    );
    assert_eq!(
        claim(json!({"volumeMode": "block"})),
        [
            "spec.accessModes: at least 1 access mode is required",
            "spec.resources[storage]: says how much is claimed",
            "spec.volumeMode: supported values: \"Block\", \"Filesystem\"",
        ]
    );
    assert_eq!(
        claim(json!({
            "accessModes": ["ReadWriteOncePod", "RWX"], "resources": {"requests": {"storage": "0"}},
            "dataSource": {"kind": "VolumeSnapshot", "name": "a"},
        })),
        [
            "spec.accessModes: supported values: \"ReadWriteOnce\", \"ReadOnlyMany\", \"ReadWriteMany\", \
             \"ReadWriteOncePod\"",
            "spec.accessModes: may not use ReadWriteOncePod with other access modes",
            "spec.resources[storage]: must be greater than zero",
            "spec.dataSource.kind: must be 'PersistentVolumeClaim' when referencing the default apiGroup",
        ]
    );
}

#[test]
fn presets_are_judged_by_the_rules_of_kubevirt() {
    let preset = |spec: Value| {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstancePreset", "metadata": {"name": "small"},
            "spec": spec,
        });
        illegal(&judge_preset(&from_json(object).unwrap()))
    };
    let legal = json!({
        "selector": {}, "domain": {"devices": {"tpm": {}, "inputs": [{"name": "a", "type": "tablet"}]}},
    });
    assert_eq!(preset(legal), [""; 0]);
    assert_eq!(
        preset(json!({"selector": {"matchLabels": {"a": "b"}}, "domain": {"features": {}}})),
        ["spec.domain.devices: spec.domain.devices in body is required"]
    );
    assert_eq!(
        preset(json!({})),
        [
            "spec.selector: spec.selector in body is required",
            "spec.domain: missing domain."
        ]
    );
    let disks = json!([{"name": "a", "disk": {"bus": "ide"}}, {"name": "a"}]);
    assert_eq!(
        preset(json!({"selector": {}, "domain": {"devices": {"disks": disks}}})),
        [
            "spec.domain.devices.disks[0].disk.bus: IDE bus is not supported",
            "spec.domain.devices.disks[1].name: spec.domain.devices.disks[1] and spec.domain.devices.disks[0] must not have \
             the same Name.",
        ]
    );
}

#[test]
fn data_volumes_of_a_machine_are_judged_by_the_rules_of_kubevirt() {
    for row in rows(TEMPLATES) {
        let claim = row["claim"].as_str().unwrap_or("a");
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "web", "namespace": "default", "uid": "7c1f8a52-0000-4000-8000-000000000001"},
            "spec": {
                "runStrategy": "Halted",
                "dataVolumeTemplates": row["templates"],
                "template": {"spec": {
                    "domain": {"devices": {}, "memory": {"guest": "1Gi"}},
                    "volumes": [{"name": "root", "persistentVolumeClaim": {"claimName": claim}}],
                }},
            },
        });
        let machine = from_json(object).unwrap();
        let errors = admit_virtual_machine(machine, None, &|_, _, _| None).unwrap_err();
        assert_eq!(illegal(&errors), wanted(&row), "{row}");
    }
}

#[test]
fn what_does_not_depend_on_an_instance_type_is_judged_without_it() {
    let machine = |devices: Value, volumes: Value| {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": {"name": "web", "namespace": "default", "uid": "7c1f8a52-0000-4000-8000-000000000001"},
            "spec": {
                "runStrategy": "Halted", "instancetype": {"name": "not-there"},
                "template": {"spec": {"domain": {"devices": devices}, "volumes": volumes}},
            },
        });
        admit_virtual_machine(from_json(object).unwrap(), None, &|_, _, _| None)
    };
    let empty = json!([{"name": "root", "emptyDisk": {"capacity": "1Gi"}}]);
    let admitted = machine(json!({}), empty.clone()).unwrap();
    assert_eq!(admitted.warnings.len(), 1, "{:?}", admitted.warnings);
    let claim = json!([{"name": "root", "persistentVolumeClaim": {"claimName": "a"}}]);
    let errors = machine(json!({}), claim).unwrap_err();
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert_eq!(
        (errors[0].path.as_str(), errors[0].bound),
        (
            "spec.template.spec.volumes[0].persistentVolumeClaim",
            Bound::Release
        )
    );
    let errors = machine(
        json!({"disks": [{"name": "root", "disk": {"bus": "ide"}}]}),
        empty,
    );
    assert_eq!(
        illegal(&errors.unwrap_err()),
        ["spec.template.spec.domain.devices.disks[0].disk.bus: IDE bus is not supported"]
    );
}

//! The JSON and YAML form of the API.

#![allow(clippy::unwrap_used, reason = "a test")]

use proto_node::manifest::{self, ManifestError};
use proto_node::vmi::VirtualMachineInstance;
use proto_node::{Node, from_node, to_json, to_yaml};
use serde_json::{Value, json};

/// Every form that a value of the API has.
const FULL: &str = r#"{
  "apiVersion": "kubevirt.io/v1",
  "kind": "VirtualMachineInstance",
  "metadata": {
    "name": "web",
    "generation": 9007199254740993,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionGracePeriodSeconds": 0,
    "labels": {"app": "web", "tier": "front"},
    "ownerReferences": [
      {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true, "blockOwnerDeletion": false}
    ],
    "finalizers": ["kubevirt.io/foregroundDeleteVirtualMachine"],
    "managedFields": [
      {"manager": "kubectl", "operation": "Apply", "apiVersion": "kubevirt.io/v1", "fieldsType": "FieldsV1",
       "fieldsV1": {"f:spec": {"f:domain": {}, ".": {}}}}
    ]
  },
  "spec": {
    "domain": {
      "cpu": {"cores": 2, "model": "host-model"},
      "memory": {"guest": "512Mi"},
      "resources": {"requests": {"cpu": "500m", "memory": "1Gi"}},
      "devices": {
        "disks": [{"name": "root", "disk": {"bus": "virtio"}, "bootOrder": 1, "dedicatedIOThread": false}],
        "interfaces": [{"name": "lan", "bridge": {}}],
        "rng": {},
        "autoattachVSOCK": false
      }
    },
    "terminationGracePeriodSeconds": 0,
    "networks": [{"name": "lan", "multus": {"networkName": "lan"}},
                 {"name": "pod", "pod": {"vmNetworkCIDR": "10.0.2.0/24"}}],
    "volumes": [{"name": "root", "containerDisk": {"image": "registry.example/debian:12"}}]
  },
  "status": {"phase": "Running", "currentCPUTopology": {"cores": 1}, "VSOCKCID": 3}
}"#;

fn decode(value: Value) -> Result<VirtualMachineInstance, Vec<String>> {
    from_node(&Node::from(value)).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn errors_of(text: &str) -> Vec<String> {
    manifest::parse(text.as_bytes())
        .unwrap()
        .into_iter()
        .flat_map(|document| document.object.err().unwrap_or_default())
        .map(|error| error.to_string())
        .collect()
}

#[test]
fn json_survives_the_way_through_protobuf() {
    let before: Value = serde_json::from_str(FULL).unwrap();
    let message = decode(before.clone()).unwrap();
    assert_eq!(to_json(&message), before);
}

#[test]
fn yaml_and_json_say_the_same() {
    let documents = manifest::parse(FULL.as_bytes()).unwrap();
    let object = documents[0].object.clone().unwrap();
    let Some(proto_node::node::object::Kind::VirtualMachineInstance(vmi)) = &object.kind else {
        panic!("{object:?}");
    };
    let yaml = to_yaml(vmi);
    assert!(
        yaml.starts_with("apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata:\n")
    );
    assert_eq!(
        manifest::parse(yaml.as_bytes()).unwrap()[0].object,
        Ok(object)
    );
}

#[test]
fn quantities_are_strings_or_numbers() {
    let message = decode(json!({"spec": {"domain": {
        "memory": {"guest": 536_870_912},
        "resources": {"requests": {"cpu": 1.5, "memory": "1Gi"}},
        "devices": {},
    }}}))
    .unwrap();
    let domain = message.spec.unwrap().domain.unwrap();
    assert_eq!(domain.memory.unwrap().guest, "536870912");
    assert_eq!(domain.resources.unwrap().requests["cpu"], "1.5");
}

#[test]
fn all_wrong_fields_are_reported_with_their_paths() {
    let errors = decode(json!({
        "spec": {
            "domian": {},
            "domain": {
                "cpu": {"cores": "two", "sockets": -1, "threads": 4_294_967_296_u64,
                    "maxSockets": u64::MAX},
                "memory": {"guest": true},
                "devices": {"disks": [{"name": 7}, {"name": "a", "disk": null}], "interfaces": {}},
            },
        },
    }))
    .unwrap_err();
    assert_eq!(
        errors,
        [
            "spec.domian: unknown field \"spec.domian\"",
            "spec.domain.cpu.cores: spec.domain.cpu.cores in body must be of type integer: \"string\"",
            "spec.domain.cpu.sockets: spec.domain.cpu.sockets in body must be of type uint32: -1",
            "spec.domain.cpu.threads: spec.domain.cpu.threads in body must be of type uint32: 4294967296",
            "spec.domain.cpu.maxSockets: spec.domain.cpu.maxSockets in body must be of type integer: \"number\"",
            "spec.domain.memory.guest: spec.domain.memory.guest in body must be of type string or number: \"boolean\"",
            "spec.domain.devices.disks[0].name: spec.domain.devices.disks.name in body must be of type string: \"integer\"",
            "spec.domain.devices.disks[1].disk: spec.domain.devices.disks.disk in body must be of type object: \"null\"",
            "spec.domain.devices.interfaces: spec.domain.devices.interfaces in body must be of type array: \"object\"",
        ]
    );
}

#[test]
fn an_empty_object_is_not_the_same_as_none() {
    let with = decode(json!({"spec": {"domain": {"devices": {"rng": {}}}}})).unwrap();
    let without = decode(json!({"spec": {"domain": {"devices": {}}}})).unwrap();
    assert_ne!(with, without);
    assert_eq!(
        to_json(&with)["spec"]["domain"]["devices"],
        json!({"rng": {}})
    );
}

#[test]
fn null_scalars_and_lists_count_as_absent() {
    let message = decode(
        json!({"metadata": {"creationTimestamp": null, "labels": null, "finalizers": null}}),
    )
    .unwrap();
    assert_eq!(to_json(&message), json!({"metadata": {}}));
}

#[test]
fn a_manifest_may_hold_several_documents_and_lists() {
    let text = "# only a comment\n---\napiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: a}\n\
                --- # next\n{apiVersion: v1, kind: List, items: [\n  {apiVersion: kubevirt.io/v1, kind: VirtualMachineInstance, metadata: {name: b}},\n  {kind: Nope, apiVersion: x/v1}]}\n---\n";
    let documents = manifest::parse(text.as_bytes()).unwrap();
    let names: Vec<&str> = documents
        .iter()
        .map(|document| document.name.name.as_str())
        .collect();
    assert_eq!(names, ["a", "b", ""]);
    assert_eq!(documents[0].line, 2);
    assert!(documents[0].object.is_ok() && documents[1].object.is_ok());
    assert_eq!(
        documents[2].object.as_ref().unwrap_err()[0].message,
        "no matches for kind \"Nope\" in version \"x/v1\""
    );
}

#[test]
fn json_values_may_follow_each_other() {
    let one = r#"{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":{"name":"a"}}"#;
    assert_eq!(
        manifest::parse(format!("{one}\n{one}").as_bytes())
            .unwrap()
            .len(),
        2
    );
}

#[test]
fn syntax_errors_name_line_and_field() {
    let errors = errors_of(
        "---\napiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nspec:\n  domain: {cpu: [1, 2}\n",
    );
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("spec.domain.cpu"), "{errors:?}");
    assert!(errors[0].contains("line 5"), "{errors:?}");
}

#[test]
fn duplicate_fields_are_refused() {
    for text in [
        "kind: VirtualMachineInstance\nspec:\n  domain: {}\n  domain: {}\n",
        r#"{"kind": "VirtualMachineInstance", "spec": {"domain": {}, "domain": {}}}"#,
    ] {
        let errors = errors_of(text);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert!(errors[0].starts_with("spec"), "{errors:?}");
        assert!(
            errors[0].contains("uplicate") && errors[0].contains("domain"),
            "{errors:?}"
        );
    }
}

#[test]
fn aliases_are_refused_with_a_path() {
    let errors = errors_of(
        "kind: VirtualMachineInstance\nmetadata:\n  labels: &l {a: b}\n  annotations: *l\n",
    );
    assert_eq!(errors.len(), 1);
    assert!(errors[0].starts_with("metadata"), "{errors:?}");
}

#[test]
fn deep_nesting_is_refused_in_yaml_and_json() {
    for depth in [60, 100_000] {
        for text in [
            format!("spec: {}{}", "[".repeat(depth), "]".repeat(depth)),
            format!("{}1{}", r#"{"spec":"#.repeat(depth), "}".repeat(depth)),
        ] {
            let errors = errors_of(&text);
            assert_eq!(errors.len(), 1, "{errors:?}");
            assert!(errors[0].starts_with("spec"), "{}", &errors[0]);
            assert!(errors[0].len() < 1000);
        }
    }
}

#[test]
fn a_document_of_endless_values_is_refused() {
    for text in [
        format!("[{}0]", "0,".repeat(300_000)),
        format!("a: [{}0]", "0,".repeat(300_000)),
    ] {
        assert_eq!(errors_of(&text).len(), 1);
    }
}

#[test]
fn paths_do_not_carry_escape_sequences() {
    let errors = decode(json!({"spec": {"\u{1b}[31m": 1, ("k".repeat(10_000)): 1}})).unwrap_err();
    assert_eq!(errors.len(), 2);
    assert!(
        errors
            .iter()
            .all(|error| !error.contains('\u{1b}') && error.len() < 500),
        "{errors:?}"
    );
}

#[test]
fn ten_megabytes_are_refused_unread() {
    let text = "a: b\n".repeat(2_000_000);
    assert!(matches!(
        manifest::parse(text.as_bytes()),
        Err(ManifestError::TooLarge { bytes: 10_000_000 })
    ));
}

#[test]
fn a_manifest_of_bytes_is_refused() {
    assert!(matches!(
        manifest::parse(b"kind: \xff"),
        Err(ManifestError::NotText { offset: 6 })
    ));
}

#[test]
fn text_is_one_object_or_says_why_not() {
    let vmi: VirtualMachineInstance = FULL.parse().unwrap();
    assert_eq!(
        FULL.parse::<proto_node::node::Object>().unwrap(),
        vmi.into()
    );
    let refusal = |text: &str| text.parse::<VirtualMachineInstance>().unwrap_err();
    assert_eq!(
        refusal("# nothing").to_string(),
        "the manifest holds 0 objects, not one"
    );
    assert_eq!(
        refusal(&format!("{FULL}\n{FULL}")).to_string(),
        "the manifest holds 2 objects, not one"
    );
    let wrong = "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nspeck: {}\nstate: 1\n";
    assert_eq!(
        refusal(wrong).to_string(),
        "speck: unknown field \"speck\"; state: unknown field \"state\""
    );
}

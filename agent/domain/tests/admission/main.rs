//! What is admitted, what is refused, and in which words.

#![allow(clippy::unwrap_used, reason = "a test")]

mod access;
mod beneath;
mod boot;
mod cloud_init;
mod fields;
mod hooks;
mod late_kit;
mod levels;
mod network_walls;
mod pod_network;
mod probes;
mod properties;
mod secure_boot;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use agent_domain::{
    Admitted, Boot, DiskSource, HugepageSize, ImageLocation, MemoryOptions, MissingFirmware,
    NodeCaps, PanicDevices, PathGrant, PathRules, PodPool, RebootPolicy, SingleDevice, Vmi,
    WatchdogAction,
};
use proto_node::{Node, from_node, to_json};
use serde_json::{Value, json};

fn caps() -> NodeCaps {
    NodeCaps {
        node_name: "node1".to_owned(),
        architecture: "amd64".to_owned(),
        max_vcpus: 8,
        memory_bytes: 16 << 30,
        networks: BTreeMap::from([("lan".to_owned(), "br0".to_owned())]),
        paths: PathRules {
            disks: vec!["/srv/disks".into()],
            grants: vec![PathGrant {
                path: "/var/lib/kvmlet/disks".into(),
                namespaces: BTreeSet::from(["default".to_owned()]),
            }],
            setting: "paths.grants in /etc/kvmlet/kvmlet.toml".to_owned(),
            ..PathRules::default()
        },
        pod_network: Some(PodPool {
            network: [10, 213, 0, 0].into(),
            prefix: 16,
            network6: "fd00:1:2:3::".parse().ok(),
        }),
        labels: BTreeMap::from([("zone".to_owned(), "a".to_owned())]),
        refuse_substitution: false,
        firmware: MissingFirmware::default(),
    }
}

fn manifest() -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "web", "uid": "7c1f8a52-0000-4000-8000-000000000001", "generation": 1},
        "spec": {
            "domain": {
                "memory": {"guest": "512Mi"},
                "firmware": {"kernelBoot": {
                    "kernelArgs": "console=ttyS0",
                    "container": {
                        "image": "dir:/var/lib/kvmlet/disks/debian",
                        "kernelPath": "/boot/vmlinuz",
                        "initrdPath": "/boot/initrd.img",
                    },
                }},
                "devices": {
                    "rng": {},
                    "disks": [{"name": "root"}],
                    "interfaces": [{"name": "net", "bridge": {}}],
                },
            },
            "networks": [{"name": "net", "multus": {"networkName": "lan"}}],
            "volumes": [
                {"name": "root", "hostDisk": {"path": "/var/lib/kvmlet/disks/root.img", "type": "Disk"}},
                {"name": "scratch", "emptyDisk": {"capacity": "2Gi"}},
            ],
        },
    })
}

/// The manifest with some values replaced (`null` takes a member away).
fn with(changes: &[(&str, Value)]) -> Value {
    let mut manifest = manifest();
    for (pointer, value) in changes {
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        let parent = manifest.pointer_mut(parent).unwrap();
        match parent {
            Value::Array(items) => items.push(value.clone()),
            Value::Object(members) if value.is_null() => {
                members.shift_remove(key).unwrap();
            }
            Value::Object(members) => {
                members.insert(key.to_owned(), value.clone());
            }
            other => panic!("{other}"),
        }
    }
    manifest
}

fn admit_with(value: Value, caps: &NodeCaps) -> Result<Admitted, Vec<String>> {
    let object = from_node(&Node::from(value))
        .map_err(|errors| errors.iter().map(ToString::to_string).collect::<Vec<_>>())?;
    Vmi::admit(object, caps).map_err(|errors| errors.iter().map(ToString::to_string).collect())
}

fn admit(value: Value) -> Result<Admitted, Vec<String>> {
    admit_with(value, &caps())
}

fn refused(changes: &[(&str, Value)]) -> Vec<String> {
    admit(with(changes)).unwrap_err()
}

#[test]
fn a_good_manifest_becomes_a_value_with_all_defaults() {
    let admitted = admit(manifest()).unwrap();
    let vmi = &admitted.vmi;
    assert_eq!(
        (vmi.name.as_str(), vmi.namespace.as_str()),
        ("web", "default")
    );
    assert_eq!((vmi.cpus.count(), vmi.memory_bytes), (1, 512 << 20));
    assert_eq!(vmi.termination_grace_period, Duration::from_secs(30));
    assert_eq!(vmi.reboot_policy, RebootPolicy::Reboot);
    let Boot::Kernel(kernel) = &vmi.boot else {
        panic!("{:?}", vmi.boot);
    };
    assert_eq!(kernel.kernel_path, PathBuf::from("boot/vmlinuz"));
    assert_eq!(
        kernel.image,
        ImageLocation::Directory(PathBuf::from("/var/lib/kvmlet/disks/debian"))
    );
    assert!(vmi.has(SingleDevice::Rng));
    assert_eq!(vmi.interfaces[0].mac.octets()[0], 2);
    let names: Vec<&str> = vmi.disks.iter().map(|disk| disk.name.as_str()).collect();
    assert_eq!(
        names,
        ["root", "scratch"],
        "a volume without a disk gets one"
    );
    assert_eq!(
        vmi.disks[1].source,
        DiskSource::Empty {
            capacity_bytes: 2 << 30
        }
    );
    assert_eq!((admitted.warnings.len(), admitted.ignored.len()), (0, 0));
    let shown = to_json(&admitted.object);
    assert_eq!(shown["spec"]["terminationGracePeriodSeconds"], 30);
    assert_eq!(shown["spec"]["domain"]["machine"]["type"], "q35");
    assert_eq!(
        shown["spec"]["domain"]["devices"]["disks"][1]["disk"]["bus"],
        "virtio"
    );
}

#[test]
fn a_watchdog_resets_and_a_panic_device_is_at_its_port_unless_it_is_said_otherwise() {
    let vmi = admit(manifest()).unwrap().vmi;
    assert_eq!(vmi.watchdog, None);
    assert_eq!(vmi.panic_devices, PanicDevices::default());
    let devices = |watchdog: Value, panic_devices: Value| {
        let changes = [
            ("/spec/domain/devices/watchdog", watchdog),
            ("/spec/domain/devices/panicDevices", panic_devices),
        ];
        admit(with(&changes)).unwrap()
    };
    let admitted = devices(json!({"name": "dog", "i6300esb": {}}), json!([{}]));
    assert_eq!(admitted.vmi.watchdog, Some(WatchdogAction::Reset));
    let isa = PanicDevices {
        isa: true,
        ..PanicDevices::default()
    };
    assert_eq!(admitted.vmi.panic_devices, isa);
    assert!(admitted.vmi.has(SingleDevice::Watchdog));
    assert!(!admitted.vmi.has(SingleDevice::Pvpanic));
    let shown = &to_json(&admitted.object)["spec"]["domain"]["devices"];
    assert_eq!(shown["watchdog"]["i6300esb"]["action"], "reset");
    assert_eq!(shown["panicDevices"][0]["model"], "isa");

    let shutdown = json!({"name": "dog", "i6300esb": {"action": "shutdown"}});
    let both = json!([{"model": "pvpanic"}, {"model": "hyperv"}]);
    let admitted = devices(shutdown, both);
    assert_eq!(admitted.vmi.watchdog, Some(WatchdogAction::Shutdown));
    let others = PanicDevices {
        isa: false,
        hyperv: true,
    };
    assert_eq!(admitted.vmi.panic_devices, others);
    assert!(admitted.vmi.has(SingleDevice::Pvpanic));
    let again = Vmi::admit(admitted.object.clone(), &caps()).unwrap();
    assert_eq!(admitted, again);
}

#[test]
fn admitting_again_changes_nothing() {
    let first = admit(manifest()).unwrap();
    let again = Vmi::admit(first.object.clone(), &caps()).unwrap();
    assert_eq!(first, again);
}

#[test]
fn what_was_admitted_is_restored_on_a_node_that_changed() {
    let first = admit(manifest()).unwrap();
    let mut changed = caps();
    changed.networks.clear();
    changed.paths.grants.clear();
    changed.max_vcpus = 0;
    assert!(Vmi::admit(first.object.clone(), &changed).is_err());
    assert_eq!(Vmi::restore(first.object.clone()).unwrap(), first);
}

#[test]
fn memory_may_be_of_huge_pages_and_may_grow() {
    let memory = |value: Value| {
        let admitted = admit(with(&[("/spec/domain/memory", value)])).unwrap();
        (admitted.vmi.memory_bytes, admitted.vmi.memory)
    };
    let gib = 1u64 << 30;
    let plain = MemoryOptions {
        hugepages: None,
        max_bytes: gib,
    };
    assert_eq!(memory(json!({"guest": "1Gi"})), (gib, plain));
    let grows = MemoryOptions {
        hugepages: Some(HugepageSize::Gib1),
        max_bytes: 4 * gib,
    };
    let value = json!({"guest": "1Gi", "maxGuest": "4Gi", "hugepages": {"pageSize": "1024Mi"}});
    assert_eq!(memory(value), (gib, grows));
    // Nothing else given: one page.
    let one = MemoryOptions {
        hugepages: Some(HugepageSize::Mib2),
        max_bytes: 2 << 20,
    };
    assert_eq!(
        memory(json!({"hugepages": {"pageSize": "2Mi"}})),
        (2 << 20, one)
    );
}

#[test]
fn all_errors_are_reported_at_once() {
    let errors = refused(&[
        ("/spec/domain/devices/disks/-", json!({"name": "data"})),
        (
            "/spec/domain/devices/interfaces/-",
            json!({"name": "net", "bridge": {}, "macAddress": "52:54:00"}),
        ),
        ("/spec/domain/devices/tpm", json!({})),
        ("/spec/domain/memory/guest", json!("-1Gi")),
        ("/metadata/name", json!("Web")),
    ]);
    for wanted in [
        "spec.domain.devices.disks[1].name: Invalid value: \"data\": spec.domain.devices.disks[1].Name 'data' not found. (volumes: root, scratch)",
        "spec.domain.devices.interfaces[1].macAddress: Invalid value: \"52:54:00\": interface spec.domain.devices.interfaces[1].name has malformed MAC address (52:54:00). (six octets, such as 02:00:00:12:34:56)",
        "spec.domain.devices.interfaces[1].name: Duplicate value: \"net\": Only one interface can be connected to one specific network",
        "spec.domain.devices.tpm: Unsupported value: not supported by this release (there is no TPM in this release: leave it out)",
        "spec.domain.memory.guest: Invalid value: \"-1Gi\": spec.domain.memory.guest '-1Gi': must be greater than or equal to 0.",
    ] {
        assert!(
            errors.iter().any(|error| error == wanted),
            "{wanted}\n{errors:#?}"
        );
    }
    assert!(errors.iter().any(|error| {
        error.starts_with("metadata.name: Invalid value: \"Web\": a lowercase RFC 1123 subdomain")
    }));
    assert_eq!(errors.len(), 6, "{errors:#?}");
}

/// Each row: what is changed (`null` takes a member away), and how the only error begins.
const REFUSALS: &str = include_str!("../refusals.json");

#[test]
fn every_malformed_manifest_is_refused_with_one_error_at_its_field() {
    let rows: Vec<Value> = serde_json::from_str(REFUSALS).unwrap();
    for row in &rows {
        let changes = row["change"].as_object().unwrap();
        let changes: Vec<(&str, Value)> = changes
            .iter()
            .map(|(pointer, value)| (pointer.as_str(), value.clone()))
            .collect();
        let wanted = row["error"].as_str().unwrap();
        let errors = refused(&changes);
        assert_eq!(errors.len(), 1, "{changes:?}\n{errors:#?}");
        assert!(
            errors[0].starts_with(wanted),
            "wanted {wanted}\ngot    {}",
            errors[0]
        );
    }
}

/// As under KubeVirt, whose mutating webhook gives volumes their disks before the validating one counts.
#[test]
fn disks_that_volumes_get_count_for_the_bound_of_the_list() {
    let volumes: Vec<Value> = (0..200)
        .map(|index| json!({"name": format!("v{index}"), "emptyDisk": {"capacity": "1Gi"}}))
        .collect();
    let disks: Vec<Value> = (0..57)
        .map(|index| json!({"name": format!("d{index}")}))
        .collect();
    let errors = refused(&[
        ("/spec/volumes", json!(volumes)),
        ("/spec/domain/devices/disks", json!(disks)),
    ]);
    let wanted = "spec.domain.devices.disks: Invalid value: \"257\": spec.domain.devices.disks list exceeds the 256 element limit in length";
    assert_eq!(errors.first().map(String::as_str), Some(wanted));
}

#[test]
fn endless_lists_and_names_cost_little_and_say_little() {
    let volumes: Vec<Value> = (0..100_000)
        .map(|index| json!({"name": format!("v{index}"), "emptyDisk": {"capacity": "1Gi"}}))
        .collect();
    let errors = refused(&[("/spec/volumes", json!(volumes))]);
    assert_eq!(
        errors,
        [
            "spec.volumes: Invalid value: \"100000\": spec.volumes list exceeds the 256 element limit in length"
        ]
    );
    let long = "x".repeat(1_000_000);
    let errors = refused(&[(
        "/spec/domain/devices/disks/-",
        json!({"name": format!("{long}\u{1b}[31m")}),
    )]);
    let bytes: usize = errors.iter().map(String::len).sum();
    assert!(bytes < 10_000, "{bytes}");
}

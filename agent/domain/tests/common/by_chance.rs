//! Manifests by chance.

use proptest::prelude::*;
use serde_json::{Value, json};

/// VMIs of which many fields are set, and one that leaves as much open as it can.
pub fn manifests() -> Vec<Value> {
    let whole: Value = serde_json::from_str(include_str!("whole_vmi.json")).unwrap();
    let mut with_bios = whole.clone();
    with_bios["spec"]["domain"]["firmware"]["bootloader"] = json!({"bios": {"useSerial": true}});
    let open = json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstance",
        "metadata": {"name": "open", "uid": "7c1f8a52-0000-4000-8000-000000000003"},
        "spec": {"hostname": "open", "domain": {"resources": {"limits": {"cpu": "1500m", "memory": "64Mi"}}, "devices": {}}},
    });
    vec![whole, with_bios, open]
}

/// Some places of a manifest, and what they are replaced with.
pub type Changes = Vec<(prop::sample::Index, Value)>;

/// Up to three changes.
pub fn changes() -> impl Strategy<Value = Changes> {
    prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 0..4)
}

/// The manifest with its changes.
pub fn changed(mut manifest: Value, changes: Changes) -> Value {
    for (index, odd) in changes {
        let mut all = Vec::new();
        pointers(&manifest, "", &mut all);
        if let Some(place) = manifest.pointer_mut(index.get::<String>(&all)) {
            *place = odd;
        }
    }
    manifest
}

/// Values that are likely to upset something.
fn odd_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,40}".prop_map(Value::from),
        "[-+0-9.eEinumkKMGTP]{0,12}".prop_map(Value::from),
        "(dir|oci):/?[a-z./:]{0,30}".prop_map(Value::from),
        Just(json!("root")),
        Just(json!({})),
        Just(json!([])),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-zA-Z]{1,12}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Every place of a value, as JSON pointers.
fn pointers(value: &Value, prefix: &str, all: &mut Vec<String>) {
    all.push(prefix.to_owned());
    match value {
        Value::Object(members) => {
            for (key, value) in members {
                pointers(value, &format!("{prefix}/{key}"), all);
            }
        }
        Value::Array(items) => {
            for (index, value) in items.iter().enumerate() {
                pointers(value, &format!("{prefix}/{index}"), all);
            }
        }
        _ => {}
    }
}

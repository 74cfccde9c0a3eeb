//! Manifests by chance.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

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

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn admission_never_panics_and_is_idempotent(
        changes in prop::collection::vec((any::<prop::sample::Index>(), odd_value()), 1..4)
    ) {
        let mut value = manifest();
        for (index, odd) in changes {
            let mut all = Vec::new();
            pointers(&value, "", &mut all);
            let pointer = index.get(&all).clone();
            if let Some(place) = value.pointer_mut(&pointer) {
                *place = odd;
            }
        }
        let decoded = from_node::<proto_node::vmi::VirtualMachineInstance>(&Node::from(value));
        if let Ok(object) = decoded {
            let json = to_json(&object);
            prop_assert_eq!(from_node(&Node::from(json)), Ok(object.clone()));
            match Vmi::admit(object, &caps()) {
                Ok(first) => prop_assert_eq!(Vmi::admit(first.object.clone(), &caps()), Ok(first)),
                Err(errors) => prop_assert!(!errors.is_empty()),
            }
        }
    }

    #[test]
    fn quantities_of_any_text_never_panic(text in ".{0,60}") {
        let value = with(&[("/spec/domain/memory/guest", json!(text))]);
        let outcome = admit(value);
        prop_assert!(outcome.is_ok() || outcome.is_err_and(|errors| !errors.is_empty()));
    }
}

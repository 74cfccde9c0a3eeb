//! Manifests that are made.

use serde_json::{Map, Value, json};

/// The metadata of an object. What has no time of creation yet says so, as all that Go writes.
pub(super) fn metadata(name: &str, namespace: Option<&str>) -> Value {
    let mut metadata = Map::new();
    metadata.insert("creationTimestamp".to_owned(), Value::Null);
    if !name.is_empty() {
        metadata.insert("name".to_owned(), name.into());
    }
    if let Some(namespace) = namespace.filter(|namespace| !namespace.is_empty()) {
        metadata.insert("namespace".to_owned(), namespace.into());
    }
    metadata.into()
}

/// An object of the group of instance types.
pub(super) fn object(kind: &str, metadata: Value, spec: Value) -> Value {
    json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    })
}

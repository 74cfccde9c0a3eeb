//! Who an object belongs to: objects that control it, and whoever asked the node for it.

use std::collections::BTreeMap;

use agent_domain::ObjectSource;
use serde_json::Value;

use crate::text::text;

/// The links that the object names, the nearest first. None where a caller made it by itself.
pub fn links(object: &Value) -> Vec<String> {
    let owners = object.pointer("/metadata/ownerReferences");
    let owners = owners.and_then(Value::as_array).into_iter().flatten();
    let controllers = owners.filter(|owner| owner["controller"] == true);
    let mut links: Vec<String> = controllers
        .map(|owner| format!("{} {}", text(owner, "/kind"), text(owner, "/name")))
        .collect();
    match source(object) {
        ObjectSource::GrpcCaller => {}
        source => links.push(source.to_string()),
    }
    links
}

fn source(object: &Value) -> ObjectSource {
    let annotations = object.pointer("/metadata/annotations");
    let annotations = annotations.and_then(Value::as_object).into_iter().flatten();
    let annotations: BTreeMap<String, String> = annotations
        .map(|(key, value)| (key.clone(), text(value, "")))
        .collect();
    ObjectSource::of(&annotations)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn controllers_go_before_whoever_asked_for_them() {
        let owned = |owners: Value, source: &str| {
            links(&json!({"metadata": {
                "ownerReferences": owners, "annotations": {"kvmlet.io/source": source},
            }}))
        };
        let set =
            json!({"kind": "VirtualMachineInstanceReplicaSet", "name": "rs", "controller": true});
        let other = json!({"kind": "ConfigMap", "name": "x"});
        assert_eq!(
            owned(json!([other, set]), "file:web.yaml"),
            [
                "VirtualMachineInstanceReplicaSet rs",
                "the manifest directory (web.yaml)"
            ]
        );
        assert_eq!(
            owned(json!([]), "control-plane:north"),
            ["the control plane \"north\""]
        );
        assert_eq!(links(&json!({"metadata": {}})), [""; 0]);
    }
}

//! Changes of JSON trees: merge patches (RFC 7386), and the three-way merge of `kubectl apply`.

use serde_json::{Map, Value};

use crate::object::Object;

/// The annotation in which the object that was applied last is kept, as JSON. It is kubectl's, so that both tools see
/// each other's applies.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Applies a merge patch: members of the patch replace those of the target, `null` takes them away.
pub fn merge_patch(target: &mut Value, patch: &Value) {
    let Value::Object(members) = patch else {
        target.clone_from(patch);
        return;
    };
    if !target.is_object() {
        *target = Value::Object(Map::new());
    }
    let Value::Object(present) = target else {
        return;
    };
    for (name, value) in members {
        if value.is_null() {
            present.shift_remove(name);
        } else {
            merge_patch(present.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}

/// The merge patch that has `current` take over what is `wanted` and lose what was in `last` and is wanted no more. What
/// others set is left alone. Lists are replaced whole.
#[must_use]
pub fn three_way(last: &Value, current: &Value, wanted: &Value) -> Value {
    let mut patch = Map::new();
    let none = Map::new();
    let members = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (last, current) = (members(last), members(current));
    let wanted = wanted.as_object().unwrap_or(&none);
    for name in last.keys() {
        if !wanted.contains_key(name) && current.contains_key(name) {
            patch.insert(name.clone(), Value::Null);
        }
    }
    for (name, value) in wanted {
        match current.get(name) {
            Some(present) if present == value => {}
            Some(present) if present.is_object() && value.is_object() => {
                let before = last.get(name).unwrap_or(&Value::Null);
                let inner = three_way(before, present, value);
                if inner.as_object().is_none_or(|inner| !inner.is_empty()) {
                    patch.insert(name.clone(), inner);
                }
            }
            _ => {
                patch.insert(name.clone(), value.clone());
            }
        }
    }
    Value::Object(patch)
}

/// The object that applying `wanted` to `present` gives. Without a present one it is the wanted one. Either bears the
/// annotation by which the next apply knows what this one set.
#[must_use]
pub fn applied(mut wanted: Object, present: Option<&Object>) -> Value {
    wanted.content.shift_remove("status");
    wanted.metadata.annotations.remove(LAST_APPLIED);
    let text = wanted.to_json().to_string();
    let annotations = &mut wanted.metadata.annotations;
    annotations.insert(LAST_APPLIED.to_owned(), text);
    let wanted = wanted.to_json();
    let Some(present) = present else {
        return wanted;
    };
    let last = present.metadata.annotations.get(LAST_APPLIED);
    let last = last.and_then(|text| serde_json::from_str(text).ok());
    let mut value = present.to_json();
    let patch = three_way(&last.unwrap_or(Value::Null), &value, &wanted);
    merge_patch(&mut value, &patch);
    value
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn merge_patches_are_those_of_rfc_7386() {
        for (target, patch, wanted) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": "b"}),
                json!({"b": "c"}),
                json!({"a": "b", "b": "c"}),
            ),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (
                json!({"a": [{"b": "c"}]}),
                json!({"a": [1]}),
                json!({"a": [1]}),
            ),
            (
                json!(["a"]),
                json!({"a": {"b": {"c": null}}}),
                json!({"a": {"b": {}}}),
            ),
            (json!({"a": 1}), json!(["c"]), json!(["c"])),
        ] {
            let mut value = target.clone();
            merge_patch(&mut value, &patch);
            assert_eq!(value, wanted, "{target} {patch}");
        }
    }

    #[test]
    fn an_apply_takes_back_what_it_set_and_leaves_what_others_set() {
        let last = json!({"spec": {"replicas": 3, "paused": true, "list": [1]}});
        let current = json!({"spec": {"replicas": 5, "paused": true, "list": [1], "other": 1}, "status": {"n": 1}});
        let wanted = json!({"spec": {"replicas": 3, "list": [2]}});
        let patch = three_way(&last, &current, &wanted);
        assert_eq!(
            patch,
            json!({"spec": {"paused": null, "replicas": 3, "list": [2]}})
        );
    }
}

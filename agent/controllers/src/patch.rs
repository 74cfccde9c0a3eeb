//! Merge patches that controllers write.

use serde_json::Value;

/// The merge patch that has `wanted` take the place of what is there: members that are left out, at any depth, are taken
/// away.
pub(crate) fn replacing(present: &Value, mut wanted: Value) -> Value {
    if let (Some(present), Value::Object(members)) = (present.as_object(), &mut wanted) {
        for (name, before) in present {
            let value = members.entry(name.clone()).or_insert(Value::Null);
            *value = replacing(before, value.take());
        }
    }
    wanted
}

#[cfg(test)]
mod tests {
    use agent_objects::merge_patch;
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_left_out_is_taken_away_at_any_depth() {
        let present = json!({"a": 1, "b": {"c": 1, "d": [1]}, "e": {"f": 1}});
        for wanted in [
            json!({}),
            json!({"a": 2, "b": {"d": [2, 3]}}),
            json!({"b": {"c": {"x": 1}}, "e": 5, "g": {}}),
        ] {
            let mut target = present.clone();
            merge_patch(&mut target, &replacing(&present, wanted.clone()));
            assert_eq!(target, wanted);
        }
    }
}

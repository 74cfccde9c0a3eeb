//! Data of Secrets and ConfigMaps: what both are judged by, and what is kept out of sight.

pub(crate) mod read;

use agent_domain::{Bound, FieldError, Rule};
use proto_node::meta::ObjectMeta;
use serde_json::Value;

use crate::kind::Admission;
use crate::object::Object;
use crate::patch::LAST_APPLIED;

/// Kubernetes' bound on all values of one object together.
pub(crate) const MAX_DATA_BYTES: usize = 1024 * 1024;

/// Kubernetes' bound on a key.
const MAX_KEY_BYTES: usize = 253;

const KEY_RULE: &str = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";

/// What breaks the rules of keys, and how many bytes the values have together.
pub(crate) fn check_keys<'a>(
    member: &str,
    values: impl Iterator<Item = (&'a String, usize)>,
    admission: &mut Admission,
) -> usize {
    let mut bytes = 0usize;
    for (key, size) in values {
        bytes = bytes.saturating_add(size);
        if let Some(rule) = broken_key_rule(key) {
            let path = format!("{member}[{key}]");
            let error = FieldError::new(path, Rule::Invalid, rule).value(key);
            admission.errors.push(error);
        }
    }
    bytes
}

fn broken_key_rule(key: &str) -> Option<&'static str> {
    let is_legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if key.len() > MAX_KEY_BYTES {
        Some("must be no more than 253 characters")
    } else if key.is_empty() || !key.bytes().all(is_legal) {
        Some(KEY_RULE)
    } else if key == "." {
        Some("must not be '.'")
    } else if key == ".." {
        Some("must not be '..'")
    } else if key.starts_with("..") {
        Some("must not start with '..'")
    } else {
        None
    }
}

/// Refuses more data than Kubernetes takes.
pub(crate) fn check_size(path: &str, bytes: usize, admission: &mut Admission) {
    if bytes > MAX_DATA_BYTES {
        let message = format!("may not be more than {MAX_DATA_BYTES} bytes");
        let error = FieldError::new(path, Rule::TooLong, message);
        admission.errors.push(error);
    }
}

/// Refuses changes of an object that was declared immutable.
pub(crate) fn check_immutable(
    object: &Object,
    before: Option<&Object>,
    members: &[&str],
    admission: &mut Admission,
) {
    let Some(before) = before else { return };
    if before.content.get("immutable") != Some(&Value::Bool(true)) {
        return;
    }
    for member in std::iter::once(&"immutable").chain(members) {
        if object.content.get(*member) != before.content.get(*member) {
            let message = "field is immutable when `immutable` is set";
            let error = FieldError::new(*member, Rule::Forbidden, message).beyond(Bound::Api);
            admission.errors.push(error);
        }
    }
}

/// Takes the values of confidential members out of the annotation of the last apply. Their keys stay: the next apply
/// takes back by them what it no longer wants.
pub(crate) fn redact(confidential: &[&str], metadata: &mut ObjectMeta) {
    let Some(text) = metadata.annotations.get_mut(LAST_APPLIED) else {
        return;
    };
    let Ok(mut applied) = serde_json::from_str::<Value>(text) else {
        // What cannot be read cannot be cleared of values either.
        metadata.annotations.remove(LAST_APPLIED);
        return;
    };
    for member in confidential {
        if let Some(value) = applied.get_mut(*member) {
            clear(value);
        }
    }
    *text = applied.to_string();
}

fn clear(value: &mut Value) {
    match value {
        Value::Object(members) => members.values_mut().for_each(clear),
        other => *other = Value::String(String::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_judged_as_kubernetes_judges_them() {
        let long = "a".repeat(254);
        for (key, is_legal) in [
            ("a", true),
            ("tls.crt", true),
            (".dockerconfigjson", true),
            ("A-_.9", true),
            ("a...", true),
            ("", false),
            (".", false),
            ("..", false),
            ("..a", false),
            ("a/b", false),
            ("ä", false),
            (&long[1..], true),
            (&long, false),
        ] {
            assert_eq!(broken_key_rule(key).is_none(), is_legal, "{key:?}");
        }
    }

    #[test]
    fn the_last_apply_keeps_keys_and_no_values() {
        let applied =
            r#"{"data":{"password":"c2VjcmV0"},"stringData":{"user":"root"},"type":"Opaque"}"#;
        let mut metadata = ObjectMeta::default();
        let annotations = &mut metadata.annotations;
        annotations.insert(LAST_APPLIED.to_owned(), applied.to_owned());
        redact(&["data", "stringData"], &mut metadata);
        let text = &metadata.annotations[LAST_APPLIED];
        let wanted = r#"{"data":{"password":""},"stringData":{"user":""},"type":"Opaque"}"#;
        assert_eq!(text, wanted);
        let annotations = &mut metadata.annotations;
        annotations.insert(LAST_APPLIED.to_owned(), String::from("data: c2VjcmV0"));
        redact(&["data"], &mut metadata);
        assert!(metadata.annotations.is_empty());
    }
}

//! Kubernetes' Secret.

use std::collections::BTreeMap;

use agent_domain::{FieldError, Rule};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto_node::core::Secret;
use proto_node::from_members;
use proto_node::meta::ObjectMeta;
use proto_node::node::Role;
use serde_json::{Map, Value};

use super::columns::{AGE, count, text};
use super::form::misformed;
use crate::data::{check_immutable, check_keys, check_size};
use crate::kind::{Admission, AdmitContext, ObjectKind, Writer};
use crate::object::Object;
use crate::refusal::Refusal;

pub(super) const KIND: ObjectKind = ObjectKind {
    kind: "Secret",
    plural: "secrets",
    singular: "secret",
    message: "kvmlet.core.v1.Secret",
    columns: &[text("TYPE", ".type"), count("DATA", ".data.*"), AGE],
    lasting: &["type"],
    writer: Writer::Objects(judge),
    defaults: Some(fill_in),
    normalize: Some(merge_text),
    confidential: &["data", "stringData"],
    read_role: Role::Operate,
    data: Some(data),
    ..ObjectKind::PLAIN
};

/// Moves `stringData` into `data`, as Kubernetes does on every write.
fn merge_text(object: &mut Object) {
    let Some(Value::Object(texts)) = object.content.shift_remove("stringData") else {
        return;
    };
    let data = object.content.entry("data");
    let Value::Object(data) = data.or_insert_with(|| Value::Object(Map::new())) else {
        return;
    };
    for (key, text) in texts {
        let bytes = text.as_str().unwrap_or_default();
        data.insert(key, BASE64.encode(bytes).into());
    }
    data.sort_keys();
}

fn data(object: &Object) -> Result<BTreeMap<String, Vec<u8>>, Refusal> {
    let secret: Secret = from_members(&object.content).map_err(Refusal::Malformed)?;
    Ok(secret.data)
}

fn fill_in(object: &mut Object, _: &AdmitContext<'_>) {
    let kind = object.content.entry("type");
    kind.or_insert_with(|| "Opaque".into());
}

fn judge(object: &Object, context: &AdmitContext<'_>) -> Admission {
    let mut admission = Admission::default();
    let secret: Secret = match from_members(&object.content) {
        Ok(secret) => secret,
        Err(errors) => return misformed(errors),
    };
    let kind = object.text(&["type"]);
    let sizes = secret.data.iter().map(|(key, value)| (key, value.len()));
    let bytes = check_keys("data", sizes, &mut admission);
    check_size("data", bytes, &mut admission);
    check_type(kind, (&object.metadata, &secret), &mut admission);
    if let Some(before) = context.before
        && before.text(&["type"]) != kind
    {
        let error = FieldError::new("type", Rule::Invalid, "field is immutable");
        admission.errors.push(error.value(kind));
    }
    check_immutable(object, context.before, &["data"], &mut admission);
    admission
}

/// The keys that a type wants.
fn check_type(kind: &str, (metadata, secret): (&ObjectMeta, &Secret), admission: &mut Admission) {
    let has = |key: &str| secret.data.contains_key(key);
    let mut missing = |path: String| {
        let error = FieldError::new(path, Rule::Required, "");
        admission.errors.push(error);
    };
    match kind {
        "kubernetes.io/service-account-token" => {
            const ACCOUNT: &str = "kubernetes.io/service-account.name";
            let account = metadata.annotations.get(ACCOUNT);
            if account.is_none_or(String::is_empty) {
                missing(format!("metadata.annotations[{ACCOUNT}]"));
            }
        }
        "kubernetes.io/dockercfg" => check_json(".dockercfg", secret, admission),
        "kubernetes.io/dockerconfigjson" => check_json(".dockerconfigjson", secret, admission),
        "kubernetes.io/basic-auth" if !has("username") && !has("password") => {
            missing(String::from("data[username]"));
            missing(String::from("data[password]"));
        }
        "kubernetes.io/ssh-auth" => {
            let key = secret.data.get("ssh-privatekey");
            if key.is_none_or(Vec::is_empty) {
                missing(String::from("data[ssh-privatekey]"));
            }
        }
        "kubernetes.io/tls" => {
            for key in ["tls.crt", "tls.key"] {
                if !has(key) {
                    missing(format!("data[{key}]"));
                }
            }
        }
        _ => {}
    }
}

fn check_json(key: &str, secret: &Secret, admission: &mut Admission) {
    let path = format!("data[{key}]");
    let Some(bytes) = secret.data.get(key) else {
        let error = FieldError::new(path, Rule::Required, "");
        return admission.errors.push(error);
    };
    if serde_json::from_slice::<serde::de::IgnoredAny>(bytes).is_err() {
        // What the parser says of it may quote it.
        let error = FieldError::new(path, Rule::Invalid, "is no JSON");
        let error = error.value("<secret contents redacted>");
        admission.errors.push(error);
    }
}

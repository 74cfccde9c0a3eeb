//! Kubernetes' Namespace.

use agent_domain::{FieldError, Rule, check_metadata};
use proto_node::meta::ObjectMeta;
use serde_json::json;

use super::columns::{AGE, text};
use crate::kind::{Admission, AdmitContext, ObjectKind, Scope, Writer};
use crate::object::Object;

/// The label by which selectors name a namespace.
const NAME_LABEL: &str = "kubernetes.io/metadata.name";

pub(super) const KIND: ObjectKind = ObjectKind {
    kind: "Namespace",
    plural: "namespaces",
    singular: "namespace",
    short_names: &["ns"],
    scope: Scope::Cluster,
    message: "kvmlet.core.v1.Namespace",
    columns: &[text("STATUS", ".status.phase"), AGE],
    has_status: true,
    writer: Writer::Objects(judge),
    defaults: Some(fill_in),
    finalizer: Some("kubernetes"),
    undeletable: &["default"],
    ..ObjectKind::PLAIN
};

fn fill_in(object: &mut Object, context: &AdmitContext<'_>) {
    let Object {
        metadata, content, ..
    } = object;
    let labels = &mut metadata.labels;
    labels.insert(NAME_LABEL.to_owned(), metadata.name.clone());
    if context.before.is_none() {
        let status = json!({"phase": "Active"});
        content.insert(String::from("status"), status);
    }
}

fn judge(object: &Object, _: &AdmitContext<'_>) -> Admission {
    let name = &object.metadata.name;
    // The name has to be that of a namespace, which is more than an object's.
    let mut within = ObjectMeta {
        name: String::from("name"),
        namespace: name.clone(),
        uid: String::from("uid"),
        ..ObjectMeta::default()
    };
    let errors = check_metadata(&mut within).into_iter();
    let named = errors.map(|error| FieldError::new("metadata.name", Rule::Invalid, error.message));
    Admission {
        errors: named.map(|error| error.value(name)).collect(),
        warnings: Vec::new(),
    }
}

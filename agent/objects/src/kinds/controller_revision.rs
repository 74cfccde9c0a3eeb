//! Kubernetes' ControllerRevision.

use agent_domain::{FieldError, Rule};
use serde_json::Value;

use super::columns::{AGE, integer, text};
use crate::kind::{Admission, AdmitContext, ObjectKind, Writer};
use crate::object::Object;

pub(super) const KIND: ObjectKind = ObjectKind {
    group: "apps",
    kind: "ControllerRevision",
    plural: "controllerrevisions",
    singular: "controllerrevision",
    message: "kvmlet.apps.v1.ControllerRevision",
    columns: &[
        text(
            "CONTROLLER",
            ".metadata.ownerReferences[?(@.controller==true)].name",
        ),
        integer("REVISION", ".revision"),
        AGE,
    ],
    frozen: &["data"],
    writer: Writer::Objects(judge),
    ..ObjectKind::PLAIN
};

fn judge(object: &Object, _: &AdmitContext<'_>) -> Admission {
    let mut admission = Admission::default();
    match object.content.get("data") {
        None => {
            let error = FieldError::new("data", Rule::Required, "data is mandatory");
            admission.errors.push(error);
        }
        Some(Value::Object(_)) => {}
        Some(_) => {
            let error = FieldError::new("data", Rule::Invalid, "must be a JSON object");
            admission.errors.push(error);
        }
    }
    let revision = object.content.get("revision").and_then(Value::as_i64);
    if let Some(revision) = revision.filter(|revision| *revision < 0) {
        let message = "must be greater than or equal to 0";
        let error = FieldError::new("revision", Rule::Invalid, message);
        admission.errors.push(error.value(revision.to_string()));
    }
    admission
}

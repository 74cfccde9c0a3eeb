//! Objects of kinds whose form alone is known here.

use agent_domain::{FieldError, Rule, judge_metadata};
use proto_node::from_json;
use serde_json::{Value, json};

use super::cause::{Cause, cause};
use super::form;
use super::legal_kind::LegalKind;
use super::node::JudgedNode;

/// Of a kind with a form in the table.
pub(super) fn by_form(kind: &LegalKind, object: Value, _: Option<&JudgedNode>) -> Vec<Cause> {
    let mut causes = form::misfits(kind.form, &object);
    let metadata = object.get("metadata").cloned().unwrap_or_else(|| json!({}));
    match from_json(metadata) {
        Ok(metadata) => causes.extend(judge_metadata(&metadata).iter().map(cause)),
        Err(errors) => causes.extend(errors.iter().map(|error| {
            let error = FieldError::new(&error.path, Rule::Invalid, &error.message);
            cause(&error.within("metadata"))
        })),
    }
    causes
}

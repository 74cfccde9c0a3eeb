//! What is illegal in objects of kinds that this release does not take.

use agent_domain::{Bound, FieldError, Rule, judge_claim, judge_data_volume, judge_preset};
use agent_objects::{LabelSelector, Refusal};
use proto_node::{DecodeError, from_json};
use serde_json::{Value, json};

use super::cause::{Cause, cause, misformed, plain};
use super::legal_kind::LegalKind;
use super::node::JudgedNode;
use super::{others, webhooks};

/// Of a kind whose form is not known here.
pub(super) fn nothing(_: &LegalKind, _: Value, _: Option<&JudgedNode>) -> Vec<Cause> {
    Vec::new()
}

/// CDI's DataVolume.
pub(super) fn data_volume(_: &LegalKind, object: Value, _: Option<&JudgedNode>) -> Vec<Cause> {
    causes(from_json(object).map(|object| judge_data_volume(&object)))
}

/// Kubernetes' PersistentVolumeClaim.
pub(super) fn claim(_: &LegalKind, object: Value, _: Option<&JudgedNode>) -> Vec<Cause> {
    causes(from_json(object).map(|object| judge_claim(&object)))
}

/// KubeVirt's VirtualMachineInstancePreset.
pub(super) fn preset(_: &LegalKind, object: Value, _: Option<&JudgedNode>) -> Vec<Cause> {
    causes(from_json(object).map(|object| judge_preset(&object)))
}

fn causes(judged: Result<Vec<FieldError>, Vec<DecodeError>>) -> Vec<Cause> {
    match judged {
        Ok(errors) => errors.iter().map(cause).collect(),
        Err(errors) => errors.iter().map(misformed).collect(),
    }
}

/// KubeVirt's VirtualMachinePool: its template is a VirtualMachine, which this release knows.
pub(super) fn pool(_: &LegalKind, object: Value, node: Option<&JudgedNode>) -> Vec<Cause> {
    const TEMPLATE: &str = "spec.virtualMachineTemplate";
    let Some(template) = object.pointer("/spec/virtualMachineTemplate") else {
        let message = format!("{TEMPLATE} in body is required");
        return vec![required(TEMPLATE, message)];
    };
    let mut causes: Vec<Cause> = machine(template, node)
        .into_iter()
        .map(|error| cause(&error.within(TEMPLATE)))
        .collect();
    let field = "spec.selector";
    match object.pointer("/spec/selector") {
        None => causes.push(required(field, format!("{field} in body is required"))),
        Some(selector) => causes.extend(check_selector(field, selector, template)),
    }
    let spec = &object["spec"];
    causes.extend(webhooks::unavailable(spec));
    causes.extend(webhooks::strategies(spec));
    causes
}

/// Whether a selector selects what a template makes.
fn check_selector(field: &str, selector: &Value, template: &Value) -> Vec<Cause> {
    let selector = match from_json(selector.clone()) {
        Ok(selector) => selector,
        Err(errors) => {
            let within = |error: DecodeError| {
                let error = FieldError::new(error.path, Rule::Invalid, error.message);
                cause(&error.within(field))
            };
            return errors.into_iter().map(within).collect();
        }
    };
    let labels = template.pointer("/metadata/labels").cloned();
    let labels = labels.and_then(|labels| serde_json::from_value(labels).ok());
    match LabelSelector::of(&selector) {
        Ok(selector) if selector.matches(&labels.unwrap_or_default()) => Vec::new(),
        Ok(_) => vec![plain(
            field,
            String::from("selector does not match labels."),
        )],
        Err(error) => vec![plain(field, error.to_string())],
    }
}

/// What is illegal in the VirtualMachine that is made of a template.
fn machine(template: &Value, node: Option<&JudgedNode>) -> Vec<FieldError> {
    let mut machine = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "replica"},
    });
    for member in ["labels", "annotations"] {
        if let Some(value) = template.pointer(&format!("/metadata/{member}")) {
            machine["metadata"][member] = value.clone();
        }
    }
    if let Some(spec) = template.get("spec") {
        machine["spec"] = spec.clone();
    }
    let invalid = |error: DecodeError| FieldError::new(error.path, Rule::Invalid, error.message);
    let mut errors = match others::admitted(machine, node) {
        Ok(outcome) => outcome.map_or_else(Vec::new, |outcome| outcome.admission.errors),
        Err(Refusal::Invalid(errors)) => errors,
        Err(Refusal::Malformed(errors)) => errors.into_iter().map(invalid).collect(),
        Err(other) => vec![FieldError::new("", Rule::Invalid, other.to_string())],
    };
    errors.retain(|error| error.bound == Bound::Api);
    errors
}

fn required(field: &str, message: String) -> Cause {
    Cause {
        kind: "FieldValueRequired",
        ..plain(field, message)
    }
}

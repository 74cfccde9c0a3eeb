//! Objects of kinds other than VirtualMachineInstance, and what lies beneath kinds that are not there.

use std::sync::LazyLock;

use agent_domain::{Bound, CommonRelease, NodeCaps, Vmi};
use agent_objects::{AdmitContext, Given, Kinds, Object, ObjectId, Refusal, Writer, create};
use proto_node::manifest::Document;
use proto_node::vmi::VirtualMachineInstance;
use serde_json::{Value, json};

use super::generated;
use super::judge::{Cause, Judged, Verdict, cause, misformed};

/// Kinds that hold templates of VMIs, and where.
const TEMPLATES: [(&str, &str); 1] = [(
    "VirtualMachinePool",
    "spec.virtualMachineTemplate.spec.template",
)];

/// Judges an object of a kind of the table, as the agent would.
pub(super) fn judge(judged: &mut Judged, value: Value, node: Option<&NodeCaps>) {
    let kinds = Kinds::this_release();
    let (kind, object) = match kinds.read(value) {
        Ok(read) => read,
        Err(refusal) => return refuse(judged, &refusal),
    };
    let admit = match kind.writer {
        Writer::Objects(admit) => admit,
        Writer::Guests | Writer::Agent => {
            judged.verdict = Verdict::Unsupported;
            judged.causes = vec![plain(
                "kind",
                format!("a {} is written by the agent alone", kind.kind),
            )];
            return;
        }
    };
    let given = Given {
        uid: generated::FIRST_UID,
        now: "",
        suffix: generated::SUFFIX,
    };
    let is_generated = object.metadata.name.is_empty();
    let mut object = match create(kind, object, &given) {
        Ok(object) => object,
        Err(refusal) => return refuse(judged, &refusal),
    };
    let context = AdmitContext {
        caps: node,
        before: None,
        find: &common,
    };
    let admission = admit(&mut object, &context);
    if !admission.errors.is_empty() {
        return judged.refuse(&admission.errors);
    }
    judged.verdict = Verdict::Accepted;
    judged.warnings = admission.warnings;
    let metadata = &mut object.metadata;
    metadata.uid.clear();
    metadata.generation = 0;
    if is_generated {
        metadata.name.clear();
    }
    judged.defaulted = Some(object.to_json());
}

/// What every node has unless its operator took it away: the common instance types and preferences.
fn common(id: &ObjectId) -> Option<Object> {
    static OBJECTS: LazyLock<Vec<Value>> = LazyLock::new(|| CommonRelease::Head.objects());
    let found = OBJECTS.iter().find(|object| {
        object["kind"] == id.kind.as_str() && object["metadata"]["name"] == id.name.as_str()
    });
    Object::from_json(found?.clone()).ok()
}

fn refuse(judged: &mut Judged, refusal: &Refusal) {
    judged.verdict = Verdict::Refused;
    match refusal {
        Refusal::Invalid(errors) => judged.refuse(errors),
        Refusal::Malformed(errors) => judged.causes = errors.iter().map(misformed).collect(),
        other => judged.causes = vec![plain("", other.to_string())],
    }
}

/// What is illegal beneath a kind that this release does not take: the template of a VMI is known without the kind.
pub(super) fn beneath(document: &Document, node: Option<&NodeCaps>) -> Vec<Cause> {
    let templates = TEMPLATES.iter();
    let place = templates
        .filter(|(kind, _)| *kind == document.name.kind)
        .map(|(_, path)| *path)
        .next();
    let (Some(path), Some(object)) = (place, &document.other) else {
        return Vec::new();
    };
    let pointer = format!("/{}", path.replace('.', "/"));
    let Some(template) = object.pointer(&pointer) else {
        let mut missing = plain(path, String::from("missing virtual machine template."));
        missing.kind = "FieldValueRequired";
        return vec![missing];
    };
    let within = |mut cause: Cause| {
        cause.field = if cause.field.is_empty() {
            path.to_owned()
        } else {
            format!("{path}.{}", cause.field)
        };
        cause
    };
    judge_template(template, node)
        .into_iter()
        .map(within)
        .collect()
}

fn judge_template(template: &Value, node: Option<&NodeCaps>) -> Vec<Cause> {
    let mut vmi = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": "replica", "uid": generated::FIRST_UID},
    });
    for member in ["labels", "annotations"] {
        if let Some(value) = template.pointer(&format!("/metadata/{member}")) {
            vmi["metadata"][member] = value.clone();
        }
    }
    if let Some(spec) = template.get("spec") {
        vmi["spec"] = spec.clone();
    }
    let vmi: VirtualMachineInstance = match proto_node::from_json(vmi) {
        Ok(vmi) => vmi,
        Err(errors) => return errors.iter().map(misformed).collect(),
    };
    let admitted = match node {
        Some(node) => Vmi::admit(vmi, node),
        None => Vmi::admit_anywhere(vmi),
    };
    let errors = admitted.err().unwrap_or_default();
    let illegal = errors.iter().filter(|error| error.bound == Bound::Api);
    illegal.map(cause).collect()
}

fn plain(field: &str, message: String) -> Cause {
    Cause {
        kind: "FieldValueInvalid",
        field: field.to_owned(),
        detail: message.clone(),
        message,
    }
}

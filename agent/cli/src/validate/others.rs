//! Objects of kinds of the table other than VirtualMachineInstance.

use std::sync::LazyLock;

use agent_domain::{CommonRelease, NodeCaps};
use agent_objects::{
    Admission, AdmitContext, Given, Kinds, Object, ObjectId, Refusal, Writer, create,
};
use serde_json::Value;

use super::cause::{misformed, plain};
use super::generated;
use super::judged::{Judged, ManifestVerdict};
use super::node::JudgedNode;

/// An object and what admission said of it.
pub(super) struct Outcome {
    object: Object,
    is_generated: bool,
    pub(super) admission: Admission,
}

/// Judges an object of a kind of the table, as the agent would. Nothing when callers do not write the kind.
pub(super) fn admitted(
    value: Value,
    node: Option<&JudgedNode>,
) -> Result<Option<Outcome>, Refusal> {
    let kinds = Kinds::this_release();
    let (kind, object) = kinds.read(value)?;
    if !matches!(kind.writer, Writer::Objects(_)) {
        return Ok(None);
    }
    let given = Given {
        uid: generated::FIRST_UID,
        now: "",
        suffix: generated::SUFFIX,
    };
    let is_generated = object.metadata.name.is_empty();
    let mut object = create(kind, object, &given)?;
    let caps = node.map(|node| || node.caps.clone());
    let release = node.map_or(Some(CommonRelease::Head), |node| node.common);
    let find = |id: &ObjectId| common(release?, id);
    let context = AdmitContext {
        caps: caps.as_ref().map(|caps| caps as &dyn Fn() -> NodeCaps),
        before: None,
        find: &find,
        finds_all: false,
    };
    let admission = kind.admit(&mut object, &context);
    Ok(admission.map(|admission| Outcome {
        object,
        is_generated,
        admission,
    }))
}

/// The verdict on an object of a kind of the table.
pub(super) fn judge(judged: &mut Judged, value: Value, node: Option<&JudgedNode>) {
    let outcome = match admitted(value, node) {
        Ok(Some(outcome)) => outcome,
        Ok(None) => {
            judged.verdict = ManifestVerdict::Unsupported;
            let message = format!("a {} is written by the agent alone", judged.kind);
            judged.causes = vec![plain("kind", message)];
            return;
        }
        Err(refusal) => return refuse(judged, &refusal),
    };
    let Outcome {
        mut object,
        is_generated,
        admission,
    } = outcome;
    if !admission.errors.is_empty() {
        return judged.refuse(&admission.errors);
    }
    judged.verdict = ManifestVerdict::Accepted;
    judged.warnings = admission.warnings;
    let metadata = &mut object.metadata;
    metadata.uid.clear();
    metadata.generation = 0;
    if is_generated {
        metadata.name.clear();
    }
    judged.defaulted = Some(object.to_json());
}

/// What a node with a release of the common instance types and preferences has, unless its operator took it away.
fn common(release: CommonRelease, id: &ObjectId) -> Option<Object> {
    static HEAD: LazyLock<Vec<Value>> = LazyLock::new(|| CommonRelease::Head.objects());
    static FIRST: LazyLock<Vec<Value>> = LazyLock::new(|| CommonRelease::V1_0_0.objects());
    let objects = match release {
        CommonRelease::Head => &HEAD,
        CommonRelease::V1_0_0 => &FIRST,
    };
    let found = objects.iter().find(|object| {
        object["kind"] == id.kind.as_str() && object["metadata"]["name"] == id.name.as_str()
    });
    Object::from_json(found?.clone()).ok()
}

fn refuse(judged: &mut Judged, refusal: &Refusal) {
    judged.verdict = ManifestVerdict::Refused;
    match refusal {
        Refusal::Invalid(errors) => judged.refuse(errors),
        Refusal::Malformed(errors) => judged.causes = errors.iter().map(misformed).collect(),
        other => judged.causes = vec![plain("", other.to_string())],
    }
}

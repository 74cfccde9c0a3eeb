//! One object and what a node would say of it.

use agent_domain::{Admitted, Bound, FieldError, NodeCaps, Vmi};
use proto_node::DecodeError;
use proto_node::manifest::Document;
use proto_node::node::{Object, object};
use proto_node::vmi::VirtualMachineInstance;
use serde_json::{Value, json};

use super::generated;
use super::kinds::{Standing, standing};
use super::others;

/// What a node would say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It would take the object.
    Accepted,
    /// The object is legal, and this release or this node cannot honour it.
    Unsupported,
    /// KubeVirt refuses it too.
    Refused,
}

impl Verdict {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
        }
    }
}

/// One reason, as Kubernetes has them (`metav1.StatusCause`).
#[derive(Debug)]
pub struct Cause {
    /// Kubernetes' kind of cause.
    pub kind: &'static str,
    /// The field; empty for the object as a whole.
    pub field: String,
    /// What is wrong; KubeVirt's words where it has some.
    pub message: String,
    /// The same for people: with the value and the way out.
    pub detail: String,
}

/// An object that was judged.
#[derive(Debug)]
pub struct Judged {
    /// Where it is from.
    pub file: String,
    /// Its place among the objects of the file, from 0.
    pub index: usize,
    /// Its kind as it was written.
    pub kind: String,
    /// Its name; `generateName` with a star where it has none.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why it is not accepted.
    pub causes: Vec<Cause>,
    /// Advice.
    pub warnings: Vec<String>,
    /// Fields without effect.
    pub ignored: Vec<String>,
    /// The object with all defaults, when it is accepted.
    pub defaulted: Option<Value>,
}

impl Judged {
    /// The line that machines read.
    pub fn to_json(&self) -> Value {
        let causes: Vec<Value> = self
            .causes
            .iter()
            .map(
                |cause| json!({"type": cause.kind, "field": cause.field, "message": cause.message}),
            )
            .collect();
        json!({
            "file": self.file,
            "index": self.index,
            "kind": self.kind,
            "name": self.name,
            "verdict": self.verdict.as_str(),
            "causes": causes,
            "warnings": self.warnings,
            "ignored": self.ignored,
        })
    }
}

/// Judges the object at `index` of a file, for a node or, without one, for any that has all that this
/// release can use.
pub fn judge(file: &str, index: usize, document: Document, node: Option<&NodeCaps>) -> Judged {
    let mut judged = Judged {
        file: file.to_owned(),
        index,
        kind: document.name.kind.clone(),
        name: shown_name(&document),
        verdict: Verdict::Refused,
        causes: Vec::new(),
        warnings: Vec::new(),
        ignored: Vec::new(),
        defaulted: None,
    };
    // What has no kind, or not the form of a map, is refused with the reason that decoding gives.
    let is_named = !document.name.kind.is_empty() && !document.name.api_version.is_empty();
    if let (true, Standing::Legal(kind)) = (is_named, standing(&document.name)) {
        let object = document.other.clone().unwrap_or_default();
        judged.causes = (kind.judge)(&kind, object, node);
        judged.verdict = if judged.causes.is_empty() {
            judged.causes = vec![not_taken(&document, kind.way_out)];
            Verdict::Unsupported
        } else {
            Verdict::Refused
        };
        return judged;
    }
    if let Some(value) = document.other {
        others::judge(&mut judged, value, node);
        return judged;
    }
    match document.object {
        Err(errors) => judged.causes = errors.iter().map(misformed).collect(),
        Ok(Object {
            kind: Some(object::Kind::VirtualMachineInstance(vmi)),
        }) => judge_vmi(&mut judged, vmi, node),
        Ok(_) => judged.verdict = Verdict::Unsupported,
    }
    judged
}

fn judge_vmi(judged: &mut Judged, vmi: VirtualMachineInstance, node: Option<&NodeCaps>) {
    match admit(vmi.clone(), generated::FIRST_UID, node) {
        Ok(admitted) => {
            judged.verdict = Verdict::Accepted;
            let other = admit(vmi, generated::OTHER_UID, node);
            judged.defaulted = other
                .ok()
                .map(|other| generated::without(&admitted.object, &other.object));
            judged.warnings = admitted.warnings;
            judged.ignored = admitted
                .ignored
                .into_iter()
                .map(|remark| remark.path)
                .collect();
        }
        Err(errors) => {
            judged.refuse(&errors);
        }
    }
}

impl Judged {
    /// Takes over what admission said.
    pub(super) fn refuse(&mut self, errors: &[FieldError]) {
        let is_illegal = errors.iter().any(|error| error.bound == Bound::Api);
        self.verdict = if is_illegal {
            Verdict::Refused
        } else {
            Verdict::Unsupported
        };
        self.causes = errors.iter().map(cause).collect();
    }
}

/// Admits an object as the agent would, which names what has no name and gives a uid.
fn admit(
    mut vmi: VirtualMachineInstance,
    uid: &str,
    node: Option<&NodeCaps>,
) -> Result<Admitted, Vec<FieldError>> {
    let metadata = vmi.metadata.get_or_insert_default();
    if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
        metadata.name = format!("{}{}", metadata.generate_name, generated::SUFFIX);
    }
    uid.clone_into(&mut metadata.uid);
    vmi.status = None;
    match node {
        Some(node) => Vmi::admit(vmi, node),
        None => Vmi::admit_anywhere(vmi),
    }
}

fn shown_name(document: &Document) -> String {
    let name = &document.name;
    if name.name.is_empty() && !name.generate_name.is_empty() {
        format!("{}*", name.generate_name)
    } else {
        name.name.clone()
    }
}

fn not_taken(document: &Document, way_out: &str) -> Cause {
    let name = &document.name;
    let message = format!(
        "kind {:?} of {:?} is not taken ({way_out})",
        name.kind, name.api_version
    );
    Cause {
        kind: "FieldValueNotSupported",
        field: "kind".to_owned(),
        detail: message.clone(),
        message,
    }
}

/// What is wrong with the form of an object.
pub(super) fn misformed(error: &DecodeError) -> Cause {
    Cause {
        kind: "FieldValueInvalid",
        field: error.path.clone(),
        message: error.message.clone(),
        detail: error.message.clone(),
    }
}

/// What admission said. KubeVirt's own refusals are told in its words alone; ours with the way out.
pub(super) fn cause(error: &FieldError) -> Cause {
    let words = if error.message.is_empty() {
        error.detail()
    } else {
        error.message.clone()
    };
    let has_more = error.bound != Bound::Api && !error.message.is_empty() && !error.fix.is_empty();
    let message = if has_more {
        format!("{words} ({})", error.fix)
    } else {
        words
    };
    Cause {
        kind: error.rule.cause(),
        field: error.path.clone(),
        message,
        detail: error.detail(),
    }
}

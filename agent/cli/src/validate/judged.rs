//! The result of judging an object.

use serde_json::{Value, json};

use super::cause::Cause;

/// What a node would say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ManifestVerdict {
    /// It would take the object.
    Accepted,
    /// The object is legal, and this release or this node cannot honour it.
    Unsupported,
    /// KubeVirt refuses it too.
    Refused,
}

impl ManifestVerdict {
    /// The word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Unsupported => "unsupported",
            Self::Refused => "refused",
        }
    }
}

/// An object that was judged.
#[derive(Debug)]
pub struct Judged {
    /// The file, as messages name it.
    pub file: String,
    /// Its place among the objects of the file, from 0.
    pub index: usize,
    /// Its kind as it was written.
    pub kind: String,
    /// Its name; `generateName` with a star where it has none.
    pub name: String,
    /// Whether the object is accepted, refused or unsupported.
    pub verdict: ManifestVerdict,
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

//! One object and what a node would say of it.

use agent_domain::{Admitted, Bound, FieldError, Vmi};
use proto_node::manifest::Document;
use proto_node::node::{Object, object};
use proto_node::vmi::VirtualMachineInstance;

use super::cause::{Cause, cause, misformed};
use super::judged::{Judged, ManifestVerdict};
use super::kinds::{Standing, standing};
use super::node::JudgedNode;
use super::{generated, others};

/// Judges the object at `index` of a file, for a node or, without one, for any that has all that this
/// release can use.
pub fn judge(file: &str, index: usize, document: Document, node: Option<&JudgedNode>) -> Judged {
    let mut judged = Judged {
        file: file.to_owned(),
        index,
        kind: document.name.kind.clone(),
        name: shown_name(&document),
        verdict: ManifestVerdict::Refused,
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
            ManifestVerdict::Unsupported
        } else {
            ManifestVerdict::Refused
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
        Ok(_) => judged.verdict = ManifestVerdict::Unsupported,
    }
    judged
}

fn judge_vmi(judged: &mut Judged, vmi: VirtualMachineInstance, node: Option<&JudgedNode>) {
    match admit(vmi.clone(), generated::FIRST_UID, node) {
        Ok(admitted) => {
            judged.verdict = ManifestVerdict::Accepted;
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
            ManifestVerdict::Refused
        } else {
            ManifestVerdict::Unsupported
        };
        self.causes = errors.iter().map(cause).collect();
    }
}

/// Admits an object as the agent would, which names what has no name and gives a uid.
fn admit(
    mut vmi: VirtualMachineInstance,
    uid: &str,
    node: Option<&JudgedNode>,
) -> Result<Admitted, Vec<FieldError>> {
    let metadata = vmi.metadata.get_or_insert_default();
    if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
        metadata.name = format!("{}{}", metadata.generate_name, generated::SUFFIX);
    }
    uid.clone_into(&mut metadata.uid);
    vmi.status = None;
    match node {
        Some(node) => Vmi::admit(vmi, &node.caps),
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

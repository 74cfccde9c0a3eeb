//! What an admission has found so far.

use std::collections::BTreeMap;

use proto_node::tame;
use proto_node::vmi::FeatureState;

use crate::admit::admitted::Remark;
use crate::admit::purpose::AdmissionPurpose;
use crate::caps::NodeCaps;
use crate::error::{Bound, FieldError, Rule};

/// More errors than this in one object are not worth reading.
const MAX_ERRORS: usize = 200;

/// vCPUs that a machine of this release can have, if its node can.
const MAX_VCPUS: u32 = 4096;

/// Longer texts are cut: they quote what callers wrote.
const MAX_TEXT_CHARS: usize = 1000;

/// Collects findings. Without a node only what does not depend on it is judged.
pub(super) struct Review<'a> {
    pub(super) purpose: AdmissionPurpose<'a>,
    /// The VMI's namespace.
    pub(super) namespace: String,
    pub(super) errors: Vec<FieldError>,
    pub(super) warnings: Vec<String>,
    pub(super) ignored: Vec<Remark>,
    pub(super) substituted: Vec<Remark>,
}

impl<'a> Review<'a> {
    pub(super) fn new(purpose: AdmissionPurpose<'a>) -> Self {
        Self {
            purpose,
            namespace: String::from("default"),
            errors: Vec::new(),
            warnings: Vec::new(),
            ignored: Vec::new(),
            substituted: Vec::new(),
        }
    }

    /// The node, if the object is admitted on one.
    pub(super) const fn caps(&self) -> Option<&'a NodeCaps> {
        self.purpose.caps()
    }

    /// The object is its caller's, who may not write what is the server's.
    pub(super) const fn is_new(&self) -> bool {
        self.purpose.is_new()
    }

    /// The most vCPUs that a VMI may have. What runs already has as many as it has.
    pub(super) fn max_vcpus(&self) -> u32 {
        match self.purpose {
            AdmissionPurpose::New(caps) => caps.max_vcpus,
            AdmissionPurpose::NewAnywhere => MAX_VCPUS,
            AdmissionPurpose::Stored => u32::MAX,
        }
    }

    pub(super) fn push(&mut self, mut error: FieldError) {
        if self.errors.len() >= MAX_ERRORS {
            return;
        }
        for text in [&mut error.path, &mut error.message, &mut error.fix] {
            *text = tame(text, MAX_TEXT_CHARS);
        }
        self.errors.push(error);
    }

    /// Whether every list has at most `most` elements. A longer one is refused unread: what follows
    /// compares elements with each other.
    pub(super) fn lists_fit(&mut self, lists: &[(&str, usize)], most: usize) -> bool {
        let mut fit = true;
        for (path, length) in lists {
            if *length > most {
                let message = format!("{path} list exceeds the {most} element limit in length");
                self.invalid(path, &length.to_string(), message);
                fit = false;
            }
        }
        fit
    }

    /// A malformed value.
    pub(super) fn invalid(&mut self, path: &str, value: &str, message: impl Into<String>) {
        self.push(FieldError::new(path, Rule::Invalid, message).value(value));
    }

    /// A value that is legal and cannot be honoured by this release.
    pub(super) fn unable(&mut self, path: &str, value: &str, message: impl Into<String>) {
        let error = FieldError::new(path, Rule::Invalid, message).value(value);
        self.push(error.beyond(Bound::Release));
    }

    /// Something that KubeVirt takes without, and that this release must be given.
    pub(super) fn missing(&mut self, path: &str, message: impl Into<String>) {
        let error = FieldError::new(path, Rule::Required, message);
        self.push(error.beyond(Bound::Release));
    }

    /// Something that must be given.
    pub(super) fn required(&mut self, path: &str, message: impl Into<String>) {
        self.push(FieldError::new(path, Rule::Required, message));
    }

    /// Something that the caller should know, and that nothing is refused for.
    pub(super) fn warn(&mut self, message: &str) {
        self.warnings.push(tame(message, MAX_TEXT_CHARS));
    }

    /// A field that is accepted and has no effect.
    pub(super) fn ignore(&mut self, path: String, why: &str) {
        self.ignored.push(Remark {
            path,
            message: why.to_owned(),
        });
    }

    /// A device that is provided as virtio instead.
    /// `change`: what is different for the guest, as a clause behind that.
    pub(super) fn substitute(&mut self, path: String, asked: &str, what: &str, change: &str) {
        let message = tame(
            &format!("{what} {asked:?} is provided as virtio{change}"),
            MAX_TEXT_CHARS,
        );
        if self.caps().is_some_and(|caps| caps.refuse_substitution) {
            self.push(
                FieldError::new(
                    path,
                    Rule::NotSupported,
                    format!("{what} would be provided as virtio"),
                )
                .value(asked)
                .fix("this node refuses substitution: use virtio or leave it out"),
            );
            return;
        }
        self.warnings.push(format!("{path}: {message}"));
        self.substituted.push(Remark { path, message });
    }
}

/// KubeVirt's features are on unless they say otherwise.
pub(super) fn is_on(state: &FeatureState) -> bool {
    state.enabled.unwrap_or(true)
}

/// Checks that no earlier element of a list has the name.
pub(super) fn unique(
    path: &str,
    name: &str,
    index: usize,
    seen: &mut BTreeMap<String, usize>,
    list: &str,
    review: &mut Review<'_>,
) -> bool {
    if name.is_empty() {
        return false;
    }
    if let Some(other) = seen.get(name) {
        let message = format!("{list}[{index}] and {list}[{other}] must not have the same Name.");
        let error = FieldError::new(format!("{path}.name"), Rule::Duplicate, message).value(name);
        review.push(error);
        return false;
    }
    seen.insert(name.to_owned(), index);
    true
}

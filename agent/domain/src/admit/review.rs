//! What an admission has found so far.

use crate::admit::Remark;
use crate::{FieldError, NodeCaps, Rule};

/// More errors than this in one object are not worth reading.
const MAX_ERRORS: usize = 200;

/// Collects findings. Without `caps` only what does not depend on the node is judged.
pub(super) struct Review<'a> {
    pub(super) caps: Option<&'a NodeCaps>,
    pub(super) errors: Vec<FieldError>,
    pub(super) warnings: Vec<String>,
    pub(super) ignored: Vec<Remark>,
    pub(super) substituted: Vec<Remark>,
}

impl<'a> Review<'a> {
    pub(super) fn new(caps: Option<&'a NodeCaps>) -> Self {
        Self {
            caps,
            errors: Vec::new(),
            warnings: Vec::new(),
            ignored: Vec::new(),
            substituted: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, error: FieldError) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(error);
        }
    }

    /// A malformed value.
    pub(super) fn invalid(&mut self, path: &str, value: &str, message: impl Into<String>) {
        self.push(FieldError::new(path, Rule::Invalid, message).value(value));
    }

    /// Something that must be given.
    pub(super) fn required(&mut self, path: &str, message: impl Into<String>) {
        self.push(FieldError::new(path, Rule::Required, message));
    }

    /// A device that is provided as virtio instead.
    pub(super) fn substitute(&mut self, path: String, asked: &str, what: &str) {
        let message = format!("{what} {asked:?} is provided as virtio");
        if self.caps.is_some_and(|caps| caps.refuse_substitution) {
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

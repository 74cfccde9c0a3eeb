//! What an admission has found so far.

use proto_node::tame;

use crate::admit::Remark;
use crate::{FieldError, NodeCaps, Rule};

/// More errors than this in one object are not worth reading.
const MAX_ERRORS: usize = 200;

/// Longer texts are cut: they quote what callers wrote.
const MAX_TEXT_CHARS: usize = 1000;

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

    /// Something that must be given.
    pub(super) fn required(&mut self, path: &str, message: impl Into<String>) {
        self.push(FieldError::new(path, Rule::Required, message));
    }

    /// A device that is provided as virtio instead.
    pub(super) fn substitute(&mut self, path: String, asked: &str, what: &str) {
        let message = tame(
            &format!("{what} {asked:?} is provided as virtio"),
            MAX_TEXT_CHARS,
        );
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

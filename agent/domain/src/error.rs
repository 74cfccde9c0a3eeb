//! Why a field was not admitted.

use std::fmt;

/// One reason why an object was not admitted. An admission reports all of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field as KubeVirt writes it, such as `spec.domain.devices.disks[1].name`. Empty: the
    /// object as a whole.
    pub path: String,
    /// Which kind of rule was broken.
    pub rule: Rule,
    /// The value that was seen, where one helps; strings without their quotes.
    pub value: Option<String>,
    /// What is wrong, in KubeVirt's words where it has some.
    pub message: String,
    /// The way out; empty where the message says it.
    pub fix: String,
    /// Source of the broken rule.
    pub bound: Bound,
}

/// Source of a rule that an object breaks. What breaks the API's is refused everywhere; the rest is legal, and may
/// be honoured by a later release or by another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bound {
    /// KubeVirt's: it refuses the object too.
    Api,
    /// This release's: it cannot honour the field or the value.
    Release,
    /// The node's: its size, its configuration.
    Node,
}

/// Kubernetes' kinds of field errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The field must be given.
    Required,
    /// The value is malformed or does not go with others.
    Invalid,
    /// The value is not among those that exist or that this release honours.
    NotSupported,
    /// The value is there twice.
    Duplicate,
    /// The value is longer than the API allows.
    TooLong,
    /// The value is not allowed on this node.
    Forbidden,
    /// What the value refers to is not there, or is not what it should be.
    NotFound,
}

impl Rule {
    /// Kubernetes' machine-readable word (`metav1.CauseType`).
    #[must_use]
    pub const fn cause(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::TooLong => "FieldValueTooLong",
            Self::Forbidden => "FieldValueForbidden",
            Self::NotFound => "FieldValueNotFound",
        }
    }

    /// The words with which kubectl opens an error.
    const fn opening(self) -> &'static str {
        match self {
            Self::Required => "Required value",
            Self::Invalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Duplicate => "Duplicate value",
            Self::TooLong => "Too long",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "Not found",
        }
    }
}

impl FieldError {
    /// An error without value and way out. Values that are not supported are beyond this release and
    /// those that are forbidden are beyond the node, unless [`Self::beyond`] says otherwise; all others
    /// are beyond the API.
    pub fn new(path: impl Into<String>, rule: Rule, message: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            rule,
            value: None,
            message: message.into(),
            fix: String::new(),
            bound: match rule {
                Rule::NotSupported => Bound::Release,
                Rule::Forbidden => Bound::Node,
                Rule::Required
                | Rule::Invalid
                | Rule::Duplicate
                | Rule::TooLong
                | Rule::NotFound => Bound::Api,
            },
        }
    }

    /// The same, as a breach of another's rule.
    #[must_use]
    pub const fn beyond(mut self, bound: Bound) -> Self {
        self.bound = bound;
        self
    }

    /// The same with the value that was seen.
    #[must_use]
    pub fn value(mut self, value: impl Into<String>) -> Self {
        self.value = Some(value.into());
        self
    }

    /// The same with the way out.
    #[must_use]
    pub fn fix(mut self, fix: impl Into<String>) -> Self {
        self.fix = fix.into();
        self
    }

    /// The same of an object that is within another, at `place`: the fields that it names are there.
    #[must_use]
    pub fn within(mut self, place: &str) -> Self {
        self.path = if self.path.is_empty() {
            place.to_owned()
        } else {
            format!("{place}.{}", self.path)
        };
        self.message = of_fields_within(place, &self.message);
        self
    }

    /// All but the path, as kubectl prints it: `Invalid value: "v": message (fix)`.
    #[must_use]
    pub fn detail(&self) -> String {
        let mut text = self.rule.opening().to_owned();
        if let Some(value) = &self.value {
            text.push_str(": ");
            text.push_str(&quoted(value));
        }
        if !self.message.is_empty() {
            text.push_str(": ");
            text.push_str(&self.message);
        }
        if !self.fix.is_empty() {
            text.push_str(" (");
            text.push_str(&self.fix);
            text.push(')');
        }
        text
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            return out.write_str(&self.detail());
        }
        write!(out, "{}: {}", self.path, self.detail())
    }
}

impl std::error::Error for FieldError {}

/// `text` about fields of an object, for an object that is within another at `place`: paths begin there.
pub(crate) fn of_fields_within(place: &str, text: &str) -> String {
    const SPEC: &str = "spec.";
    let mut moved = String::with_capacity(text.len() + place.len());
    let mut rest = text;
    while let Some(at) = rest.find(SPEC) {
        let (before, found) = rest.split_at(at);
        moved.push_str(before);
        // Not the end of another word, and not a field of an object within.
        let is_part = moved.ends_with(|letter: char| letter.is_alphanumeric() || letter == '.');
        if !is_part {
            moved.push_str(place);
            moved.push('.');
        }
        let (spec, after) = found.split_at(SPEC.len());
        moved.push_str(spec);
        rest = after;
    }
    moved.push_str(rest);
    moved
}

/// Values come from callers: control characters are escaped and the length is bounded.
fn quoted(value: &str) -> String {
    const MAX_CHARS: usize = 128;
    let mut text: String = value.chars().take(MAX_CHARS).collect();
    if text.len() < value.len() {
        text.push('…');
    }
    format!("{text:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_within_another_object_names_its_fields_there() {
        let error = FieldError::new(
            "spec.volumes[0]",
            Rule::Invalid,
            "spec.volumes[0] must go with spec.domain, not metadata.spec.x or respec.y",
        );
        let error = error.within("spec.template");
        assert_eq!(error.path, "spec.template.spec.volumes[0]");
        assert_eq!(
            error.message,
            "spec.template.spec.volumes[0] must go with spec.template.spec.domain, not metadata.spec.x or respec.y"
        );
        let whole = FieldError::new("", Rule::Invalid, "odd").within("spec.template");
        assert_eq!(whole.path, "spec.template");
    }
}

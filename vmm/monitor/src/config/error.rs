//! A field that is wrong.

/// A field that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field} {rule}")]
pub struct FieldError {
    /// Path within `MachineConfig`.
    pub field: String,
    /// What is wrong with it and what it must be; continues the path as a sentence.
    pub rule: String,
}

impl FieldError {
    /// An error of `field`.
    pub fn new(field: impl Into<String>, rule: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            rule: rule.into(),
        }
    }
}

/// An enumerator that this VMM does not know.
pub(super) fn unknown(field: &str, value: i32) -> FieldError {
    FieldError::new(field, format!("is {value}, which this VMM does not know"))
}

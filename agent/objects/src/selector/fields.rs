//! Field selectors.

use serde_json::Value;

use super::{SelectorError, bounded, comparison};
use crate::kind::ObjectKind;
use crate::kind::table::Kinds;

/// Fields that an object has from its making to its end.
pub(super) const LASTING: [&str; 4] = [
    "metadata.creationTimestamp",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Selects by values of fields; all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FieldRequirement {
    path: String,
    equal: bool,
    wanted: String,
    /// Whether the field never changes.
    lasting: bool,
}

impl FieldSelector {
    /// Reads a selector such as `metadata.name=web,status.phase!=Failed` of objects of `kind`. Empty selects
    /// everything.
    ///
    /// # Errors
    /// See [`SelectorError`].
    pub fn parse(text: &str, kinds: &Kinds, kind: &ObjectKind) -> Result<Self, SelectorError> {
        bounded(text)?;
        let mut requirements = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let malformed = || SelectorError::Malformed(part.to_owned());
            let (path, equal, value) = comparison(part).ok_or_else(malformed)?;
            if !kinds.schema().is_value_path(kind.message, path) {
                return Err(SelectorError::NoField(path.to_owned(), kind.kind));
            }
            requirements.push(FieldRequirement {
                path: path.to_owned(),
                equal,
                wanted: value.to_owned(),
                lasting: LASTING.contains(&path) || kind.lasting.contains(&path),
            });
        }
        Ok(Self(requirements))
    }

    /// Whether the fields of an object in JSON form are so. An absent field is the empty text.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        self.0.iter().all(|requirement| requirement.holds(object))
    }

    /// Whether the object, at some time, can have had such fields: those that never change are so.
    #[must_use]
    pub fn can_match(&self, object: &Value) -> bool {
        let mut lasting = self.0.iter().filter(|requirement| requirement.lasting);
        lasting.all(|requirement| requirement.holds(object))
    }
}

impl FieldRequirement {
    pub(super) fn holds(&self, object: &Value) -> bool {
        let mut value = object;
        for member in self.path.split('.') {
            value = &value[member];
        }
        let text = match value {
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        (text == self.wanted) == self.equal
    }
}

//! Kubernetes' label and field selectors.

use proto_node::is_value_path;
use serde_json::Value;

use crate::Kind;

/// Selectors longer than this are refused.
const MAX_BYTES: usize = 8192;

/// Why a selector was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It is too long.
    #[error("selector is {0} bytes long; at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// A requirement can not be read.
    #[error(
        "selector requirement {0:?} is none of: key, !key, key=value, key!=value, key in (a,b), key notin (a,b)"
    )]
    Malformed(String),
    /// Nothing of that kind has such a field, or more than one value there.
    #[error(
        "field label not supported: {0:?} is no field of one value of a {1}, such as metadata.name"
    )]
    NoField(String, &'static str),
}

/// Fields that an object has from its making to its end.
const LASTING: [&str; 4] = [
    "metadata.creationTimestamp",
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
];

/// Fields that an event alone has so: one that happens again is counted and has a later time.
const LASTING_OF_EVENTS: [&str; 11] = [
    "firstTimestamp",
    "involvedObject.apiVersion",
    "involvedObject.kind",
    "involvedObject.name",
    "involvedObject.namespace",
    "involvedObject.uid",
    "message",
    "reason",
    "source.component",
    "source.host",
    "type",
];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Requirement {
    Exists(String),
    NotExists(String),
    In(String, Vec<String>),
    NotIn(String, Vec<String>),
}

/// Selects by labels; all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LabelSelector(Vec<Requirement>);

impl LabelSelector {
    /// Reads a selector such as `app=web,tier in (a,b),!old`. Empty selects everything.
    ///
    /// # Errors
    /// See [`SelectorError`].
    pub fn parse(text: &str) -> Result<Self, SelectorError> {
        bounded(text)?;
        split_outside_parentheses(text)
            .into_iter()
            .map(requirement)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// Whether an object in JSON form has such labels.
    #[must_use]
    pub fn matches(&self, object: &Value) -> bool {
        let labels = &object["metadata"]["labels"];
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => labels.get(key).is_some(),
            Requirement::NotExists(key) => labels.get(key).is_none(),
            Requirement::In(key, values) => labels
                .get(key)
                .and_then(Value::as_str)
                .is_some_and(|label| values.iter().any(|value| value == label)),
            Requirement::NotIn(key, values) => labels
                .get(key)
                .and_then(Value::as_str)
                .is_none_or(|label| values.iter().all(|value| value != label)),
        })
    }
}

/// Selects by values of fields; all requirements must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FieldSelector(Vec<FieldRequirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct FieldRequirement {
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
    pub fn parse(text: &str, kind: Kind) -> Result<Self, SelectorError> {
        bounded(text)?;
        let mut requirements = Vec::new();
        for part in text
            .split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
        {
            let malformed = || SelectorError::Malformed(part.to_owned());
            let (path, equal, value) = comparison(part).ok_or_else(malformed)?;
            if !is_value_path(kind.as_str(), path) {
                return Err(SelectorError::NoField(path.to_owned(), kind.as_str()));
            }
            requirements.push(FieldRequirement {
                path: path.to_owned(),
                equal,
                wanted: value.to_owned(),
                lasting: lasts(kind, path),
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
    fn holds(&self, object: &Value) -> bool {
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

/// Whether a field of an object of this kind never changes.
fn lasts(kind: Kind, path: &str) -> bool {
    LASTING.contains(&path) || (kind == Kind::Event && LASTING_OF_EVENTS.contains(&path))
}

const fn bounded(text: &str) -> Result<(), SelectorError> {
    if text.len() > MAX_BYTES {
        Err(SelectorError::TooLong(text.len()))
    } else {
        Ok(())
    }
}

/// `key=value`, `key==value` or `key!=value`: key, whether equal, value.
fn comparison(part: &str) -> Option<(&str, bool, &str)> {
    let (key, equal, value) = if let Some((key, value)) = part.split_once("!=") {
        (key, false, value)
    } else {
        let (key, value) = part.split_once('=')?;
        (key, true, value.strip_prefix('=').unwrap_or(value))
    };
    let (key, value) = (key.trim(), value.trim());
    let clean = !key.is_empty()
        && !key.contains(char::is_whitespace)
        && !value.contains(['=', '!', '(', ')']);
    clean.then_some((key, equal, value))
}

fn split_outside_parentheses(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut depth) = (Vec::new(), 0, 0_usize);
    for (index, character) in text.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
        .into_iter()
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .collect()
}

fn requirement(part: &str) -> Result<Requirement, SelectorError> {
    let malformed = || SelectorError::Malformed(part.to_owned());
    if let Some((key, equal, value)) = comparison(part) {
        let (key, values) = (key.to_owned(), vec![value.to_owned()]);
        return Ok(if equal {
            Requirement::In(key, values)
        } else {
            Requirement::NotIn(key, values)
        });
    }
    if let Some(set) = part.strip_suffix(')') {
        let (head, values) = set.split_once('(').ok_or_else(malformed)?;
        let values: Vec<String> = values
            .split(',')
            .map(|value| value.trim().to_owned())
            .collect();
        let mut words = head.split_whitespace();
        return match (words.next(), words.next(), words.next()) {
            (Some(key), Some("in"), None) => Ok(Requirement::In(key.to_owned(), values)),
            (Some(key), Some("notin"), None) => Ok(Requirement::NotIn(key.to_owned(), values)),
            _ => Err(malformed()),
        };
    }
    let (negated, key) = part
        .strip_prefix('!')
        .map_or((false, part), |key| (true, key.trim()));
    if key.is_empty()
        || key.contains(|character: char| character.is_whitespace() || "=!(),".contains(character))
    {
        return Err(malformed());
    }
    Ok(if negated {
        Requirement::NotExists(key.to_owned())
    } else {
        Requirement::Exists(key.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Value {
        serde_json::json!({
            "metadata": {"name": "web", "labels": {"app": "web", "tier": "a"}},
            "spec": {"domain": {"cpu": {"cores": 3}}},
            "status": {"phase": "Running"}
        })
    }

    fn labels(text: &str) -> bool {
        LabelSelector::parse(text)
            .expect("a selector")
            .matches(&object())
    }

    fn fields(text: &str) -> bool {
        FieldSelector::parse(text, Kind::VirtualMachineInstance)
            .expect("a selector")
            .matches(&object())
    }

    #[test]
    fn labels_select_as_in_kubernetes() {
        for yes in [
            "",
            "app",
            "app=web",
            "app==web,tier in (a, b)",
            "!old",
            "app!=db",
            "tier notin (x,y)",
            "old notin (x)",
        ] {
            assert!(labels(yes), "{yes}");
        }
        for no in [
            "old",
            "app=db",
            "!app",
            "app!=web",
            "tier in (x)",
            "tier notin (a)",
        ] {
            assert!(!labels(no), "{no}");
        }
    }

    #[test]
    fn fields_select_by_path() {
        for yes in [
            "",
            "metadata.name=web",
            "status.phase!=Failed",
            "spec.domain.cpu.cores=3",
            "status.reason=",
        ] {
            assert!(fields(yes), "{yes}");
        }
        for no in [
            "metadata.name=db",
            "status.phase!=Running",
            "spec.domain.cpu.cores!=3",
        ] {
            assert!(!fields(no), "{no}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for bad in ["a in b", "a b", "=x", "a in (x", "x)", "a==b=c", "!"] {
            assert!(LabelSelector::parse(bad).is_err(), "{bad}");
        }
        let told = FieldSelector::parse("status.phse!=Failed", Kind::VirtualMachineInstance);
        assert_eq!(
            told.expect_err("no field").to_string(),
            "field label not supported: \"status.phse\" is no field of one value of a VirtualMachineInstance, \
             such as metadata.name"
        );
        assert!(FieldSelector::parse("a", Kind::Event).is_err());
        assert!(LabelSelector::parse(&"a,".repeat(MAX_BYTES)).is_err());
    }
}

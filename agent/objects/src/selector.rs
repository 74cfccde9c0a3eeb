//! Kubernetes' label and field selectors.

pub(crate) mod fields;

use std::collections::BTreeMap;
use std::fmt;

use proto_node::meta::LabelSelector as Written;

/// Selectors longer than this are refused.
const MAX_BYTES: usize = 8192;

/// Why a selector was refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SelectorError {
    /// It is too long.
    #[error("selector is {0} bytes long; at most {MAX_BYTES} are read")]
    TooLong(usize),
    /// A requirement cannot be read.
    #[error(
        "selector requirement {0:?} is none of: key, !key, key=value, key!=value, key in (a,b), key notin (a,b)"
    )]
    Malformed(String),
    /// Nothing of that kind has such a field, or more than one value there.
    #[error(
        "field label not supported: {0:?} is no field of one value of a {1}, such as metadata.name"
    )]
    NoField(String, &'static str),
    /// A requirement of `matchExpressions` makes no sense.
    #[error("{0:?} is not a valid label selector operator")]
    Operator(String),
    /// An operator has values and must have none, or has none and must have some.
    #[error("values of {key:?}: for operator {operator} {rule}")]
    Values {
        /// Key of the label.
        key: String,
        /// Operator as the selector has it, such as `NotIn`.
        operator: String,
        /// Number of values that the operator takes.
        rule: &'static str,
    },
}

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

    /// Reads `matchLabels` and `matchExpressions`.
    ///
    /// # Errors
    /// See [`SelectorError`].
    pub fn of(written: &Written) -> Result<Self, SelectorError> {
        let labels = written.match_labels.iter();
        let mut all: Vec<Requirement> = labels
            .map(|(key, value)| Requirement::In(key.clone(), vec![value.clone()]))
            .collect();
        for expression in &written.match_expressions {
            let (key, values) = (expression.key.clone(), expression.values.clone());
            let wrong = |rule| SelectorError::Values {
                key: key.clone(),
                operator: expression.operator.clone(),
                rule,
            };
            let takes_values = matches!(expression.operator.as_str(), "In" | "NotIn");
            if takes_values && values.is_empty() {
                return Err(wrong("must be specified"));
            }
            if !takes_values && !values.is_empty() {
                return Err(wrong("may not be specified"));
            }
            all.push(match expression.operator.as_str() {
                "In" => Requirement::In(key, values),
                "NotIn" => Requirement::NotIn(key, values),
                "Exists" => Requirement::Exists(key),
                "DoesNotExist" => Requirement::NotExists(key),
                other => return Err(SelectorError::Operator(other.to_owned())),
            });
        }
        Ok(Self(all))
    }

    /// Whether an object with these labels is selected.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| match requirement {
            Requirement::Exists(key) => labels.contains_key(key),
            Requirement::NotExists(key) => !labels.contains_key(key),
            Requirement::In(key, values) => {
                labels.get(key).is_some_and(|label| values.contains(label))
            }
            Requirement::NotIn(key, values) => {
                labels.get(key).is_none_or(|label| !values.contains(label))
            }
        })
    }
}

/// The string form, such as `app=web,tier in (a,b),!old`.
impl fmt::Display for LabelSelector {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, requirement) in self.0.iter().enumerate() {
            if index > 0 {
                out.write_str(",")?;
            }
            match requirement {
                Requirement::Exists(key) => write!(out, "{key}")?,
                Requirement::NotExists(key) => write!(out, "!{key}")?,
                Requirement::In(key, values) => match values.as_slice() {
                    [value] => write!(out, "{key}={value}")?,
                    values => write!(out, "{key} in ({})", values.join(","))?,
                },
                Requirement::NotIn(key, values) => {
                    write!(out, "{key} notin ({})", values.join(","))?;
                }
            }
        }
        Ok(())
    }
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
    use serde_json::Value;

    use super::fields::FieldSelector;
    use super::*;
    use crate::kind::table::Kinds;

    fn object() -> Value {
        serde_json::json!({
            "metadata": {"name": "web", "labels": {"app": "web", "tier": "a"}},
            "spec": {"domain": {"cpu": {"cores": 3}}},
            "status": {"phase": "Running"}
        })
    }

    fn labels(text: &str) -> bool {
        let labels = [("app", "web"), ("tier", "a")];
        let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
        LabelSelector::parse(text)
            .expect("a selector")
            .matches(&labels.into())
    }

    fn field_selector(text: &str, kind: &str) -> Result<FieldSelector, SelectorError> {
        let kinds = Kinds::this_release();
        FieldSelector::parse(text, kinds, kinds.find(kind).expect("a kind"))
    }

    fn fields(text: &str) -> bool {
        field_selector(text, "VirtualMachineInstance")
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
        let error = field_selector("status.phse!=Failed", "VirtualMachineInstance");
        assert_eq!(
            error.expect_err("no field").to_string(),
            "field label not supported: \"status.phse\" is no field of one value of a VirtualMachineInstance, \
             such as metadata.name"
        );
        assert!(field_selector("a", "Event").is_err());
        assert!(LabelSelector::parse(&"a,".repeat(MAX_BYTES)).is_err());
    }

    #[test]
    fn a_written_selector_is_the_one_of_its_string_form() {
        let requirement = |key: &str, operator: &str, values: &[&str]| {
            proto_node::meta::LabelSelectorRequirement {
                key: key.to_owned(),
                operator: operator.to_owned(),
                values: values.iter().map(|value| (*value).to_owned()).collect(),
            }
        };
        let mut written = Written {
            match_labels: [(String::from("app"), String::from("web"))].into(),
            match_expressions: vec![
                requirement("tier", "In", &["a", "b"]),
                requirement("zone", "NotIn", &["x"]),
                requirement("live", "Exists", &[]),
                requirement("old", "DoesNotExist", &[]),
            ],
        };
        let selector = LabelSelector::of(&written).expect("a selector");
        let text = selector.to_string();
        assert_eq!(text, "app=web,tier in (a,b),zone notin (x),live,!old");
        assert_eq!(LabelSelector::parse(&text), Ok(selector));
        for wrong in [
            requirement("a", "In", &[]),
            requirement("a", "Exists", &["x"]),
            requirement("a", "Like", &[]),
        ] {
            written.match_expressions = vec![wrong];
            assert!(LabelSelector::of(&written).is_err(), "{written:?}");
        }
    }
}

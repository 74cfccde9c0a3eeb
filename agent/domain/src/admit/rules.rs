//! The rules that the descriptors state: required fields, known values, levels of support.

use prost::{Message, Name};
use proto_node::node::{FieldRules, SupportLevel};
use proto_node::{Seen, Visited, visit};

use super::Remark;
use super::review::Review;
use crate::quantity::Quantity;
use crate::{Bound, FieldError, Rule};

/// Judges every field that is set or required, but for what is in the fields of `left_out`: those are another's to judge.
pub(super) fn check<M: Message + Name>(object: &M, left_out: &[&str], review: &mut Review<'_>) {
    visit(object, "", &mut |field| {
        if field.seen != Seen::Absent && left_out.contains(&field.path) {
            return false;
        }
        check_field(&field, review)
    });
}

/// Answers whether the children of the field are to be judged too.
fn check_field(field: &Visited<'_>, review: &mut Review<'_>) -> bool {
    let rules = field.rules;
    if field.seen == Seen::Absent {
        review.required(
            field.path,
            format!("{} in body is required", without_indexes(field.path)),
        );
        return false;
    }
    if let Seen::Quantity(text) = field.seen
        && Quantity::parse(text).is_none()
    {
        review.invalid(
            field.path,
            text,
            "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'",
        );
        return false;
    }
    let value = match field.seen {
        Seen::Bool(true) => Some("true"),
        Seen::Bool(false) => Some("false"),
        Seen::Text(text) | Seen::Number(text) | Seen::Quantity(text) => Some(text),
        Seen::Absent | Seen::Object => None,
    };
    if let Some(value) = value
        && !known(rules, value)
    {
        review.push(unknown_value(field.path, rules, value));
        return false;
    }
    match rules.support() {
        // What a host lacks is judged where its abilities are known.
        SupportLevel::Supported | SupportLevel::Host => {}
        SupportLevel::Ignored => {
            review.ignored.push(Remark {
                path: field.path.to_owned(),
                message: rules.note.clone(),
            });
            return false;
        }
        SupportLevel::Unsupported => {
            review.push(not_honoured(field.path, rules, value));
            return false;
        }
    }
    if let Some(value) = value
        && !rules.honoured.is_empty()
        && !rules.honoured.iter().any(|honoured| honoured == value)
    {
        review.push(not_honoured(field.path, rules, Some(value)));
    }
    true
}

fn known(rules: &FieldRules, value: &str) -> bool {
    rules.allowed.is_empty() || rules.allowed.iter().any(|allowed| allowed == value)
}

fn not_honoured(path: &str, rules: &FieldRules, value: Option<&str>) -> FieldError {
    let mut error = FieldError::new(path, Rule::NotSupported, "not supported by this release")
        .fix(rules.note.clone());
    error.value = value.map(str::to_owned);
    error
}

/// A value that KubeVirt itself does not know, in its words where it has some.
fn unknown_value(path: &str, rules: &FieldRules, value: &str) -> FieldError {
    let message = match path {
        "spec.architecture" => format!("unsupported architecture: {value}"),
        "spec.evictionStrategy" | "spec.startStrategy" => {
            format!("{path} is set with an unrecognized option: {value}")
        }
        "spec.domain.ioThreadsPolicy" => format!("Invalid IOThreadsPolicy ({value})"),
        "spec.runStrategy" => format!("Invalid RunStrategy ({value})"),
        _ => String::new(),
    };
    let allowed: Vec<String> = rules
        .allowed
        .iter()
        .map(|value| format!("{value:?}"))
        .collect();
    let supported = format!("supported values: {}", allowed.join(", "));
    let error = if message.is_empty() {
        FieldError::new(path, Rule::NotSupported, supported).value(value)
    } else {
        FieldError::new(path, Rule::Invalid, message)
            .value(value)
            .fix(supported)
    };
    error.beyond(Bound::Api)
}

/// OpenAPI's messages name fields without list indexes.
fn without_indexes(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    let mut inside = false;
    for character in path.chars() {
        match character {
            '[' => inside = true,
            ']' => inside = false,
            _ if !inside => text.push(character),
            _ => {}
        }
    }
    text
}

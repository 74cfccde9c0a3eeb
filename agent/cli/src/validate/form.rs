//! The form of kinds that no node takes, in a notation that is short enough for the table of kinds: a message for each
//! would be generated code that nothing but this command uses.
//!
//! A form lists the members of an object: `name` is text, `name:i` an integer, `name:b` a truth value, `name:q` a quantity
//! and `name:any` anything; `name{...}` is an object with members of its own. `[]` makes a list of it and `.*` a map with any keys;
//! `!` after the name says that it must be there. All kinds have `apiVersion`, `kind`, `metadata` and `status`
//! besides.

use serde_json::Value;

use super::cause::{Cause, plain};

/// One member of an object.
struct Member<'a> {
    name: &'a str,
    is_required: bool,
    many: Many,
    value: Kind<'a>,
}

/// How many values a member has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Many {
    One,
    List,
    Map,
}

/// What one value is.
enum Kind<'a> {
    Text,
    Integer,
    Bool,
    Quantity,
    Any,
    Object(Vec<Member<'a>>),
}

/// What of an object does not have a form.
pub(super) fn misfits(form: &str, object: &Value) -> Vec<Cause> {
    let mut rest = form;
    let mut members = members(&mut rest);
    let known = [
        ("apiVersion", Kind::Text),
        ("kind", Kind::Text),
        ("metadata", Kind::Any),
        ("status", Kind::Any),
    ];
    members.extend(known.map(|(name, value)| Member {
        name,
        is_required: false,
        many: Many::One,
        value,
    }));
    let mut causes = Vec::new();
    check_object(&members, object, &FieldPath::default(), &mut causes);
    causes
}

/// Reads members up to the end of an object or of the form.
fn members<'a>(rest: &mut &'a str) -> Vec<Member<'a>> {
    let mut members = Vec::new();
    loop {
        *rest = rest.trim_start();
        if rest.is_empty() {
            return members;
        }
        if take(rest, "}") {
            return members;
        }
        let end = rest.find(|letter: char| !letter.is_ascii_alphanumeric());
        let (name, after) = rest.split_at(end.unwrap_or(rest.len()));
        *rest = after;
        let is_required = take(rest, "!");
        let many = if take(rest, "[]") {
            Many::List
        } else if take(rest, ".*") {
            Many::Map
        } else {
            Many::One
        };
        let value = if take(rest, "{") {
            Kind::Object(self::members(rest))
        } else if take(rest, ":any") {
            Kind::Any
        } else if take(rest, ":i") {
            Kind::Integer
        } else if take(rest, ":b") {
            Kind::Bool
        } else if take(rest, ":q") {
            Kind::Quantity
        } else {
            Kind::Text
        };
        members.push(Member {
            name,
            is_required,
            many,
            value,
        });
    }
}

fn take(rest: &mut &str, token: &str) -> bool {
    match rest.strip_prefix(token) {
        Some(after) => {
            *rest = after;
            true
        }
        None => false,
    }
}

/// Path of a field in an object: with the indexes of lists, and without as messages of OpenAPI have it.
#[derive(Clone, Default)]
struct FieldPath {
    field: String,
    words: String,
}

impl FieldPath {
    fn member(&self, name: &str) -> Self {
        let name = proto_node::tame(name, 64);
        let within = |place: &str| match place {
            "" => name.clone(),
            _ => format!("{place}.{name}"),
        };
        Self {
            field: within(&self.field),
            words: within(&self.words),
        }
    }

    fn element(&self, index: usize) -> Self {
        Self {
            field: format!("{}[{index}]", self.field),
            words: self.words.clone(),
        }
    }

    fn wrong_type(&self, wanted: &str, value: &Value) -> Cause {
        let seen = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_f64() => "number",
            Value::Number(_) => "integer",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        let message = format!("{} in body must be of type {wanted}: {seen:?}", self.words);
        plain(&self.field, message.trim_start().to_owned())
    }
}

fn check_object(
    members: &[Member<'_>],
    object: &Value,
    place: &FieldPath,
    causes: &mut Vec<Cause>,
) {
    let Value::Object(given) = object else {
        causes.push(place.wrong_type("object", object));
        return;
    };
    for (name, value) in given {
        let here = place.member(name);
        match members.iter().find(|member| member.name == name) {
            Some(member) => check(member, value, &here, causes),
            None => {
                let message = format!("unknown field {:?}", here.field);
                causes.push(plain(&here.field, message));
            }
        }
    }
    for member in members.iter().filter(|member| member.is_required) {
        if !given.contains_key(member.name) {
            let here = place.member(member.name);
            causes.push(Cause {
                kind: "FieldValueRequired",
                ..plain(&here.field, format!("{} in body is required", here.words))
            });
        }
    }
}

fn check(member: &Member<'_>, value: &Value, place: &FieldPath, causes: &mut Vec<Cause>) {
    match (member.many, value) {
        (Many::One, value) => check_value(&member.value, value, place, causes),
        (Many::List, Value::Array(items)) => {
            for (index, item) in items.iter().enumerate() {
                check_value(&member.value, item, &place.element(index), causes);
            }
        }
        (Many::Map, Value::Object(items)) => {
            for (key, item) in items {
                check_value(&member.value, item, &place.member(key), causes);
            }
        }
        (Many::List, other) => causes.push(place.wrong_type("array", other)),
        (Many::Map, other) => causes.push(place.wrong_type("object", other)),
    }
}

fn check_value(kind: &Kind<'_>, value: &Value, place: &FieldPath, causes: &mut Vec<Cause>) {
    let (fits, wanted) = match kind {
        Kind::Object(members) => return check_object(members, value, place, causes),
        Kind::Any => return,
        Kind::Text => (value.is_string(), "string"),
        Kind::Integer => (value.is_i64() || value.is_u64(), "integer"),
        Kind::Bool => (value.is_boolean(), "boolean"),
        Kind::Quantity => (value.is_string() || value.is_number(), "string or number"),
    };
    if !fits {
        causes.push(place.wrong_type(wanted, value));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const FORM: &str = "spec!{name! size:q count:i on:b tags[] labels.* parts![]{id! more:any}}";

    fn causes_of(object: &Value) -> Vec<String> {
        let causes = misfits(FORM, object).into_iter();
        causes
            .map(|cause| format!("{}: {}", cause.field, cause.message))
            .collect()
    }

    #[test]
    fn what_has_the_form_is_not_complained_of() {
        let object = json!({
            "apiVersion": "a", "kind": "B", "metadata": {"name": "c"}, "status": {"odd": 1},
            "spec": {
                "name": "n", "size": "1Gi", "count": 1, "on": true, "tags": ["a"], "labels": {"k": "v"},
                "parts": [{"id": "x", "more": [1]}],
            },
        });
        assert_eq!(causes_of(&object), [""; 0]);
    }

    #[test]
    fn what_is_unknown_missing_or_of_another_type_is_named() {
        assert_eq!(causes_of(&json!({})), ["spec: spec in body is required"]);
        assert_eq!(
            causes_of(&json!([])),
            [": in body must be of type object: \"array\""]
        );
        let object = json!({
            "spec": {"name": 1, "count": "1", "on": 0, "tags": "a", "labels": {"k": 1}, "nam": "", "parts": [{"more": 1}, 2]},
        });
        assert_eq!(
            causes_of(&object),
            [
                "spec.name: spec.name in body must be of type string: \"integer\"",
                "spec.count: spec.count in body must be of type integer: \"string\"",
                "spec.on: spec.on in body must be of type boolean: \"integer\"",
                "spec.tags: spec.tags in body must be of type array: \"string\"",
                "spec.labels.k: spec.labels.k in body must be of type string: \"integer\"",
                "spec.nam: unknown field \"spec.nam\"",
                "spec.parts[0].id: spec.parts.id in body is required",
                "spec.parts[1]: spec.parts in body must be of type object: \"integer\"",
            ]
        );
    }
}

//! A walk over the fields of a message with their rules, for whoever judges them.

use prost::{Message, Name};
use prost_reflect::{DynamicMessage, Value};

use crate::decode::wire_of;
use crate::encode::dynamic;
use crate::kvmlet::node::v1::FieldRules;
use crate::schema::{FieldKind, FieldSchema, MessageSchema, Shape, schema};
use crate::tree::path_segment;

/// One field of one message, as the walk comes by.
pub struct Visited<'a> {
    /// Path with list indexes, such as `spec.volumes[1].name`.
    pub path: &'a str,
    /// What the descriptor says about it.
    pub rules: &'a FieldRules,
    /// What it is set to.
    pub seen: Seen<'a>,
}

/// What a field is set to. Fields that are absent are not visited unless they are required.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Seen<'a> {
    /// Required and not there.
    Absent,
    /// A boolean.
    Bool(bool),
    /// A number, as text.
    Number(&'a str),
    /// A string, also an enumerated one.
    Text(&'a str),
    /// A quantity, as text; also each value of a map of quantities.
    Quantity(&'a str),
    /// A message, opaque JSON or a list of it.
    Object,
}

/// Visits every field of `message` that is set or required, parents before children. When `visitor`
/// answers `false` the children of the field are left out.
pub fn visit<M: Message + Name>(
    message: &M,
    path: &str,
    visitor: &mut dyn FnMut(Visited<'_>) -> bool,
) {
    let schema = schema().message(&M::full_name());
    let mut path = path.to_owned();
    Walk { visitor }.message(schema, &dynamic(message, schema), &mut path);
}

struct Walk<'v> {
    visitor: &'v mut dyn FnMut(Visited<'_>) -> bool,
}

impl Walk<'_> {
    fn message(&mut self, schema: &MessageSchema, message: &DynamicMessage, path: &mut String) {
        for field in &schema.fields {
            let before = path.len();
            if !path.is_empty() {
                path.push('.');
            }
            path.push_str(field.name());
            if message.has_field(&field.descriptor) {
                let value = message.get_field(&field.descriptor);
                self.field(field, value.as_ref(), path);
            } else if field.rules.required {
                self.report(field, path, Seen::Absent);
            }
            path.truncate(before);
        }
    }

    fn field(&mut self, field: &FieldSchema, value: &Value, path: &mut String) {
        match (field.shape, value) {
            (Shape::Single, value) => self.value(field, value, path),
            (Shape::List, Value::List(items)) => {
                let is_json = matches!(field.kind, FieldKind::Json(_));
                if is_json && !self.report(field, path, Seen::Object) {
                    return;
                }
                for (index, item) in items.iter().enumerate() {
                    self.within(&format!("[{index}]"), path, |walk, path| {
                        if is_json {
                            walk.beneath(field, item, path);
                        } else {
                            walk.value(field, item, path);
                        }
                    });
                }
            }
            (Shape::Map, Value::Map(members)) => {
                let mut keys: Vec<_> = members
                    .iter()
                    .filter_map(|(key, item)| Some((key.as_str()?, item)))
                    .collect();
                keys.sort_by_key(|(key, _)| *key);
                for (key, item) in keys {
                    self.within(&format!(".{}", path_segment(key)), path, |walk, path| {
                        walk.value(field, item, path);
                    });
                }
            }
            _ => {}
        }
    }

    fn within(
        &mut self,
        segment: &str,
        path: &mut String,
        inner: impl FnOnce(&mut Self, &mut String),
    ) {
        let before = path.len();
        path.push_str(segment);
        inner(self, path);
        path.truncate(before);
    }

    fn value(&mut self, field: &FieldSchema, value: &Value, path: &mut String) {
        let number;
        let seen = match value {
            Value::Bool(value) => Seen::Bool(*value),
            Value::String(text) if field.kind == FieldKind::Quantity => Seen::Quantity(text),
            Value::String(text) => Seen::Text(text),
            Value::I32(_) | Value::I64(_) | Value::U32(_) | Value::U64(_) => {
                number = number_text(value);
                Seen::Number(&number)
            }
            _ => Seen::Object,
        };
        if self.report(field, path, seen) {
            self.beneath(field, value, path);
        }
    }

    /// What is in a value that is described by a message.
    fn beneath(&mut self, field: &FieldSchema, value: &Value, path: &mut String) {
        let Some(form) = field.form() else { return };
        let form = schema().message(form);
        match value {
            Value::Message(message) => self.message(form, message, path),
            // JSON that the codec did not make may be anything: what has another form is nobody's to judge here.
            Value::Bytes(json) => {
                let value = serde_json::from_slice::<serde_json::Value>(json).ok();
                let wire = value.and_then(|value| wire_of(schema(), form, &value).ok());
                let descriptor = form.descriptor.clone();
                let message =
                    wire.and_then(|wire| DynamicMessage::decode(descriptor, wire.as_slice()).ok());
                if let Some(message) = message {
                    self.message(form, &message, path);
                }
            }
            _ => {}
        }
    }

    fn report(&mut self, field: &FieldSchema, path: &str, seen: Seen<'_>) -> bool {
        (self.visitor)(Visited {
            path,
            rules: &field.rules,
            seen,
        })
    }
}

fn number_text(value: &Value) -> String {
    match value {
        Value::I32(value) => value.to_string(),
        Value::I64(value) => value.to_string(),
        Value::U32(value) => value.to_string(),
        Value::U64(value) => value.to_string(),
        _ => String::new(),
    }
}

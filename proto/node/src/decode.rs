//! From JSON values to messages. Strict, and all errors at once.

use std::fmt;

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::{DecodeError as DecodeError64, Engine};
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, MapKey, Value};

use crate::schema::{FieldKind, FieldSchema, MessageSchema, Schema, Shape, Width, schema};
use crate::tree::{Node, path_segment};

/// More errors than this in one object are not worth reading.
const MAX_ERRORS: usize = 100;

/// One reason why a value does not have the form of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// The field, such as `spec.volumes[1].name`; empty for the object as a whole.
    pub path: String,
    /// What is wrong, in Kubernetes' words.
    pub message: String,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() {
            out.write_str(&self.message)
        } else {
            write!(out, "{}: {}", self.path, self.message)
        }
    }
}

impl std::error::Error for DecodeError {}

/// Makes a message of a value.
///
/// # Errors
/// All fields that are unknown or have the wrong type.
pub fn from_node<M: Message + Name + Default>(node: &Node) -> Result<M, Vec<DecodeError>> {
    let schema = schema();
    typed(&dynamic_from_node(
        schema,
        schema.message(&M::full_name()),
        node,
    )?)
}

/// The message of generated code.
pub(crate) fn typed<M: Message + Default>(message: &DynamicMessage) -> Result<M, Vec<DecodeError>> {
    message.transcode_to().map_err(|error| {
        vec![DecodeError {
            path: String::new(),
            message: format!("does not fit the API: {error}"),
        }]
    })
}

/// Makes a message of a value, by its descriptor alone.
pub(crate) fn dynamic_from_node(
    schema: &Schema,
    message: &MessageSchema,
    node: &Node,
) -> Result<DynamicMessage, Vec<DecodeError>> {
    let mut decoder = Decoder {
        schema,
        errors: Vec::new(),
        unknown: None,
    };
    let message = decoder.message(message, node, &Path::Root);
    if decoder.errors.is_empty() {
        Ok(message)
    } else {
        Err(decoder.errors)
    }
}

/// The same of a value that may have fields which the descriptor has not: they are handed out.
pub(crate) fn dynamic_and_unknown(
    schema: &Schema,
    message: &MessageSchema,
    node: &Node,
) -> Result<(DynamicMessage, Vec<Unknown>), Vec<DecodeError>> {
    let mut decoder = Decoder {
        schema,
        errors: Vec::new(),
        unknown: Some(Vec::new()),
    };
    let message = decoder.message(message, node, &Path::Root);
    if decoder.errors.is_empty() {
        Ok((message, decoder.unknown.unwrap_or_default()))
    } else {
        Err(decoder.errors)
    }
}

/// A field that no descriptor has.
pub(crate) struct Unknown {
    /// Its path, such as `spec.volumes[1].novel`.
    pub(crate) path: String,
    /// The way to what it is in.
    pub(crate) above: Vec<Step>,
    /// Its name.
    pub(crate) name: String,
    /// What it is set to.
    pub(crate) value: Node,
}

/// A step into a JSON value.
pub(crate) enum Step {
    /// To a member of a map.
    Member(String),
    /// To an element of a list.
    Element(usize),
}

/// Where the decoder is. A list linked through the stack: nothing is built until an error needs it.
enum Path<'a> {
    Root,
    Field(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
    Key(&'a Path<'a>, &'a str),
}

impl Path<'_> {
    /// The path with list indexes, or without as the OpenAPI messages have it.
    fn render(&self, indexes: bool) -> String {
        let mut text = String::new();
        self.append(indexes, &mut text);
        text
    }

    /// The way from the root.
    fn steps(&self) -> Vec<Step> {
        let (parent, step) = match self {
            Self::Root => return Vec::new(),
            Self::Field(parent, name) | Self::Key(parent, name) => {
                (parent, Step::Member((*name).to_owned()))
            }
            Self::Index(parent, index) => (parent, Step::Element(*index)),
        };
        let mut steps = parent.steps();
        steps.push(step);
        steps
    }

    fn append(&self, indexes: bool, text: &mut String) {
        match self {
            Self::Root => {}
            Self::Field(parent, name) => {
                parent.append(indexes, text);
                if !text.is_empty() {
                    text.push('.');
                }
                text.push_str(&path_segment(name));
            }
            Self::Index(parent, index) => {
                parent.append(indexes, text);
                if indexes {
                    text.push_str(&format!("[{index}]"));
                }
            }
            Self::Key(parent, key) => {
                parent.append(indexes, text);
                let key = path_segment(key);
                if indexes {
                    text.push_str(&format!("[{key}]"));
                } else {
                    text.push('.');
                    text.push_str(&key);
                }
            }
        }
    }
}

struct Decoder<'a> {
    schema: &'a Schema,
    errors: Vec<DecodeError>,
    /// Unknown fields as they are met; nothing where they are errors.
    unknown: Option<Vec<Unknown>>,
}

impl Decoder<'_> {
    fn error(&mut self, path: &Path<'_>, message: String) {
        if self.errors.len() < MAX_ERRORS {
            self.errors.push(DecodeError {
                path: path.render(true),
                message,
            });
        }
    }

    fn wrong_type(&mut self, path: &Path<'_>, wanted: &str, node: &Node) {
        let message = format!(
            "{} in body must be of type {wanted}: {:?}",
            path.render(false),
            node.type_name()
        );
        self.error(path, message);
    }

    fn message(&mut self, schema: &MessageSchema, node: &Node, path: &Path<'_>) -> DynamicMessage {
        let mut message = DynamicMessage::new(schema.descriptor.clone());
        let Node::Map(members) = node else {
            self.wrong_type(path, "object", node);
            return message;
        };
        for (name, value) in members {
            let here = Path::Field(path, name);
            let Some(field) = schema.fields.iter().find(|field| field.name() == name) else {
                let full = here.render(true);
                match &mut self.unknown {
                    Some(unknown) => unknown.push(Unknown {
                        path: full,
                        above: path.steps(),
                        name: name.clone(),
                        value: value.clone(),
                    }),
                    None => self.error(&here, format!("unknown field {full:?}")),
                }
                continue;
            };
            if let Some(value) = self.field(field, value, &here) {
                message.set_field(&field.descriptor, value);
            }
        }
        message
    }

    /// The value of a field; nothing when it counts as absent or is wrong.
    fn field(&mut self, field: &FieldSchema, node: &Node, path: &Path<'_>) -> Option<Value> {
        // An object must be an object; everything else may be null for absent, as clients of
        // Kubernetes write `creationTimestamp: null`.
        let is_object = field.shape == Shape::Single && field.form().is_some();
        if *node == Node::Null && !is_object {
            return None;
        }
        match field.shape {
            Shape::Single => self.value(field, node, path),
            Shape::List => {
                let Node::List(items) = node else {
                    self.wrong_type(path, "array", node);
                    return None;
                };
                let values = items
                    .iter()
                    .enumerate()
                    .filter_map(|(index, item)| self.value(field, item, &Path::Index(path, index)))
                    .collect();
                Some(Value::List(values))
            }
            Shape::Map => {
                let Node::Map(members) = node else {
                    self.wrong_type(path, "object", node);
                    return None;
                };
                let values = members
                    .iter()
                    .filter_map(|(key, item)| {
                        let value = self.value(field, item, &Path::Key(path, key))?;
                        Some((MapKey::String(key.clone()), value))
                    })
                    .collect();
                Some(Value::Map(values))
            }
        }
    }

    /// The bytes of base64 text, which may have line breaks.
    fn base64(&mut self, path: &Path<'_>, text: &str) -> Option<Value> {
        let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        match BASE64.decode(&text) {
            Ok(bytes) => Some(Value::Bytes(bytes.into())),
            Err(error) => {
                let message = match error {
                    DecodeError64::InvalidByte(at, _) | DecodeError64::InvalidLastSymbol(at, _) => {
                        format!("illegal base64 data at input byte {at}")
                    }
                    _ => format!("illegal base64 data at input byte {}", text.len()),
                };
                self.error(path, message);
                None
            }
        }
    }

    /// One value: of a single field, of a list or of a map.
    fn value(&mut self, field: &FieldSchema, node: &Node, path: &Path<'_>) -> Option<Value> {
        let value = match (&field.kind, node) {
            (FieldKind::Message(name), node) => {
                let schema = self.schema;
                return Some(Value::Message(self.message(
                    schema.message(name),
                    node,
                    path,
                )));
            }
            (FieldKind::Bool, Node::Bool(value)) => Some(Value::Bool(*value)),
            (FieldKind::Text | FieldKind::Quantity, Node::Text(text)) => {
                Some(Value::String(text.clone()))
            }
            (FieldKind::Quantity, Node::Number(number)) => Some(Value::String(number.to_string())),
            (FieldKind::Json(form), node) => {
                if let Some(form) = form {
                    let schema = self.schema;
                    self.message(schema.message(form), node, path);
                }
                Some(Value::Bytes(node.to_json().to_string().into()))
            }
            (FieldKind::Base64, Node::Text(text)) => return self.base64(path, text),
            (FieldKind::Integer(width), Node::Number(number)) if !number.is_f64() => {
                let value = integer(*width, number);
                if value.is_none() && number.as_i64().is_none() {
                    // A larger one is no integer to Kubernetes.
                    let message = format!(
                        "{} in body must be of type integer: \"number\"",
                        path.render(false)
                    );
                    self.error(path, message);
                    return None;
                }
                if value.is_none() {
                    self.error(
                        path,
                        format!(
                            "{} in body must be of type {}: {number}",
                            path.render(false),
                            width.name()
                        ),
                    );
                    return None;
                }
                value
            }
            _ => None,
        };
        if value.is_none() {
            let wanted = match field.kind {
                FieldKind::Bool => "boolean",
                FieldKind::Integer(_) => "integer",
                FieldKind::Quantity => "string or number",
                _ => "string",
            };
            self.wrong_type(path, wanted, node);
        }
        value
    }
}

impl Width {
    /// Kubernetes' word for the type.
    fn name(self) -> &'static str {
        match self {
            Self::I32 => "int32",
            Self::I64 => "int64",
            Self::U32 => "uint32",
            Self::U64 => "uint64",
        }
    }
}

/// The number, if it fits.
fn integer(width: Width, number: &serde_json::Number) -> Option<Value> {
    match width {
        Width::I32 => Some(Value::I32(i32::try_from(number.as_i64()?).ok()?)),
        Width::I64 => Some(Value::I64(number.as_i64()?)),
        Width::U32 => Some(Value::U32(u32::try_from(number.as_u64()?).ok()?)),
        Width::U64 => Some(Value::U64(number.as_u64()?)),
    }
}

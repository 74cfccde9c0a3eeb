//! From JSON values to messages. Strict, and all errors at once.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use base64::engine::general_purpose::STANDARD as BASE64;
use base64::{DecodeError as DecodeError64, Engine};
use prost::encoding::{WireType, encode_key, encode_varint};
use prost::{Message, Name};
use serde_json::Value;

use crate::schema::{FieldKind, FieldSchema, MessageSchema, Schema, Shape, Width, schema};
use crate::tree::{Node, path_segment};
use crate::typed::{Tree, Typed};

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
    typed_of(node)
}

/// The same of any tree.
pub(crate) fn typed_of<M: Message + Name + Default>(
    tree: &impl Tree,
) -> Result<M, Vec<DecodeError>> {
    let schema = schema();
    typed(&wire_of(schema, schema.message(&M::full_name()), tree)?)
}

/// The message of generated code.
pub(crate) fn typed<M: Message + Default>(bytes: &[u8]) -> Result<M, Vec<DecodeError>> {
    M::decode(bytes).map_err(|error| {
        vec![DecodeError {
            path: String::new(),
            message: format!("does not fit the API: {error}"),
        }]
    })
}

/// The bytes of a value on the wire, by the descriptor of its message alone. Fields stand in the order of their numbers.
pub(crate) fn wire_of(
    schema: &Schema,
    message: &MessageSchema,
    tree: &impl Tree,
) -> Result<Vec<u8>, Vec<DecodeError>> {
    let mut decoder = Decoder {
        schema,
        errors: Vec::new(),
        unknown: None,
    };
    let bytes = decoder.message(message, tree, &Path::Root);
    if decoder.errors.is_empty() {
        Ok(bytes)
    } else {
        Err(decoder.errors)
    }
}

/// The same of members that some fields are encoded of already: `known` are those fields, by their numbers.
pub(crate) fn wire_of_members<'m, T: Tree + 'm>(
    schema: &Schema,
    message: &MessageSchema,
    known: &[(u32, &[u8])],
    members: impl Iterator<Item = (&'m str, &'m T)>,
) -> Result<Vec<u8>, Vec<DecodeError>> {
    let mut decoder = Decoder {
        schema,
        errors: Vec::new(),
        unknown: None,
    };
    let mut fields = Fields::default();
    for (number, bytes) in known {
        let value = WireValue::Bytes(Cow::Borrowed(*bytes));
        fields.add(*number, |out| value.write(*number, out));
    }
    decoder.members(message, members, &Path::Root, &mut fields);
    if decoder.errors.is_empty() {
        Ok(fields.in_order())
    } else {
        Err(decoder.errors)
    }
}

/// The same of a value that may have fields which the descriptor has not: they are handed out.
pub(crate) fn wire_and_unknown(
    schema: &Schema,
    message: &MessageSchema,
    tree: &impl Tree,
) -> Result<(Vec<u8>, Vec<Unknown>), Vec<DecodeError>> {
    let mut decoder = Decoder {
        schema,
        errors: Vec::new(),
        unknown: Some(Vec::new()),
    };
    let bytes = decoder.message(message, tree, &Path::Root);
    if decoder.errors.is_empty() {
        Ok((bytes, decoder.unknown.unwrap_or_default()))
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
    /// Last part of the path.
    pub(crate) name: String,
    /// What it is set to.
    pub(crate) value: Value,
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

    fn wrong_type(&mut self, path: &Path<'_>, wanted: &str, tree: &impl Tree) {
        let message = format!(
            "{} in body must be of type {wanted}: {:?}",
            path.render(false),
            tree.typed().type_name()
        );
        self.error(path, message);
    }

    fn message<T: Tree>(&mut self, schema: &MessageSchema, tree: &T, path: &Path<'_>) -> Vec<u8> {
        let Typed::Map(members) = tree.typed() else {
            self.wrong_type(path, "object", tree);
            return Vec::new();
        };
        let mut fields = Fields::default();
        self.members(schema, members, path, &mut fields);
        fields.in_order()
    }

    fn members<'m, T: Tree + 'm>(
        &mut self,
        schema: &MessageSchema,
        members: impl Iterator<Item = (&'m str, &'m T)>,
        path: &Path<'_>,
        fields: &mut Fields,
    ) {
        for (name, value) in members {
            let here = Path::Field(path, name);
            let Some(field) = schema.fields.iter().find(|field| field.name() == name) else {
                let full = here.render(true);
                match &mut self.unknown {
                    Some(unknown) => unknown.push(Unknown {
                        path: full,
                        above: path.steps(),
                        name: name.to_owned(),
                        value: value.to_value(),
                    }),
                    None => {
                        let message = schema.descriptor.full_name();
                        let way_out = way_out(message, name);
                        self.error(&here, format!("unknown field {full:?}{way_out}"));
                    }
                }
                continue;
            };
            fields.add(field.number, |out| self.field(field, value, &here, out));
        }
    }

    /// Appends a field, unless it counts as absent or is wrong.
    fn field(&mut self, field: &FieldSchema, tree: &impl Tree, path: &Path<'_>, out: &mut Vec<u8>) {
        // An object must be an object; everything else may be null for absent, as clients of
        // Kubernetes write `creationTimestamp: null`.
        let is_object = field.shape == Shape::Single && field.form().is_some();
        if matches!(tree.typed(), Typed::Null) && !is_object {
            return;
        }
        match field.shape {
            Shape::Single => {
                if let Some(value) = self.value(field, tree, path)
                    && (field.has_presence || !value.is_default())
                {
                    value.write(field.number, out);
                }
            }
            Shape::List => {
                let Typed::List(items) = tree.typed() else {
                    self.wrong_type(path, "array", tree);
                    return;
                };
                let mut packed = Vec::new();
                for (index, item) in items.iter().enumerate() {
                    match self.value(field, item, &Path::Index(path, index)) {
                        Some(WireValue::Number(number)) => encode_varint(number, &mut packed),
                        Some(value) => value.write(field.number, out),
                        None => {}
                    }
                }
                if !packed.is_empty() {
                    WireValue::Bytes(Cow::Owned(packed)).write(field.number, out);
                }
            }
            Shape::Map => {
                let Typed::Map(members) = tree.typed() else {
                    self.wrong_type(path, "object", tree);
                    return;
                };
                for (key, item) in members {
                    if let Some(value) = self.value(field, item, &Path::Key(path, key)) {
                        let mut entry = Vec::new();
                        WireValue::Bytes(Cow::Borrowed(key.as_bytes())).write(1, &mut entry);
                        value.write(2, &mut entry);
                        WireValue::Bytes(Cow::Owned(entry)).write(field.number, out);
                    }
                }
            }
        }
    }

    /// The bytes of base64 text, which may have line breaks.
    fn base64(&mut self, path: &Path<'_>, text: &str) -> Option<WireValue<'static>> {
        let text: String = text.chars().filter(|c| !matches!(c, '\r' | '\n')).collect();
        match BASE64.decode(&text) {
            Ok(bytes) => Some(WireValue::Bytes(Cow::Owned(bytes))),
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
    fn value<'t>(
        &mut self,
        field: &FieldSchema,
        tree: &'t impl Tree,
        path: &Path<'_>,
    ) -> Option<WireValue<'t>> {
        let value = match (&field.kind, tree.typed()) {
            (FieldKind::Message(name), _) => {
                let schema = self.schema;
                let bytes = self.message(schema.message(name), tree, path);
                return Some(WireValue::Bytes(Cow::Owned(bytes)));
            }
            (FieldKind::Bool, Typed::Bool(value)) => Some(WireValue::Number(u64::from(value))),
            (FieldKind::Text | FieldKind::Quantity, Typed::Text(text)) => {
                Some(WireValue::Bytes(Cow::Borrowed(text.as_bytes())))
            }
            (FieldKind::Quantity, Typed::Number(number)) => Some(WireValue::Bytes(Cow::Owned(
                number.to_string().into_bytes(),
            ))),
            (FieldKind::Json(form), _) => {
                if let Some(form) = form {
                    let schema = self.schema;
                    self.message(schema.message(form), tree, path);
                }
                let text = serde_json::to_vec(&tree.to_value());
                let text = text.expect("a JSON value has a text");
                Some(WireValue::Bytes(Cow::Owned(text)))
            }
            (FieldKind::Base64, Typed::Text(text)) => return self.base64(path, text),
            (FieldKind::Integer(width), Typed::Number(number)) if !number.is_f64() => {
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
            self.wrong_type(path, wanted, tree);
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

/// The number, if it fits; as wide as the wire has it.
fn integer(width: Width, number: &serde_json::Number) -> Option<WireValue<'static>> {
    let value = match width {
        Width::I32 => i64::from(i32::try_from(number.as_i64()?).ok()?).cast_unsigned(),
        Width::I64 => number.as_i64()?.cast_unsigned(),
        Width::U32 => u64::from(u32::try_from(number.as_u64()?).ok()?),
        Width::U64 => number.as_u64()?,
    };
    Some(WireValue::Number(value))
}

/// A value as the wire has it.
enum WireValue<'n> {
    Number(u64),
    Bytes(Cow<'n, [u8]>),
}

impl WireValue<'_> {
    fn is_default(&self) -> bool {
        match self {
            Self::Number(number) => *number == 0,
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }

    fn write(&self, number: u32, out: &mut Vec<u8>) {
        match self {
            Self::Number(value) => {
                encode_key(number, WireType::Varint, out);
                encode_varint(*value, out);
            }
            Self::Bytes(bytes) => {
                encode_key(number, WireType::LengthDelimited, out);
                encode_varint(bytes.len() as u64, out);
                out.extend_from_slice(bytes);
            }
        }
    }
}

/// Encoded fields of a message, in the order in which they came.
#[derive(Default)]
struct Fields {
    bytes: Vec<u8>,
    places: Vec<(u32, Range<usize>)>,
}

impl Fields {
    fn add(&mut self, number: u32, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.bytes.len();
        write(&mut self.bytes);
        self.places.push((number, start..self.bytes.len()));
    }

    /// The fields by their numbers.
    fn in_order(mut self) -> Vec<u8> {
        if self.places.is_sorted_by_key(|(number, _)| *number) {
            return self.bytes;
        }
        self.places.sort_by_key(|(number, _)| *number);
        let parts = self.places.iter();
        let parts = parts.filter_map(|(_, place)| self.bytes.get(place.clone()));
        parts.flatten().copied().collect()
    }
}

/// What is to be done about a field that old manifests have and KubeVirt's API has no more.
fn way_out(message: &str, field: &str) -> &'static str {
    match (message, field) {
        ("kubevirt.v1.Disk", "floppy") => "; there are no floppy drives: use disk or cdrom",
        _ => "",
    }
}

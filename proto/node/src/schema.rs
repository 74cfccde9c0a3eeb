//! The API as its descriptors tell it: one table that the JSON codec, admission and documentation walk.

use std::collections::{HashMap, HashSet};
use std::sync::LazyLock;

use prost_reflect::{DescriptorPool, FieldDescriptor, Kind, MessageDescriptor, Value};

use crate::kvmlet::node::v1::{FieldRules, Format};

/// The encoded `FileDescriptorSet` of everything here, with comments and field options: for gRPC
/// reflection, for the JSON codec and for documentation.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");

/// The table. Decoding it can only fail when the checked-in descriptors are broken, which `cargo xtask
/// gen --check` and every test of this crate would show.
static SCHEMA: LazyLock<Schema> =
    LazyLock::new(|| Schema::load().expect("the descriptors of proto-node are broken"));

/// Packages whose messages have no JSON form of Kubernetes': services, options and what protobuf itself brings.
const WITHOUT_FORM: [&str; 3] = ["google.", "kvmlet.node.", "kvmlet.controlplane."];

/// The field option of this API.
const RULES: &str = "kvmlet.node.v1.rules";

/// Number of the field `file` of `google.protobuf.FileDescriptorSet`.
const FILES: u32 = 1;

/// All messages of an API by full name.
pub struct Schema {
    pub(crate) pool: DescriptorPool,
    /// Looked up for each message within a message.
    messages: HashMap<String, MessageSchema>,
}

/// One message.
pub(crate) struct MessageSchema {
    pub(crate) descriptor: MessageDescriptor,
    /// In the order of declaration.
    pub(crate) fields: Vec<FieldSchema>,
}

/// One field.
pub(crate) struct FieldSchema {
    pub(crate) descriptor: FieldDescriptor,
    /// Name in JSON.
    name: Box<str>,
    /// The same as JSON text, and the colon after it.
    pub(crate) member: Box<[u8]>,
    /// Whether the field has presence: an explicit default value differs from none.
    pub(crate) has_presence: bool,
    /// Its number on the wire.
    pub(crate) number: u32,
    pub(crate) rules: FieldRules,
    pub(crate) shape: Shape,
    pub(crate) kind: FieldKind,
}

/// How many values a field has.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    Single,
    List,
    /// Keys are strings throughout the API.
    Map,
}

/// What one value of a field is in JSON.
#[derive(Clone, PartialEq, Eq)]
pub(crate) enum FieldKind {
    Bool,
    Integer(Width),
    Text,
    /// A string or a number, kept as text.
    Quantity,
    /// JSON, kept as text in bytes: of the form of the message of this full name, or any.
    Json(Option<String>),
    /// A string of base64, kept as bytes.
    Base64,
    /// The message of this full name.
    Message(String),
}

/// The integer types that the API uses.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Width {
    I32,
    I64,
    U32,
    U64,
}

impl Schema {
    /// The API of this release.
    #[must_use]
    pub fn this_release() -> &'static Self {
        schema()
    }
}

/// The table of this release.
pub(crate) fn schema() -> &'static Schema {
    &SCHEMA
}

impl Schema {
    fn load() -> Result<Self, String> {
        Self::of_descriptors(DESCRIPTORS)
    }

    /// The messages of an encoded `FileDescriptorSet`, which must hold the field options of this crate.
    ///
    /// # Errors
    /// What is wrong with the descriptors, such as a field of a type that has no JSON form here.
    pub fn of_descriptors(descriptors: &[u8]) -> Result<Self, String> {
        let pool = DescriptorPool::decode(descriptors).map_err(|error| error.to_string())?;
        let mut messages = HashMap::new();
        for message in pool.all_messages() {
            let name = message.full_name();
            if message.is_map_entry()
                || WITHOUT_FORM.iter().any(|package| name.starts_with(package))
            {
                continue;
            }
            let fields = message
                .fields()
                .map(|field| FieldSchema::load(&pool, field))
                .collect::<Result<Vec<_>, String>>()?;
            messages.insert(
                message.full_name().to_owned(),
                MessageSchema {
                    descriptor: message,
                    fields,
                },
            );
        }
        Ok(Self { pool, messages })
    }

    /// The encoded `FileDescriptorSet` of the file of a message and of all that it needs, from which
    /// [`Self::of_descriptors`] makes a table; none when there is no such message.
    #[must_use]
    pub fn descriptors_of(&self, message: &str) -> Option<Vec<u8>> {
        let file = self.find(message)?.descriptor.parent_file();
        let rules = self.pool.get_extension_by_name(RULES)?.parent_file();
        let (mut names, mut ahead) = (HashSet::new(), vec![file, rules]);
        while let Some(file) = ahead.pop() {
            if names.insert(file.name().to_owned()) {
                ahead.extend(file.dependencies());
            }
        }
        let mut encoded = Vec::new();
        // In the order of the pool, in which no file comes before one that it needs.
        for file in self.pool.files().filter(|file| names.contains(file.name())) {
            prost::encoding::bytes::encode(FILES, &file.encode_to_vec(), &mut encoded);
        }
        Some(encoded)
    }

    /// The message of a full name that the table itself or generated code gave.
    pub(crate) fn message(&self, full_name: &str) -> &MessageSchema {
        self.find(full_name)
            .unwrap_or_else(|| panic!("{full_name} is not a message of the API"))
    }

    /// The message of a full name, if there is one.
    pub(crate) fn find(&self, full_name: &str) -> Option<&MessageSchema> {
        self.messages.get(full_name)
    }
}

impl FieldSchema {
    fn load(pool: &DescriptorPool, descriptor: FieldDescriptor) -> Result<Self, String> {
        let rules = rules_of(pool, &descriptor)?;
        let shape = if descriptor.is_map() {
            Shape::Map
        } else if descriptor.is_list() {
            Shape::List
        } else {
            Shape::Single
        };
        let value_kind = match (shape, descriptor.kind()) {
            (Shape::Map, Kind::Message(entry)) => entry.map_entry_value_field().kind(),
            (_, kind) => kind,
        };
        let kind = match (value_kind, rules.format()) {
            (Kind::Bool, _) => FieldKind::Bool,
            (Kind::Int32, _) => FieldKind::Integer(Width::I32),
            (Kind::Int64, _) => FieldKind::Integer(Width::I64),
            (Kind::Uint32, _) => FieldKind::Integer(Width::U32),
            (Kind::Uint64, _) => FieldKind::Integer(Width::U64),
            (Kind::String, Format::Quantity) => FieldKind::Quantity,
            (Kind::String, _) => FieldKind::Text,
            (Kind::Bytes, Format::Json) => {
                FieldKind::Json((!rules.form.is_empty()).then(|| rules.form.clone()))
            }
            (Kind::Bytes, Format::Base64) => FieldKind::Base64,
            (Kind::Message(message), _) => FieldKind::Message(message.full_name().to_owned()),
            (other, _) => {
                return Err(format!("{} has type {other:?}", descriptor.full_name()));
            }
        };
        let name = Box::from(descriptor.json_name());
        Ok(Self {
            number: descriptor.number(),
            member: format!("{}:", serde_json::Value::from(&*name))
                .into_bytes()
                .into(),
            has_presence: descriptor.supports_presence(),
            name,
            descriptor,
            rules,
            shape,
            kind,
        })
    }

    /// The message that describes a value, if there is one.
    pub(crate) fn form(&self) -> Option<&str> {
        match &self.kind {
            FieldKind::Message(name) | FieldKind::Json(Some(name)) => Some(name),
            _ => None,
        }
    }

    /// Name in JSON.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The option `kvmlet.node.v1.rules` of a field; all default where there is none.
fn rules_of(pool: &DescriptorPool, field: &FieldDescriptor) -> Result<FieldRules, String> {
    let extension = pool
        .get_extension_by_name(RULES)
        .ok_or("the field option is missing")?;
    let options = field.options();
    if !options.has_extension(&extension) {
        return Ok(FieldRules::default());
    }
    match options.get_extension(&extension).as_ref() {
        Value::Message(message) => message
            .transcode_to::<FieldRules>()
            .map_err(|error| format!("{}: {error}", field.full_name())),
        other => Err(format!("{}: {other:?} is no rule", field.full_name())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_load_and_every_reference_is_in_the_table() {
        let schema = schema();
        assert!(schema.messages.len() > 50);
        for message in schema.messages.values() {
            for field in &message.fields {
                if let Some(name) = field.form() {
                    schema.message(name);
                }
                let has_form = matches!(field.kind, FieldKind::Json(Some(_)));
                assert_eq!(has_form, !field.rules.form.is_empty(), "{}", field.name());
            }
        }
    }

    #[test]
    fn every_field_that_is_not_honoured_says_why() {
        for message in schema().messages.values() {
            for field in &message.fields {
                let partly = !field.rules.honoured.is_empty();
                let not = field.rules.support() != crate::kvmlet::node::v1::SupportLevel::Supported;
                assert_eq!(
                    partly || not,
                    !field.rules.note.is_empty(),
                    "{}",
                    field.descriptor.full_name()
                );
            }
        }
    }
}

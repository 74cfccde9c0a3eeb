//! From messages to JSON and YAML values, with the names, the omissions and the number forms of
//! Kubernetes.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use prost::{Message, Name};
use prost_reflect::{DynamicMessage, MapKey, Value};
use serde_json::{Map, Value as Json};

use crate::schema::{FieldKind, MessageSchema, Schema, Shape, schema};

/// The JSON form of a message: fields in the order of declaration, absent and empty ones left out.
#[must_use]
pub fn to_json<M: Message + Name>(message: &M) -> Json {
    let form = schema().message(&M::full_name());
    message_to_json(schema(), form, &dynamic(message, form))
}

/// The YAML form of a message.
#[must_use]
pub fn to_yaml<M: Message + Name>(message: &M) -> String {
    json_to_yaml(&to_json(message))
}

/// The YAML form of a JSON value.
#[must_use]
pub fn json_to_yaml(value: &Json) -> String {
    serde_saphyr::to_string_with_options(
        value,
        serde_saphyr::ser_options! { compact_list_indent: true, empty_as_braces: true },
    )
    .expect("a JSON value has a YAML form")
}

/// The same message with its descriptor.
pub(crate) fn dynamic<M: Message>(message: &M, schema: &MessageSchema) -> DynamicMessage {
    let mut dynamic = DynamicMessage::new(schema.descriptor.clone());
    dynamic
        .transcode_from(message)
        .expect("a generated message has the form of its own descriptor");
    dynamic
}

/// The JSON form of a message of which `form` is the description.
pub(crate) fn message_to_json(
    schema: &Schema,
    form: &MessageSchema,
    message: &DynamicMessage,
) -> Json {
    let mut object = Map::new();
    for field in &form.fields {
        if !message.has_field(&field.descriptor) {
            continue;
        }
        let value = message.get_field(&field.descriptor);
        let json = match (field.shape, value.as_ref()) {
            (Shape::List, Value::List(items)) => items
                .iter()
                .map(|item| value_to_json(schema, &field.kind, item))
                .collect(),
            (Shape::Map, Value::Map(members)) => {
                let mut sorted: Vec<(&str, &Value)> = members
                    .iter()
                    .filter_map(|(key, item)| match key {
                        MapKey::String(key) => Some((key.as_str(), item)),
                        _ => None,
                    })
                    .collect();
                sorted.sort_by_key(|(key, _)| *key);
                sorted
                    .into_iter()
                    .map(|(key, item)| (key.to_owned(), value_to_json(schema, &field.kind, item)))
                    .collect::<Map<_, _>>()
                    .into()
            }
            (_, value) => value_to_json(schema, &field.kind, value),
        };
        object.insert(field.name().to_owned(), json);
    }
    Json::Object(object)
}

fn value_to_json(schema: &Schema, kind: &FieldKind, value: &Value) -> Json {
    match (kind, value) {
        (FieldKind::Message(name), Value::Message(message)) => {
            message_to_json(schema, schema.message(name), message)
        }
        // What was not made by the codec may be anything: text that is no JSON is shown as text.
        (FieldKind::Json(_), Value::Bytes(bytes)) => serde_json::from_slice(bytes)
            .unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into()),
        (FieldKind::Base64, Value::Bytes(bytes)) => BASE64.encode(bytes).into(),
        (_, Value::Bool(value)) => (*value).into(),
        (_, Value::I32(value)) => (*value).into(),
        (_, Value::I64(value)) => (*value).into(),
        (_, Value::U32(value)) => (*value).into(),
        (_, Value::U64(value)) => (*value).into(),
        (_, Value::String(value)) => value.as_str().into(),
        _ => Json::Null,
    }
}

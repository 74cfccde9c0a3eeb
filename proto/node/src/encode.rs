//! From messages to JSON and YAML values, with the names, the omissions and the number forms of
//! Kubernetes.

use prost::{Message, Name};
use prost_reflect::DynamicMessage;
use serde_json::Value as Json;

use crate::last_json::LastJson;
use crate::schema::{MessageSchema, schema};

/// The JSON form of a message: fields in the order of declaration, absent and empty ones left out.
#[must_use]
pub fn to_json<M: Message + Name>(message: &M) -> Json {
    let form = schema().message(&M::full_name());
    let value = schema().json_from_wire(form, &message.encode_to_vec());
    value.expect("a generated message has the form of its own descriptor")
}

/// Appends the same as text, with no tree in between.
pub fn append_json<M: Message + Name>(message: &M, out: &mut Vec<u8>) {
    let bytes = message.encode_to_vec();
    let (name, mut last) = (M::full_name(), LastJson::default());
    let written = schema().write_json(&name, &[], &bytes, (&mut last, out));
    written.expect("a generated message has the form of its own descriptor");
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

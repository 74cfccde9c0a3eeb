//! From the wire to a JSON value. Controllers read thousands of objects: no message of their descriptor is made in between.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use prost::bytes::Buf;
use serde_json::{Map, Value as Json};

use super::{
    DEEPEST, Part, Raw, by_field, is_number, map_entries, number, parts, unfit, utf8, varint, whole,
};
use crate::decode::DecodeError;
use crate::schema::{FieldKind, FieldSchema, MessageSchema, Schema, Shape};

impl Schema {
    /// The JSON value of a message of this form on the wire.
    pub(crate) fn json_from_wire(
        &self,
        form: &MessageSchema,
        bytes: &[u8],
    ) -> Result<Json, DecodeError> {
        Tree {
            schema: self,
            deep: 0,
        }
        .message(form, bytes)
    }
}

struct Tree<'s> {
    schema: &'s Schema,
    deep: usize,
}

impl Tree<'_> {
    fn message(&mut self, form: &MessageSchema, bytes: &[u8]) -> Result<Json, DecodeError> {
        self.deep += 1;
        if self.deep > DEEPEST {
            return Err(unfit("it is nested too deeply"));
        }
        let mut object = Map::new();
        for (field, values) in by_field(form, &parts(form, bytes)?) {
            if let Some(value) = self.field(field, values)? {
                object.insert(field.name().to_owned(), value);
            }
        }
        self.deep -= 1;
        Ok(Json::Object(object))
    }

    /// The value of a field; nothing where it counts as left out.
    fn field(
        &mut self,
        field: &FieldSchema,
        values: &[Part<'_>],
    ) -> Result<Option<Json>, DecodeError> {
        match field.shape {
            Shape::Single => match whole(field, values)? {
                Some(value) => self.value(&field.kind, value.raw()).map(Some),
                None => Ok(None),
            },
            Shape::List => self.list(field, values).map(Some),
            Shape::Map => self.map(field, values).map(Some),
        }
    }

    fn list(&mut self, field: &FieldSchema, values: &[Part<'_>]) -> Result<Json, DecodeError> {
        let is_number = is_number(field);
        let mut items = Vec::with_capacity(values.len());
        for (_, value) in values {
            match *value {
                // Numbers may come packed.
                Raw::Bytes(mut packed) if is_number => {
                    while packed.has_remaining() {
                        let number = varint(&mut packed)?;
                        items.push(self.value(&field.kind, Raw::Varint(number))?);
                    }
                }
                value => items.push(self.value(&field.kind, value)?),
            }
        }
        Ok(Json::Array(items))
    }

    fn map(&mut self, field: &FieldSchema, values: &[Part<'_>]) -> Result<Json, DecodeError> {
        let mut members = Map::new();
        for (key, value) in map_entries(field, values)? {
            members.insert(key.to_owned(), self.value(&field.kind, value)?);
        }
        Ok(Json::Object(members))
    }

    fn value(&mut self, kind: &FieldKind, value: Raw<'_>) -> Result<Json, DecodeError> {
        Ok(match (kind, value) {
            (FieldKind::Message(name), Raw::Bytes(bytes)) => {
                let schema = self.schema;
                return self.message(schema.message(name), bytes);
            }
            (FieldKind::Text | FieldKind::Quantity, Raw::Bytes(bytes)) => utf8(bytes)?.into(),
            // What was not made by the codec may be anything: text that is no JSON is shown as text.
            (FieldKind::Json(_), Raw::Bytes(bytes)) => serde_json::from_slice(bytes)
                .unwrap_or_else(|_| String::from_utf8_lossy(bytes).into_owned().into()),
            (FieldKind::Base64, Raw::Bytes(bytes)) => BASE64.encode(bytes).into(),
            (FieldKind::Bool, Raw::Varint(value)) => (value != 0).into(),
            (FieldKind::Integer(width), Raw::Varint(value)) => number(*width, value),
            _ => return Err(unfit("a field has the wrong wire type")),
        })
    }
}

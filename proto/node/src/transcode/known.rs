//! Messages that callers send: of which kind they are, and that nothing of them would be lost.

use prost::bytes::Buf;

use super::{DEEPEST, Raw, field_of, map_entry, part, unfit, utf8};
use crate::decode::DecodeError;
use crate::schema::{FieldKind, MessageSchema, Schema, Shape};

/// `apiVersion` and `kind` of an object on the wire: the first two fields of every kind's message.
///
/// # Errors
/// When the bytes are no message.
pub fn type_on_wire(mut bytes: &[u8]) -> Result<(&str, &str), DecodeError> {
    let (mut api_version, mut kind) = ("", "");
    while bytes.has_remaining() {
        match part(&mut bytes)? {
            (1, Some(raw)) => api_version = utf8(raw.bytes()?)?,
            (2, Some(raw)) => kind = utf8(raw.bytes()?)?,
            _ => {}
        }
    }
    Ok((api_version, kind))
}

impl Schema {
    /// Refuses a message on the wire with fields, at any depth, that it does not have here.
    ///
    /// # Errors
    /// The first such field, and when the bytes are no message.
    pub fn check_fields(&self, message: &str, bytes: &[u8]) -> Result<(), DecodeError> {
        let form = self
            .find(message)
            .ok_or_else(|| unfit(&format!("{message} is not a message of the API")))?;
        self.check_within(form, bytes, (String::new(), 1))
    }

    fn check_within(
        &self,
        form: &MessageSchema,
        mut bytes: &[u8],
        (path, deep): (String, usize),
    ) -> Result<(), DecodeError> {
        if deep > DEEPEST {
            return Err(unfit("it is nested too deeply"));
        }
        while bytes.has_remaining() {
            let (number, raw) = part(&mut bytes)?;
            let Some((_, field)) = field_of(form, number) else {
                return Err(DecodeError {
                    path,
                    message: format!("unknown field with number {number}"),
                });
            };
            let (FieldKind::Message(name), Some(raw)) = (&field.kind, raw) else {
                continue;
            };
            let inner = match field.shape {
                Shape::Map => map_entry(field, raw.bytes()?)?.1,
                Shape::Single | Shape::List => raw,
            };
            let Raw::Bytes(inner) = inner else { continue };
            let dot = if path.is_empty() { "" } else { "." };
            let within = format!("{path}{dot}{}", field.name());
            self.check_within(self.message(name), inner, (within, deep + 1))?;
        }
        Ok(())
    }
}

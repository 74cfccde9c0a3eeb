//! Objects by the descriptors of their kinds alone, with no generated type: JSON in and out, and the wire.

use prost::{Message, Name};
use prost_reflect::DynamicMessage;
use serde_json::Value;

use crate::decode::{DecodeError, dynamic_from_node, from_node};
use crate::encode::message_to_json;
use crate::schema::{MessageSchema, Schema};
use crate::tree::Node;

impl Schema {
    /// Whether there is a message of this full name.
    #[must_use]
    pub fn has_message(&self, message: &str) -> bool {
        self.find(message).is_some()
    }

    /// A JSON value in the one form that messages of this name have: fields in the order of declaration, `null` and
    /// what is empty left out, quantities as text.
    ///
    /// # Errors
    /// All fields that are unknown or have the wrong type.
    pub fn canonical(&self, message: &str, value: Value) -> Result<Value, Vec<DecodeError>> {
        let form = self.named(message).map_err(|error| vec![error])?;
        let dynamic = dynamic_from_node(self, form, &Node::from(value))?;
        Ok(message_to_json(self, form, &dynamic))
    }

    /// The bytes of a JSON value on the wire.
    ///
    /// # Errors
    /// All fields that are unknown or have the wrong type.
    pub fn to_wire(&self, message: &str, value: Value) -> Result<Vec<u8>, Vec<DecodeError>> {
        let form = self.named(message).map_err(|error| vec![error])?;
        let dynamic = dynamic_from_node(self, form, &Node::from(value))?;
        Ok(dynamic.encode_to_vec())
    }

    /// The JSON value of bytes of the wire.
    ///
    /// # Errors
    /// When they are no message of this name.
    pub fn from_wire(&self, message: &str, bytes: &[u8]) -> Result<Value, DecodeError> {
        let form = self.named(message)?;
        let dynamic = DynamicMessage::decode(form.descriptor.clone(), bytes);
        let dynamic = dynamic.map_err(|error| DecodeError {
            path: String::new(),
            message: format!("does not fit the API: {error}"),
        })?;
        Ok(message_to_json(self, form, &dynamic))
    }

    fn named(&self, message: &str) -> Result<&MessageSchema, DecodeError> {
        self.find(message).ok_or_else(|| DecodeError {
            path: String::new(),
            message: format!("{message} is not a message of the API"),
        })
    }
}

/// Makes a message of a JSON value.
///
/// # Errors
/// All fields that are unknown or have the wrong type.
pub fn from_json<M: Message + Name + Default>(value: Value) -> Result<M, Vec<DecodeError>> {
    from_node(&Node::from(value))
}

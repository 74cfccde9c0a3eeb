//! Objects as callers send them and are sent them.

use proto_node::{DecodeError, type_on_wire};

use super::ObjectKind;
use super::table::Kinds;
use crate::object::Object;
use crate::refusal::Refusal;

/// How an object is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    /// As JSON.
    #[default]
    Json,
    /// As its kind's message on the wire.
    Protobuf,
}

impl Kinds {
    /// Reads an object from its kind's message, as [`Self::read`] reads it from JSON. Fields that the message does not have
    /// are refused, and so is what is not JSON where a field holds JSON.
    ///
    /// # Errors
    /// [`Refusal::UnknownKind`], [`Refusal::Malformed`].
    pub fn read_wire(&self, bytes: &[u8]) -> Result<(&ObjectKind, Object), Refusal> {
        let malformed = |error: DecodeError| Refusal::Malformed(vec![error]);
        let (api_version, name) = type_on_wire(bytes).map_err(malformed)?;
        let kind = self.served(api_version, name)?;
        let schema = self.schema();
        schema
            .check_fields(kind.message, bytes)
            .map_err(malformed)?;
        self.read(schema.from_wire(kind.message, bytes).map_err(malformed)?)
    }

    /// The bytes of an object for a caller.
    ///
    /// # Errors
    /// [`Refusal::Malformed`] when the object does not have the form of its kind.
    pub fn encoded(
        &self,
        kind: &ObjectKind,
        object: &Object,
        encoding: Encoding,
    ) -> Result<Vec<u8>, Refusal> {
        match encoding {
            Encoding::Json => Ok(object.to_text()),
            Encoding::Protobuf => self.to_wire(kind, object),
        }
    }
}

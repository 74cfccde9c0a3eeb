//! Objects by the descriptors of their kinds alone, with no generated type: JSON in and out, and the wire.

use prost::{Message, Name};
use serde_json::{Map, Value};

use crate::decode::{
    DecodeError, Step, typed, typed_of, wire_and_unknown, wire_of, wire_of_members,
};
use crate::kvmlet::meta::v1::ObjectMeta;
use crate::schema::{MessageSchema, Schema};
use crate::typed::members_of;

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
        let bytes = wire_of(self, form, &value)?;
        let value = self.json_from_wire(form, &bytes);
        value.map_err(|error| vec![error])
    }

    /// The same of a value that may have fields which this API has not, such as an object of a server that is newer:
    /// they stay where they were, and their paths come with the value.
    ///
    /// # Errors
    /// All fields that have the wrong type.
    pub fn canonical_lenient(
        &self,
        message: &str,
        value: Value,
    ) -> Result<(Value, Vec<String>), Vec<DecodeError>> {
        let form = self.named(message).map_err(|error| vec![error])?;
        let (bytes, unknown) = wire_and_unknown(self, form, &value)?;
        let value = self.json_from_wire(form, &bytes);
        let mut value = value.map_err(|error| vec![error])?;
        let mut paths = Vec::new();
        for field in unknown {
            let Some(place) = place_of(&mut value, &field.above) else {
                return Err(vec![DecodeError {
                    message: String::from(
                        "cannot be kept: what it is in is not part of the API's form",
                    ),
                    path: field.path,
                }]);
            };
            place.insert(field.name, field.value);
            paths.push(field.path);
        }
        Ok((value, paths))
    }

    /// The bytes of a JSON value on the wire.
    ///
    /// # Errors
    /// All fields that are unknown or have the wrong type.
    pub fn to_wire(&self, message: &str, value: Value) -> Result<Vec<u8>, Vec<DecodeError>> {
        let form = self.named(message).map_err(|error| vec![error])?;
        wire_of(self, form, &value)
    }

    /// The bytes of an object on the wire, by what every object has: what it is, its metadata as a message of generated
    /// code, and all other members. They are those of [`Self::to_wire`]'s for the same object, made without a copy of it.
    ///
    /// # Errors
    /// All fields that are unknown or have the wrong type, and that the message is none of an object.
    pub fn object_to_wire(
        &self,
        message: &str,
        (api_version, kind): (&str, &str),
        metadata: &ObjectMeta,
        members: &Map<String, Value>,
    ) -> Result<Vec<u8>, Vec<DecodeError>> {
        let form = self.named(message).map_err(|error| vec![error])?;
        let metadata = metadata.encode_to_vec();
        let head = [
            ("apiVersion", api_version.as_bytes()),
            ("kind", kind.as_bytes()),
            ("metadata", metadata.as_slice()),
        ];
        let mut known = Vec::with_capacity(head.len());
        for (name, bytes) in head {
            let field = form.fields.iter().find(|field| field.name() == name);
            let field = field.ok_or_else(|| vec![no_object(message, name)])?;
            if field.has_presence || !bytes.is_empty() {
                known.push((field.number, bytes));
            }
        }
        wire_of_members(self, form, &known, members_of(members))
    }

    /// The JSON value of bytes of the wire.
    ///
    /// # Errors
    /// When they are no message of this name.
    pub fn from_wire(&self, message: &str, bytes: &[u8]) -> Result<Value, DecodeError> {
        self.json_from_wire(self.named(message)?, bytes)
    }

    fn named(&self, message: &str) -> Result<&MessageSchema, DecodeError> {
        self.find(message).ok_or_else(|| DecodeError {
            path: String::new(),
            message: format!("{message} is not a message of the API"),
        })
    }
}

fn no_object(message: &str, field: &str) -> DecodeError {
    DecodeError {
        path: field.to_owned(),
        message: format!("{message} is no message of an object"),
    }
}

/// The map at the end of a way; one that has no member yet is made.
fn place_of<'a>(value: &'a mut Value, steps: &[Step]) -> Option<&'a mut Map<String, Value>> {
    let mut place = value;
    for step in steps {
        place = match step {
            Step::Member(name) => place
                .as_object_mut()?
                .entry(name.clone())
                .or_insert_with(|| Value::Object(Map::new())),
            Step::Element(index) => place.as_array_mut()?.get_mut(*index)?,
        };
    }
    place.as_object_mut()
}

/// Makes a message of a JSON value that may have fields which the message has not; their paths come with it.
///
/// # Errors
/// All fields that have the wrong type.
pub fn from_json_lenient<M: Message + Name + Default>(
    value: Value,
) -> Result<(M, Vec<String>), Vec<DecodeError>> {
    let schema = Schema::this_release();
    let form = schema.named(&M::full_name()).map_err(|error| vec![error])?;
    let (bytes, unknown) = wire_and_unknown(schema, form, &value)?;
    let message = typed(&bytes)?;
    Ok((
        message,
        unknown.into_iter().map(|field| field.path).collect(),
    ))
}

/// Makes a message of a JSON value.
///
/// # Errors
/// All fields that are unknown or have the wrong type.
pub fn from_json<M: Message + Name + Default>(value: Value) -> Result<M, Vec<DecodeError>> {
    typed_of(&value)
}

/// Makes a message of the members of a JSON object.
///
/// # Errors
/// All fields that are unknown or have the wrong type.
pub fn from_members<M: Message + Name + Default>(
    members: &Map<String, Value>,
) -> Result<M, Vec<DecodeError>> {
    let schema = Schema::this_release();
    let form = schema.named(&M::full_name()).map_err(|error| vec![error])?;
    typed(&wire_of_members(schema, form, &[], members_of(members))?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const VMI: &str = "kubevirt.v1.VirtualMachineInstance";

    #[test]
    fn a_lenient_decode_keeps_what_is_unknown_where_it_was() {
        let value = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": {"name": "web"},
            "novel": [1, 2],
            "spec": {
                "domain": {"devices": {"disks": [{"name": "a"}, {"name": "b", "novel": {"x": null}}]}, "later": {}},
                "tolerations": [{"key": "a", "novel": true}],
                "volumes": [],
            },
        });
        let schema = Schema::this_release();
        assert_eq!(schema.canonical(VMI, value.clone()).unwrap_err().len(), 4);
        let (kept, paths) = schema.canonical_lenient(VMI, value.clone()).unwrap();
        assert_eq!(
            paths,
            [
                "novel",
                "spec.domain.devices.disks[1].novel",
                "spec.domain.later",
                "spec.tolerations[0].novel"
            ]
        );
        let mut wanted = value;
        wanted["spec"]
            .as_object_mut()
            .unwrap()
            .shift_remove("volumes");
        assert_eq!(kept, wanted);
        // What it keeps is kept again.
        assert_eq!(schema.canonical_lenient(VMI, kept.clone()).unwrap().0, kept);
    }

    #[test]
    fn a_lenient_decode_refuses_what_has_the_wrong_type() {
        let value = json!({"spec": {"domain": {"cpu": {"cores": "two", "novel": 1}}}});
        let errors = Schema::this_release()
            .canonical_lenient(VMI, value)
            .unwrap_err();
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].path, "spec.domain.cpu.cores");
    }
}

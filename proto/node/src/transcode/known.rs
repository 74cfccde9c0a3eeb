//! Messages that callers send: of which kind they are, and that nothing of them would be lost or become something else.

use prost::bytes::Buf;
use prost::{Message, Name};
use serde_json::Value as Json;

use super::{DEEPEST, Raw, by_field, field_of, map_entries, part, parts, unfit, utf8, whole};
use crate::decode::{DecodeError, wire_of};
use crate::schema::{FieldKind, FieldSchema, MessageSchema, Schema, Shape, schema};
use crate::tree::{MAX_DEPTH, path_segment};

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

/// The same as [`Schema::check_fields`] of a message of generated code.
///
/// # Errors
/// The first field whose bytes are to be JSON, and are not, or are of another form.
pub fn check_message<M: Message + Name>(message: &M) -> Result<(), DecodeError> {
    schema().check_fields(&M::full_name(), &message.encode_to_vec())
}

impl Schema {
    /// Refuses a message on the wire with fields, at any depth, that it does not have here, and with bytes that are not JSON
    /// where a field holds JSON, or not of the form that the field has.
    ///
    /// # Errors
    /// The first such field, and when the bytes are no message.
    pub fn check_fields(&self, message: &str, bytes: &[u8]) -> Result<(), DecodeError> {
        let form = self
            .find(message)
            .ok_or_else(|| unfit(&format!("{message} is not a message of the API")))?;
        self.check_within(form, bytes, ("", 1))
    }

    fn check_within(
        &self,
        form: &MessageSchema,
        bytes: &[u8],
        (path, deep): (&str, usize),
    ) -> Result<(), DecodeError> {
        if deep > DEEPEST {
            return Err(unfit("it is nested too deeply"));
        }
        check_numbers(form, bytes, path)?;
        for (field, values) in by_field(form, &parts(form, bytes)?) {
            if !matches!(field.kind, FieldKind::Message(_) | FieldKind::Json(_)) {
                continue;
            }
            let dot = if path.is_empty() { "" } else { "." };
            let path = format!("{path}{dot}{}", field.name());
            let check = |value, path: &str| self.check_value(field, value, (path, deep));
            match field.shape {
                Shape::Single => {
                    if let Some(value) = whole(field, values)? {
                        check(value.raw(), &path)?;
                    }
                }
                Shape::List => {
                    for (index, (_, value)) in values.iter().enumerate() {
                        check(*value, &format!("{path}[{index}]"))?;
                    }
                }
                Shape::Map => {
                    for (key, value) in map_entries(field, values)? {
                        check(value, &format!("{path}[{}]", path_segment(key)))?;
                    }
                }
            }
        }
        Ok(())
    }

    fn check_value(
        &self,
        field: &FieldSchema,
        value: Raw<'_>,
        (path, deep): (&str, usize),
    ) -> Result<(), DecodeError> {
        match (&field.kind, value) {
            (FieldKind::Message(name), Raw::Bytes(bytes)) => {
                self.check_within(self.message(name), bytes, (path, deep + 1))
            }
            (FieldKind::Json(form), Raw::Bytes(bytes)) => {
                self.check_json(form.as_deref(), bytes, (path, deep))
            }
            _ => Ok(()),
        }
    }

    /// What is not JSON would be stored, and shown, as a string. It has the form that it has in an object of JSON, and is no deeper
    /// than that may be: whoever lists objects later reads each as a whole.
    fn check_json(
        &self,
        form: Option<&str>,
        bytes: &[u8],
        (path, deep): (&str, usize),
    ) -> Result<(), DecodeError> {
        let failed = |message| DecodeError {
            path: path.to_owned(),
            message,
        };
        let value = serde_json::from_slice::<Json>(bytes).map_err(|error| {
            failed(format!(
                "its bytes are not JSON ({error}): send JSON text, in which a string has its quotes, or leave the field out"
            ))
        })?;
        if deep + depth_of(&value) > MAX_DEPTH {
            return Err(failed(format!("nested deeper than {MAX_DEPTH} levels")));
        }
        let Some(form) = form else { return Ok(()) };
        let errors = wire_of(self, self.message(form), &value).err();
        let Some(error) = errors.and_then(|errors| errors.into_iter().next()) else {
            return Ok(());
        };
        let dot = if error.path.is_empty() { "" } else { "." };
        Err(DecodeError {
            path: format!("{path}{dot}{}", error.path),
            message: error.message,
        })
    }
}

/// How many arrays and objects lie in each other.
fn depth_of(value: &Json) -> usize {
    let within = match value {
        Json::Array(items) => items.iter().map(depth_of).max(),
        Json::Object(members) => members.values().map(depth_of).max(),
        _ => return 0,
    };
    1 + within.unwrap_or(0)
}

/// Refuses fields of a number that the message does not have.
fn check_numbers(form: &MessageSchema, mut bytes: &[u8], path: &str) -> Result<(), DecodeError> {
    while bytes.has_remaining() {
        let (number, _) = part(&mut bytes)?;
        if field_of(form, number).is_none() {
            return Err(DecodeError {
                path: path.to_owned(),
                message: format!("unknown field with number {number}"),
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubevirt::v1::{
        HttpGetAction, Probe, VirtualMachineInstance, VirtualMachineInstanceSpec,
    };

    const VMI: &str = "kubevirt.v1.VirtualMachineInstance";

    fn vmi(port: &[u8], tolerations: &[&[u8]]) -> VirtualMachineInstance {
        let probe = Probe {
            http_get: Some(HttpGetAction {
                port: port.to_vec(),
                ..HttpGetAction::default()
            }),
            ..Probe::default()
        };
        VirtualMachineInstance {
            spec: Some(VirtualMachineInstanceSpec {
                liveness_probe: Some(probe),
                tolerations: tolerations.iter().map(|it| it.to_vec()).collect(),
                ..VirtualMachineInstanceSpec::default()
            }),
            ..VirtualMachineInstance::default()
        }
    }

    #[test]
    fn bytes_that_are_no_json_are_refused_by_the_path_of_their_field() {
        let deep = "[".repeat(1000);
        for (port, tolerations, wanted) in [
            ("http", vec![], "spec.livenessProbe.httpGet.port: "),
            ("80 81", vec![], "spec.livenessProbe.httpGet.port: "),
            (deep.as_str(), vec![], "spec.livenessProbe.httpGet.port: "),
            ("80", vec!["{}", "{"], "spec.tolerations[1]: "),
            ("80", vec![""], "spec.tolerations[0]: "),
        ] {
            let tolerations: Vec<&[u8]> =
                tolerations.iter().map(|it: &&str| it.as_bytes()).collect();
            let refused = check_message(&vmi(port.as_bytes(), &tolerations));
            let refused = refused.expect_err(port).to_string();
            assert!(refused.starts_with(wanted), "{refused}");
            assert!(refused.contains("a string has its quotes"), "{refused}");
        }
        let not_text = check_message(&vmi(b"\"\xff\"", &[]));
        assert!(not_text.is_err(), "JSON is text");
    }

    #[test]
    fn json_of_another_form_is_refused_by_the_path_within_it() {
        for (toleration, wanted) in [
            ("42", "spec.tolerations[0]: "),
            ("{\"opertor\": \"Exists\"}", "spec.tolerations[0]"),
            ("{\"key\": 1e300}", "spec.tolerations[0].key: "),
        ] {
            let refused = check_message(&vmi(b"80", &[toleration.as_bytes()]));
            let refused = refused.expect_err(toleration).to_string();
            assert!(refused.starts_with(wanted), "{refused}");
        }
    }

    #[test]
    fn json_is_no_deeper_than_an_object_may_be() {
        let nested = |levels| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        // The field lies in httpGet of livenessProbe of spec of the VMI.
        let within = MAX_DEPTH - 4;
        let checked = |levels| check_message(&vmi(nested(levels).as_bytes(), &[]));
        assert_eq!(checked(within), Ok(()));
        let refused = checked(within + 1).expect_err("is too deep").to_string();
        let wanted = "spec.livenessProbe.httpGet.port: nested deeper than 48 levels";
        assert_eq!(refused, wanted);
    }

    #[test]
    fn json_and_what_is_left_out_pass() {
        for (port, tolerations) in [
            ("", vec![]),
            ("80", vec!["{}"]),
            (
                " \"http\" ",
                vec!["{\"key\": \"a\", \"tolerationSeconds\": 30}"],
            ),
        ] {
            let tolerations: Vec<&[u8]> =
                tolerations.iter().map(|it: &&str| it.as_bytes()).collect();
            let checked = check_message(&vmi(port.as_bytes(), &tolerations));
            assert_eq!(checked, Ok(()), "{port}");
        }
    }

    #[test]
    fn a_field_that_is_unknown_is_refused_by_the_path_of_what_it_is_in() {
        let mut wire = vmi(b"80", &[]).encode_to_vec();
        // Field 1000, of one byte, in a second piece of the spec's field 4.
        let spec = Schema::this_release().message(VMI);
        let spec = spec.fields.iter().find(|field| field.name() == "spec");
        let number = spec.expect("a field").number;
        let novel = [0xc2, 0x3e, 1, b'x'];
        prost::encoding::bytes::encode(number, &novel.to_vec(), &mut wire);
        let refused = Schema::this_release().check_fields(VMI, &wire);
        let refused = refused.expect_err("is unknown").to_string();
        assert_eq!(refused, "spec: unknown field with number 1000");
    }
}

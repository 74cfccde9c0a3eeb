use prost::Message;
use prost_reflect::{DynamicMessage, MapKey, Value};

use serde_json::Map;

use super::*;

/// Messages at the top of objects, and a few that have what others lack.
const MESSAGES: [&str; 6] = [
    "kubevirt.v1.VirtualMachineInstance",
    "kubevirt.v1.VirtualMachine",
    "kubevirt.instancetype.v1beta1.VirtualMachineInstancetype",
    "kvmlet.core.v1.Secret",
    "kvmlet.core.v1.Event",
    "kvmlet.apps.v1.ControllerRevision",
];

/// Numbers by a fixed rule (xorshift64).
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

const TEXTS: [&str; 6] = ["", "a", "\"q\"\n\u{1}", "ä€😀", "</script>", "128Mi"];
const JSONS: [&[u8]; 5] = [
    b"",
    b"{\"b\":1,\"a\":[null]}",
    b" 1.50 ",
    b"no json",
    b"\xff",
];

#[expect(clippy::cast_possible_truncation, reason = "any number will do")]
fn value(schema: &Schema, kind: &FieldKind, dice: &mut Dice, deep: usize) -> Value {
    let pick = usize::try_from(dice.roll(1000)).unwrap();
    let text = TEXTS[pick % TEXTS.len()];
    // With numbers of each width and sign.
    let bits = dice.0 >> (pick % 64);
    match kind {
        FieldKind::Bool => Value::Bool(pick % 2 == 0),
        FieldKind::Integer(Width::I32) => Value::I32(bits as i32),
        FieldKind::Integer(Width::I64) => Value::I64(bits as i64),
        FieldKind::Integer(Width::U32) => Value::U32(bits as u32),
        FieldKind::Integer(Width::U64) => Value::U64(bits),
        FieldKind::Text | FieldKind::Quantity => Value::String(text.to_owned()),
        FieldKind::Json(_) => Value::Bytes(JSONS[pick % JSONS.len()].into()),
        FieldKind::Base64 => Value::Bytes(text.as_bytes().to_vec().into()),
        FieldKind::Message(name) => Value::Message(message(schema, name, dice, deep + 1)),
    }
}

fn message(schema: &Schema, name: &str, dice: &mut Dice, deep: usize) -> DynamicMessage {
    let form = schema.message(name);
    let mut made = DynamicMessage::new(form.descriptor.clone());
    for field in &form.fields {
        // Fewer fields the deeper they are, so that it ends.
        if dice.roll(deep as u64 + 2) > 0 {
            continue;
        }
        let filled = match field.shape {
            Shape::Single => value(schema, &field.kind, dice, deep),
            Shape::List => {
                let items = (0..dice.roll(3)).map(|_| value(schema, &field.kind, dice, deep));
                Value::List(items.collect())
            }
            Shape::Map => {
                let entries = (0..dice.roll(3)).map(|at| {
                    let key = format!("{}{at}", TEXTS[usize::try_from(at).unwrap()]);
                    let value = value(schema, &field.kind, dice, deep);
                    (MapKey::String(key), value)
                });
                Value::Map(entries.collect())
            }
        };
        made.set_field(&field.descriptor, filled);
    }
    made
}

fn written(message: &str, bytes: &[u8]) -> Result<String, DecodeError> {
    let mut out = Vec::new();
    let mut last = LastJson::default();
    Schema::this_release().write_json(message, &[], bytes, (&mut last, &mut out))?;
    // What is remembered changes nothing.
    let mut again = Vec::new();
    Schema::this_release().write_json(message, &[], bytes, (&mut last, &mut again))?;
    assert_eq!(out, again);
    Ok(String::from_utf8(out).expect("JSON is text"))
}

/// The JSON form of a message by way of its reflection: what text and value from the wire are compared with.
fn message_to_json(schema: &Schema, form: &MessageSchema, message: &DynamicMessage) -> Json {
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

/// The value as the descriptors have it, by way of a message of theirs.
fn described(message: &str, bytes: &[u8]) -> Option<Json> {
    let schema = Schema::this_release();
    let form = schema.message(message);
    let dynamic = DynamicMessage::decode(form.descriptor.clone(), bytes).ok()?;
    Some(message_to_json(schema, form, &dynamic))
}

#[test]
fn text_and_value_are_those_of_the_descriptors_whatever_the_message() {
    let schema = Schema::this_release();
    let mut dice = Dice(0x9e37_79b9_7f4a_7c15);
    let mut bytes = 0;
    for round in 0..6000 {
        let name = MESSAGES[round % MESSAGES.len()];
        let wire = message(schema, name, &mut dice, 0).encode_to_vec();
        bytes += wire.len();
        let value = described(name, &wire).expect("it is one");
        assert_eq!(written(name, &wire).expect("it is one"), value.to_string());
        assert_eq!(schema.from_wire(name, &wire).expect("it is one"), value);
    }
    assert!(bytes > 100_000, "{bytes} bytes say little");
}

#[test]
fn a_value_on_the_wire_is_the_same_value() {
    let schema = Schema::this_release();
    let mut dice = Dice(5);
    let mut taken = 0;
    for round in 0..6000 {
        let name = MESSAGES[round % MESSAGES.len()];
        let wire = message(schema, name, &mut dice, 0).encode_to_vec();
        let value = described(name, &wire).expect("it is one");
        // JSON of a form that the dice do not know is refused.
        if let Ok(wire) = schema.to_wire(name, value.clone()) {
            taken += 1;
            assert_eq!(described(name, &wire), Some(value));
        }
    }
    assert!(taken > 3000, "{taken}");
}

#[test]
fn two_messages_in_a_row_are_one_of_both() {
    let schema = Schema::this_release();
    let mut dice = Dice(7);
    for round in 0..3000 {
        let name = MESSAGES[round % MESSAGES.len()];
        let mut wire = message(schema, name, &mut dice, 0).encode_to_vec();
        wire.extend(message(schema, name, &mut dice, 0).encode_to_vec());
        let value = described(name, &wire).expect("it is one");
        assert_eq!(written(name, &wire).expect("it is one"), value.to_string());
        assert_eq!(schema.from_wire(name, &wire).expect("it is one"), value);
    }
}

#[test]
fn nothing_is_taken_that_the_decoder_refuses() {
    let schema = Schema::this_release();
    let mut dice = Dice(11);
    let (mut refused, mut taken) = (0, 0);
    for round in 0..20_000 {
        let name = MESSAGES[round % MESSAGES.len()];
        let mut wire = message(schema, name, &mut dice, 1).encode_to_vec();
        if wire.is_empty() {
            continue;
        }
        let at = usize::try_from(dice.roll(wire.len() as u64)).unwrap();
        if dice.roll(2) == 0 {
            wire.truncate(at);
        } else {
            wire[at] ^= 1 << dice.roll(8);
        }
        let read = schema.from_wire(name, &wire);
        match (described(name, &wire), written(name, &wire)) {
            (Some(value), Ok(text)) => {
                taken += 1;
                assert_eq!(text, value.to_string());
                assert_eq!(read, Ok(value));
            }
            // The decoder takes a number for an entry of a map.
            (_, Err(error)) => {
                refused += 1;
                assert_eq!(read, Err(error));
            }
            (None, Ok(text)) => panic!("{name} {wire:?}: {text:?}"),
        }
    }
    assert!(refused > 100 && taken > 100, "{refused}, {taken}");
}

#[test]
fn members_of_the_head_come_first_and_once() {
    let name = "kvmlet.core.v1.Secret";
    let wire = Schema::this_release()
        .to_wire(
            name,
            serde_json::json!({"apiVersion": "v0", "kind": "Old", "metadata": {"name": "a"}}),
        )
        .expect("a Secret");
    let mut out = Vec::new();
    let head = [("apiVersion", "v1"), ("kind", "Secret")];
    Schema::this_release()
        .write_json(name, &head, &wire, (&mut LastJson::default(), &mut out))
        .expect("a Secret");
    let text = r#"{"apiVersion":"v1","kind":"Secret","metadata":{"name":"a"}}"#;
    assert_eq!(String::from_utf8(out).unwrap(), text);
}

/// The writer knows nothing of members of which one ends another.
#[test]
fn no_message_of_the_api_has_alternatives() {
    for name in MESSAGES {
        let mut open = vec![name.to_owned()];
        let mut seen = std::collections::BTreeSet::new();
        while let Some(name) = open.pop() {
            let form = Schema::this_release().message(&name);
            let mut alternatives = form.descriptor.oneofs().filter(|it| !it.is_synthetic());
            assert!(alternatives.next().is_none(), "{name}");
            let within = form.fields.iter().filter_map(|field| field.form());
            open.extend(
                within
                    .map(str::to_owned)
                    .filter(|it| seen.insert(it.clone())),
            );
        }
    }
}

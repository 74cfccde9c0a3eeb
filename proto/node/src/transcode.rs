//! From the wire to JSON text with no tree in between, for lists and watches of many objects.

pub(crate) mod known;
mod value;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use prost::bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint};
use serde::Serialize;
use serde_json::Value as Json;

use crate::decode::DecodeError;
use crate::last_json::LastJson;
use crate::schema::{FieldKind, FieldSchema, MessageSchema, Schema, Shape, Width};

/// Messages within messages, at most: prost's own limit.
const DEEPEST: usize = 100;

impl Schema {
    /// Appends the JSON text of a message on the wire: that of [`Self::from_wire`]'s value. The members of `head` come
    /// first, in place of the message's own.
    ///
    /// # Errors
    /// When the bytes are no message of this name. What was appended until then is of no use.
    pub fn write_json(
        &self,
        message: &str,
        head: &[(&str, &str)],
        bytes: &[u8],
        (last, out): (&mut LastJson, &mut Vec<u8>),
    ) -> Result<(), DecodeError> {
        let form = self
            .find(message)
            .ok_or_else(|| unfit(&format!("{message} is not a message of the API")))?;
        let mut text = Text {
            schema: self,
            last,
            out,
            deep: 0,
        };
        text.message(form, head, bytes)
    }
}

/// A value as it stands on the wire.
#[derive(Clone, Copy)]
enum Raw<'a> {
    Varint(u64),
    Bytes(&'a [u8]),
}

/// A value of a known field: the field's place in its message's description, and the value.
type Part<'a> = (usize, Raw<'a>);

/// Values that most messages have no more of.
const USUAL: usize = 12;

/// JSON that is longer is read each time.
const LONGEST_LAST: usize = 1024;

struct Text<'s, 'o> {
    schema: &'s Schema,
    last: &'o mut LastJson,
    out: &'o mut Vec<u8>,
    deep: usize,
}

impl Text<'_, '_> {
    fn message(
        &mut self,
        form: &MessageSchema,
        head: &[(&str, &str)],
        bytes: &[u8],
    ) -> Result<(), DecodeError> {
        self.deep += 1;
        if self.deep > DEEPEST {
            return Err(unfit("it is nested too deeply"));
        }
        self.out.push(b'{');
        let mut is_first = true;
        for (name, value) in head {
            self.comma_unless(&mut is_first);
            self.string(name);
            self.out.push(b':');
            self.string(value);
        }
        for (field, values) in by_field(form, &parts(form, bytes)?) {
            if !head.iter().any(|(name, _)| *name == field.name()) {
                self.field(field, values, &mut is_first)?;
            }
        }
        self.out.push(b'}');
        self.deep -= 1;
        Ok(())
    }

    fn field(
        &mut self,
        field: &FieldSchema,
        values: &[Part<'_>],
        is_first: &mut bool,
    ) -> Result<(), DecodeError> {
        match field.shape {
            Shape::Single => self.single(field, values, is_first),
            Shape::List => {
                self.name(field, is_first);
                self.list(field, values)
            }
            Shape::Map => {
                self.name(field, is_first);
                self.map(field, values)
            }
        }
    }

    fn single(
        &mut self,
        field: &FieldSchema,
        values: &[Part<'_>],
        is_first: &mut bool,
    ) -> Result<(), DecodeError> {
        if let Some(value) = whole(field, values)? {
            self.name(field, is_first);
            self.value(&field.kind, value.raw())?;
        }
        Ok(())
    }

    fn list(&mut self, field: &FieldSchema, values: &[Part<'_>]) -> Result<(), DecodeError> {
        let is_number = is_number(field);
        self.out.push(b'[');
        let start = self.out.len();
        for (_, value) in values {
            match *value {
                // Numbers may come packed.
                Raw::Bytes(mut packed) if is_number => {
                    while packed.has_remaining() {
                        let number = varint(&mut packed)?;
                        self.comma(start);
                        self.value(&field.kind, Raw::Varint(number))?;
                    }
                }
                value => {
                    self.comma(start);
                    self.value(&field.kind, value)?;
                }
            }
        }
        self.out.push(b']');
        Ok(())
    }

    fn map(&mut self, field: &FieldSchema, values: &[Part<'_>]) -> Result<(), DecodeError> {
        self.out.push(b'{');
        let mut is_first = true;
        for (key, value) in map_entries(field, values)? {
            self.comma_unless(&mut is_first);
            self.string(key);
            self.out.push(b':');
            self.value(&field.kind, value)?;
        }
        self.out.push(b'}');
        Ok(())
    }

    fn value(&mut self, kind: &FieldKind, value: Raw<'_>) -> Result<(), DecodeError> {
        match (kind, value) {
            (FieldKind::Message(name), Raw::Bytes(bytes)) => {
                let schema = self.schema;
                self.message(schema.message(name), &[], bytes)?;
            }
            (FieldKind::Text | FieldKind::Quantity, Raw::Bytes(bytes)) => {
                self.string(utf8(bytes)?);
            }
            (FieldKind::Json(_), Raw::Bytes(bytes)) => self.held(bytes),
            (FieldKind::Base64, Raw::Bytes(bytes)) => self.string(&BASE64.encode(bytes)),
            (FieldKind::Bool, Raw::Varint(value)) => self.json(&(value != 0)),
            (FieldKind::Integer(width), Raw::Varint(value)) => self.json(&number(*width, value)),
            _ => return Err(unfit("a field has the wrong wire type")),
        }
        Ok(())
    }

    fn name(&mut self, field: &FieldSchema, is_first: &mut bool) {
        self.comma_unless(is_first);
        self.out.extend_from_slice(&field.member);
    }

    fn comma_unless(&mut self, is_first: &mut bool) {
        if !std::mem::take(is_first) {
            self.out.push(b',');
        }
    }

    /// JSON that the message holds as text. What was not made by the codec may be anything: text that is no JSON is shown
    /// as text.
    fn held(&mut self, bytes: &[u8]) {
        if bytes == self.last.bytes && !bytes.is_empty() {
            return self.out.extend_from_slice(&self.last.written);
        }
        let start = self.out.len();
        match serde_json::from_slice::<Json>(bytes) {
            Ok(value) => self.json(&value),
            Err(_) => self.string(&String::from_utf8_lossy(bytes)),
        }
        if bytes.len() <= LONGEST_LAST {
            self.last.bytes.clear();
            self.last.bytes.extend_from_slice(bytes);
            self.last.written.clear();
            let written = self.out.get(start..).unwrap_or_default();
            self.last.written.extend_from_slice(written);
        }
    }

    /// Before every item of a list that begins at `start` but the first.
    fn comma(&mut self, start: usize) {
        if self.out.len() > start {
            self.out.push(b',');
        }
    }

    fn string(&mut self, text: &str) {
        let is_escaped = |byte: &u8| *byte < b' ' || matches!(byte, b'"' | b'\\');
        if text.as_bytes().iter().any(is_escaped) {
            let written = serde_json::to_writer(&mut *self.out, text);
            return written.expect("a vector takes all that is written");
        }
        // Nearly all text of objects stands in JSON as it is.
        self.out.reserve(text.len() + 2);
        self.out.push(b'"');
        self.out.extend_from_slice(text.as_bytes());
        self.out.push(b'"');
    }

    fn json(&mut self, value: &impl Serialize) {
        serde_json::to_writer(&mut *self.out, value).expect("a vector takes all that is written");
    }
}

impl<'a> Raw<'a> {
    fn bytes(self) -> Result<&'a [u8], DecodeError> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            Self::Varint(_) => Err(unfit("a field has the wrong wire type")),
        }
    }

    const fn is_default(self) -> bool {
        match self {
            Self::Varint(value) => value == 0,
            Self::Bytes(bytes) => bytes.is_empty(),
        }
    }
}

/// The one value of a field.
enum Whole<'a> {
    Raw(Raw<'a>),
    /// A message that came in pieces.
    Joined(Vec<u8>),
}

impl Whole<'_> {
    fn raw(&self) -> Raw<'_> {
        match self {
            Self::Raw(raw) => *raw,
            Self::Joined(bytes) => Raw::Bytes(bytes),
        }
    }
}

/// What the values of a field that has one come to; nothing where the field counts as left out.
fn whole<'a>(field: &FieldSchema, values: &[Part<'a>]) -> Result<Option<Whole<'a>>, DecodeError> {
    let Some((_, last)) = values.last() else {
        return Ok(None);
    };
    if let (FieldKind::Message(_), [_, _, ..]) = (&field.kind, values) {
        // A message that comes in pieces is what they are together.
        let mut joined = Vec::new();
        for (_, piece) in values {
            joined.extend_from_slice(piece.bytes()?);
        }
        return Ok(Some(Whole::Joined(joined)));
    }
    if let (FieldKind::Text | FieldKind::Quantity, [earlier @ .., _]) = (&field.kind, values) {
        // The last one counts, and none may be anything else than text.
        for (_, value) in earlier {
            utf8(value.bytes()?)?;
        }
    }
    let is_left_out = last.is_default() && !field.has_presence;
    Ok((!is_left_out).then_some(Whole::Raw(*last)))
}

/// The fields of a message in the order of declaration, each with its values in the order of the wire.
fn by_field<'a, 'p>(
    form: &'a MessageSchema,
    parts: &'p [Part<'p>],
) -> impl Iterator<Item = (&'a FieldSchema, &'p [Part<'p>])> {
    let chunks = parts.chunk_by(|one, next| one.0 == next.0);
    chunks.filter_map(|values| {
        let (at, _) = values.first()?;
        Some((form.fields.get(*at)?, values))
    })
}

/// Keys and values of a map, by key. The last value of a key counts.
fn map_entries<'a>(
    field: &FieldSchema,
    values: &[Part<'a>],
) -> Result<Vec<(&'a str, Raw<'a>)>, DecodeError> {
    let mut entries = Vec::with_capacity(values.len());
    for (_, entry) in values {
        entries.push(map_entry(field, entry.bytes()?)?);
    }
    entries.reverse();
    entries.sort_by_key(|(key, _)| *key);
    entries.dedup_by_key(|(key, _)| *key);
    Ok(entries)
}

/// The values of all fields that a message has here: the fields in the order of declaration, the values of each in that of
/// the wire.
fn parts<'a>(form: &MessageSchema, mut bytes: &'a [u8]) -> Result<Vec<Part<'a>>, DecodeError> {
    let mut parts = Vec::with_capacity(USUAL);
    while bytes.has_remaining() {
        let (number, raw) = part(&mut bytes)?;
        let Some((at, field)) = field_of(form, number) else {
            continue;
        };
        match raw {
            Some(raw @ Raw::Varint(_)) if is_number(field) => parts.push((at, raw)),
            Some(raw @ Raw::Bytes(_)) if !is_number(field) || field.shape != Shape::Single => {
                parts.push((at, raw));
            }
            _ => return Err(unfit("a field has the wrong wire type")),
        }
    }
    parts.sort_by_key(|(field, _)| *field);
    Ok(parts)
}

/// The field of a number and its place. Most messages declare their fields in the order of their numbers, from 1 on.
fn field_of(form: &MessageSchema, number: u32) -> Option<(usize, &FieldSchema)> {
    let is_it = |(_, field): &(usize, &FieldSchema)| field.number == number;
    let place = usize::try_from(number).ok()?.checked_sub(1)?;
    let there = form.fields.get(place).map(|field| (place, field));
    there
        .filter(is_it)
        .or_else(|| form.fields.iter().enumerate().find(is_it))
}

/// The next field's number and its value; no value where it has a wire type that no field of the API has.
fn part<'a>(bytes: &mut &'a [u8]) -> Result<(u32, Option<Raw<'a>>), DecodeError> {
    let (number, wire_type) = decode_key(bytes).map_err(|error| unfit(&error.to_string()))?;
    let raw = match wire_type {
        WireType::Varint => Some(Raw::Varint(varint(bytes)?)),
        WireType::LengthDelimited => {
            let length = usize::try_from(varint(bytes)?).unwrap_or(usize::MAX);
            Some(Raw::Bytes(take(bytes, length)?))
        }
        WireType::SixtyFourBit => take(bytes, 8).map(|_| None)?,
        WireType::ThirtyTwoBit => take(bytes, 4).map(|_| None)?,
        WireType::StartGroup | WireType::EndGroup => return Err(unfit("it has groups")),
    };
    Ok((number, raw))
}

/// Key and value of an entry; both are default where they are left out.
fn map_entry<'a>(
    field: &FieldSchema,
    mut bytes: &'a [u8],
) -> Result<(&'a str, Raw<'a>), DecodeError> {
    let mut value = if is_number(field) {
        Raw::Varint(0)
    } else {
        Raw::Bytes(&[])
    };
    let mut key = "";
    while bytes.has_remaining() {
        match part(&mut bytes)? {
            (1, Some(raw)) => key = utf8(raw.bytes()?)?,
            (2, Some(raw)) => value = raw,
            (1 | 2, None) => return Err(unfit("a field has the wrong wire type")),
            _ => {}
        }
    }
    Ok((key, value))
}

/// Whether values of a field are numbers on the wire.
const fn is_number(field: &FieldSchema) -> bool {
    matches!(field.kind, FieldKind::Bool | FieldKind::Integer(_))
}

fn varint(bytes: &mut &[u8]) -> Result<u64, DecodeError> {
    decode_varint(bytes).map_err(|error| unfit(&error.to_string()))
}

fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Result<&'a [u8], DecodeError> {
    let (taken, rest) = bytes
        .split_at_checked(length)
        .ok_or_else(|| unfit("it ends within a field"))?;
    *bytes = rest;
    Ok(taken)
}

fn utf8(bytes: &[u8]) -> Result<&str, DecodeError> {
    std::str::from_utf8(bytes).map_err(|error| unfit(&error.to_string()))
}

/// Numbers are as wide as their field: what is beyond that is cut off, as protobuf has it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    reason = "the wire format says so"
)]
fn number(width: Width, value: u64) -> Json {
    match width {
        Width::I32 => Json::from(value as i32),
        Width::I64 => Json::from(value as i64),
        Width::U32 => Json::from(value as u32),
        Width::U64 => Json::from(value),
    }
}

fn unfit(why: &str) -> DecodeError {
    DecodeError {
        path: String::new(),
        message: format!("does not fit the API: {why}"),
    }
}

#[cfg(test)]
mod tests;

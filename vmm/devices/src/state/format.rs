//! The format of a state, found out by asking: which fields a message has is what it keeps of bytes
//! that it reads and writes again.
//!
//! Tests compare it with the format that was kept when its version was made.

use std::fmt::Write as _;

use prost::Message;

/// Field numbers that are tried.
const MAX_TAG: u32 = 32;
/// Messages in messages.
const MAX_DEPTH: usize = 4;

/// Reads a message and writes it again; nothing when it is none.
type Again<'a> = &'a dyn Fn(&[u8]) -> Option<Vec<u8>>;

/// The fields of `M`, one in a line: number, type, and those of messages in it below, indented.
#[must_use]
pub fn format_of<M: Message + Default>() -> String {
    let mut lines = String::new();
    describe(
        &|bytes| M::decode(bytes).ok().map(|message| message.encode_to_vec()),
        0,
        &mut lines,
    );
    lines
}

fn describe(again: Again<'_>, depth: usize, lines: &mut String) {
    let nothing = again(&[]).unwrap_or_default();
    for tag in 1..=MAX_TAG {
        let probe = Probe {
            again,
            tag,
            nothing: &nothing,
        };
        let Some(kind) = probe.kind() else {
            continue;
        };
        let indent = "  ".repeat(depth);
        let many = if probe.is_repeated() { "repeated " } else { "" };
        // Writing to a string does not fail.
        let _ = writeln!(lines, "{indent}{tag} {many}{kind}");
        if kind == MESSAGE && depth < MAX_DEPTH {
            let inner = |bytes: &[u8]| again(&probe.delimited(bytes));
            describe(&inner, depth + 1, lines);
        }
    }
}

const MESSAGE: &str = "message";

/// One field of a message.
struct Probe<'a> {
    again: Again<'a>,
    tag: u32,
    /// What a message without fields is written as.
    nothing: &'a [u8],
}

impl Probe<'_> {
    fn kind(&self) -> Option<&'static str> {
        let varint = [&self.key(0)[..], &[0xff; 9], &[1]].concat();
        if let Some(written) = self.kept(&varint) {
            let bytes = written
                .len()
                .saturating_sub(self.nothing.len() + self.key(0).len());
            // Numbers that are repeated are written with their length.
            let packed = usize::from(self.is_repeated());
            return Some(match bytes.saturating_sub(packed) {
                1 => "bool",
                5 => "uint32",
                _ => "64-bit varint",
            });
        }
        for (wire_type, bytes, kind) in [(1, 8, "fixed64"), (5, 4, "fixed32")] {
            let value = vec![0xff; bytes];
            if self.kept(&[self.key(wire_type), value].concat()).is_some() {
                return Some(kind);
            }
        }
        // No text, and no message.
        if self.kept(&self.delimited(&[0xff])).is_some() {
            return Some("bytes");
        }
        // Packed numbers read this, too, and so does a message: as a field that it does not know.
        if self.kept(&self.delimited(b"a")).is_some() {
            return Some("string");
        }
        self.kept(&self.delimited(&[])).map(|_| MESSAGE)
    }

    /// What is written of `bytes`, if anything of them is kept.
    fn kept(&self, bytes: &[u8]) -> Option<Vec<u8>> {
        (self.again)(bytes).filter(|written| written != self.nothing)
    }

    /// Of a field that is there twice, only one that is repeated is kept twice.
    fn is_repeated(&self) -> bool {
        let values = [
            [self.key(0), vec![1]].concat(),
            [self.key(1), vec![1; 8]].concat(),
            [self.key(5), vec![1; 4]].concat(),
            self.delimited(b"a"),
            self.delimited(&[]),
        ];
        values.iter().any(|value| {
            let once = self.kept(value);
            let twice = self.kept(&[&value[..], value].concat());
            matches!((once, twice), (Some(once), Some(twice)) if twice.len() > once.len())
        })
    }

    fn delimited(&self, content: &[u8]) -> Vec<u8> {
        let mut bytes = self.key(2);
        prost::encoding::encode_varint(content.len() as u64, &mut bytes);
        bytes.extend(content);
        bytes
    }

    fn key(&self, wire_type: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        prost::encoding::encode_varint(u64::from(self.tag << 3 | wire_type), &mut bytes);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Inner {
        #[prost(bool, tag = "1")]
        on: bool,
        #[prost(fixed64, tag = "3")]
        value: u64,
    }

    #[derive(Clone, PartialEq, Message)]
    struct Outer {
        #[prost(uint32, tag = "1")]
        number: u32,
        #[prost(uint64, optional, tag = "2")]
        large: Option<u64>,
        #[prost(bytes = "vec", tag = "4")]
        bytes: Vec<u8>,
        #[prost(string, tag = "5")]
        text: String,
        #[prost(message, optional, tag = "6")]
        inner: Option<Inner>,
        #[prost(message, repeated, tag = "7")]
        many: Vec<Inner>,
        #[prost(uint32, repeated, tag = "8")]
        numbers: Vec<u32>,
        #[prost(fixed32, tag = "20")]
        word: u32,
        #[prost(bytes = "vec", repeated, tag = "21")]
        lines: Vec<Vec<u8>>,
    }

    #[test]
    fn every_field_is_found_with_its_type() {
        let wanted = "1 uint32\n2 64-bit varint\n4 bytes\n5 string\n6 message\n  1 bool\n  3 fixed64\n\
                      7 repeated message\n  1 bool\n  3 fixed64\n8 repeated uint32\n20 fixed32\n\
                      21 repeated bytes\n";
        assert_eq!(format_of::<Outer>(), wanted);
    }
}

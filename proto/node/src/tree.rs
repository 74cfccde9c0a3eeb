//! Any JSON or YAML value, with the bounds that keep a hostile one cheap.

use std::cell::{Cell, RefCell};
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::Number;

/// Deepest nesting of maps and lists that is read; the API itself needs about 15.
pub const MAX_DEPTH: usize = 48;

/// The most maps, lists and scalars that one document may hold.
pub(crate) const MAX_NODES: usize = 200_000;

/// A caller's text as others may see it: of at most `max_chars` characters, and harmless to terminals
/// and logs.
#[must_use]
pub fn tame(text: &str, max_chars: usize) -> String {
    let mut rest = text.chars();
    let mut tame: String = rest
        .by_ref()
        .take(max_chars)
        .map(|character| {
            if character.is_control() {
                '\u{fffd}'
            } else {
                character
            }
        })
        .collect();
    if rest.next().is_some() {
        tame.push('…');
    }
    tame
}

/// A key of a caller's as part of a path.
pub(crate) fn path_segment(key: &str) -> String {
    const MAX_CHARS: usize = 64;
    tame(key, MAX_CHARS)
}

/// A value as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    /// `null`.
    Null,
    /// `true` or `false`.
    Bool(bool),
    /// An integer or a number with a fraction, as the text has it.
    Number(Number),
    /// A string.
    Text(String),
    /// A sequence of values.
    List(Vec<Node>),
    /// A map, in the order of the text, without duplicates.
    Map(Vec<(String, Node)>),
}

impl Node {
    /// The member of a map.
    pub(crate) fn get(&self, key: &str) -> Option<&Self> {
        match self {
            Self::Map(members) => members
                .iter()
                .find_map(|(name, value)| (name == key).then_some(value)),
            _ => None,
        }
    }

    /// The text of a string.
    pub(crate) fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The same as `serde_json` has it.
    pub(crate) fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Null => serde_json::Value::Null,
            Self::Bool(value) => (*value).into(),
            Self::Number(value) => value.clone().into(),
            Self::Text(value) => value.as_str().into(),
            Self::List(items) => items.iter().map(Self::to_json).collect(),
            Self::Map(members) => members
                .iter()
                .map(|(key, value)| (key.clone(), value.to_json()))
                .collect(),
        }
    }
}

impl From<serde_json::Value> for Node {
    fn from(value: serde_json::Value) -> Self {
        match value {
            serde_json::Value::Null => Self::Null,
            serde_json::Value::Bool(value) => Self::Bool(value),
            serde_json::Value::Number(value) => Self::Number(value),
            serde_json::Value::String(value) => Self::Text(value),
            serde_json::Value::Array(items) => {
                Self::List(items.into_iter().map(Self::from).collect())
            }
            serde_json::Value::Object(members) => Self::Map(
                members
                    .into_iter()
                    .map(|(key, value)| (key, Self::from(value)))
                    .collect(),
            ),
        }
    }
}

/// Reads a [`Node`] and remembers where it is, so that a syntax error can name the field.
pub(crate) struct NodeSeed<'a> {
    place: &'a ReadPosition,
    depth: usize,
}

/// How far reading has come.
#[derive(Default)]
pub(crate) struct ReadPosition {
    path: RefCell<String>,
    nodes: Cell<usize>,
}

impl ReadPosition {
    /// The field at which reading stopped.
    pub(crate) fn into_path(self) -> String {
        self.path.into_inner()
    }
}

impl<'a> NodeSeed<'a> {
    /// After a failure `place` knows the field at which reading stopped.
    pub(crate) fn new(place: &'a ReadPosition) -> Self {
        Self { place, depth: 0 }
    }

    fn child(&self) -> Self {
        Self {
            place: self.place,
            depth: self.depth + 1,
        }
    }

    /// Appends to the path; the returned length undoes it.
    fn enter(&self, segment: fmt::Arguments<'_>) -> usize {
        let mut path = self.place.path.borrow_mut();
        let before = path.len();
        path.push_str(&segment.to_string());
        before
    }

    fn leave(&self, before: usize) {
        self.place.path.borrow_mut().truncate(before);
    }
}

impl<'de> DeserializeSeed<'de> for NodeSeed<'_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        if self.depth > MAX_DEPTH {
            return Err(D::Error::custom(format_args!(
                "nested deeper than {MAX_DEPTH} levels"
            )));
        }
        let nodes = self.place.nodes.get() + 1;
        self.place.nodes.set(nodes);
        if nodes > MAX_NODES {
            return Err(D::Error::custom(format_args!(
                "holds more than {MAX_NODES} values"
            )));
        }
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for NodeSeed<'_> {
    type Value = Node;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("a value")
    }

    fn visit_unit<E: Error>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E: Error>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_i64<E: Error>(self, value: i64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_u64<E: Error>(self, value: u64) -> Result<Node, E> {
        Ok(Node::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Node, E> {
        Number::from_f64(value)
            .map(Node::Number)
            .ok_or_else(|| E::custom("not a finite number"))
    }

    fn visit_str<E: Error>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_string<E: Error>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node, A::Error> {
        let mut list = Vec::new();
        loop {
            let before = self.enter(format_args!("[{}]", list.len()));
            let Some(item) = items.next_element_seed(self.child())? else {
                self.leave(before);
                return Ok(Node::List(list));
            };
            self.leave(before);
            list.push(item);
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Node, A::Error> {
        let mut map = Vec::new();
        let mut seen = std::collections::BTreeSet::new();
        while let Some(key) = members.next_key::<String>()? {
            let segment = path_segment(&key);
            let before = if self.place.path.borrow().is_empty() {
                self.enter(format_args!("{segment}"))
            } else {
                self.enter(format_args!(".{segment}"))
            };
            if !seen.insert(key.clone()) {
                return Err(A::Error::custom(format_args!(
                    "duplicate field {segment:?}"
                )));
            }
            let value = members.next_value_seed(self.child())?;
            self.leave(before);
            map.push((key, value));
        }
        Ok(Node::Map(map))
    }
}

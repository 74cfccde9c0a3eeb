//! What a value of JSON or YAML is, however it is kept: the decoder reads trees of this crate and of `serde_json` alike, and
//! copies neither.

use serde_json::{Map, Number, Value};

use crate::tree::Node;

/// A value whose type can be read.
pub(crate) trait Tree: Sized {
    /// Members of a map, in their order.
    type Members<'a>: Iterator<Item = (&'a str, &'a Self)>
    where
        Self: 'a;

    /// Its type, and its parts by reference.
    fn typed(&self) -> Typed<'_, Self>;

    /// The same as `serde_json` has it.
    fn to_value(&self) -> Value;
}

/// A value of one of JSON's types.
pub(crate) enum Typed<'a, T: Tree + 'a> {
    Null,
    Bool(bool),
    Number(&'a Number),
    Text(&'a str),
    List(&'a [T]),
    Map(T::Members<'a>),
}

impl<T: Tree> Typed<'_, T> {
    /// The word that OpenAPI has for the type.
    pub(crate) fn type_name(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "boolean",
            Self::Number(number) if number.is_f64() => "number",
            Self::Number(_) => "integer",
            Self::Text(_) => "string",
            Self::List(_) => "array",
            Self::Map(_) => "object",
        }
    }
}

/// An iterator whose items are brought into one form.
type Members<'a, I, T> = std::iter::Map<I, fn(<I as Iterator>::Item) -> (&'a str, &'a T)>;

impl Tree for Node {
    type Members<'a> = Members<'a, std::slice::Iter<'a, (String, Self)>, Self>;

    fn typed(&self) -> Typed<'_, Self> {
        match self {
            Self::Null => Typed::Null,
            Self::Bool(value) => Typed::Bool(*value),
            Self::Number(value) => Typed::Number(value),
            Self::Text(value) => Typed::Text(value),
            Self::List(items) => Typed::List(items),
            Self::Map(members) => {
                let named: fn(_) -> _ = |(name, value): &(String, Self)| (name.as_str(), value);
                Typed::Map(members.iter().map(named))
            }
        }
    }

    fn to_value(&self) -> Value {
        self.to_json()
    }
}

impl Tree for Value {
    type Members<'a> = Members<'a, serde_json::map::Iter<'a>, Self>;

    fn typed(&self) -> Typed<'_, Self> {
        match self {
            Self::Null => Typed::Null,
            Self::Bool(value) => Typed::Bool(*value),
            Self::Number(value) => Typed::Number(value),
            Self::String(value) => Typed::Text(value),
            Self::Array(items) => Typed::List(items),
            Self::Object(members) => Typed::Map(members_of(members)),
        }
    }

    fn to_value(&self) -> Value {
        self.clone()
    }
}

/// Members of an object of `serde_json`, as the decoder reads them.
pub(crate) fn members_of(members: &Map<String, Value>) -> <Value as Tree>::Members<'_> {
    let named: fn(_) -> _ = |(name, value): (&String, &Value)| (name.as_str(), value);
    members.iter().map(named)
}

//! Paths of members in JSON trees.

use serde_json::{Map, Value};

/// A JSON tree of which members are read and set by their path.
pub(super) trait Tree {
    /// The value at a path; nothing when a member is absent or null.
    fn found(&self, path: &[&str]) -> Option<&Value>;

    /// The object at a path, which is made where there is none.
    fn made(&mut self, path: &[&str]) -> &mut Value;

    /// The list that is a member of this object, which is made where there is none.
    fn made_list(&mut self, name: &str) -> &mut Vec<Value>;

    /// Sets a member of the object at a path.
    fn set(&mut self, path: &[&str], name: &str, value: Value);

    /// Sets a member of the object at a path unless it has one.
    fn fill(&mut self, path: &[&str], name: &str, value: Option<&Value>);
}

impl Tree for Value {
    fn found(&self, path: &[&str]) -> Option<&Value> {
        let mut value = self;
        for member in path {
            value = value.get(member)?;
        }
        (!value.is_null()).then_some(value)
    }

    fn made(&mut self, path: &[&str]) -> &mut Value {
        let mut value = self;
        for member in path {
            value = object(value).entry(*member).or_insert(Value::Null);
        }
        if !value.is_object() {
            *value = Value::Object(Map::new());
        }
        value
    }

    fn made_list(&mut self, name: &str) -> &mut Vec<Value> {
        let list = object(self).entry(name).or_insert(Value::Null);
        if !list.is_array() {
            *list = Value::Array(Vec::new());
        }
        match list {
            Value::Array(items) => items,
            _ => unreachable!("it was just made one"),
        }
    }

    fn set(&mut self, path: &[&str], name: &str, value: Value) {
        object(self.made(path)).insert(name.to_owned(), value);
    }

    fn fill(&mut self, path: &[&str], name: &str, value: Option<&Value>) {
        let Some(value) = value else { return };
        let is_set = self
            .found(path)
            .and_then(|object| object.found(&[name]))
            .is_some();
        if !is_set {
            self.set(path, name, value.clone());
        }
    }
}

/// The members of a value, which becomes an object where it is none.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(members) => members,
        _ => unreachable!("it was just made one"),
    }
}

/// A number of a tree; 0 where there is none.
pub(super) fn number(value: Option<&Value>) -> u32 {
    let number = value.and_then(Value::as_u64).unwrap_or(0);
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A text of a tree; empty where there is none.
pub(super) fn text(value: Option<&Value>) -> &str {
    value.and_then(Value::as_str).unwrap_or_default()
}

//! Fields of metadata that a newer server wrote and this release does not know. Everything else of an object is kept as a
//! JSON tree, which holds them anyway.

use serde_json::{Map, Value};

/// What was unknown where metadata was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct UnknownMetadata {
    /// Members of the metadata itself.
    members: Map<String, Value>,
    /// Members of an element of one of its lists, such as an owner: the list, the element without them, and they.
    in_elements: Vec<(String, Value, Map<String, Value>)>,
}

impl UnknownMetadata {
    /// What `whole` has that is not in `known`, which is the same metadata without it.
    pub(crate) fn between(whole: &Value, known: &Value) -> Self {
        let mut unknown = Self::default();
        for (name, value) in whole.as_object().into_iter().flatten() {
            let Some(known) = known.get(name) else {
                unknown.members.insert(name.clone(), value.clone());
                continue;
            };
            let (Value::Array(elements), Value::Array(known)) = (value, known) else {
                continue;
            };
            for (element, known) in elements.iter().zip(known) {
                let members = more_of(element, known);
                if !members.is_empty() {
                    let kept = (name.clone(), known.clone(), members);
                    unknown.in_elements.push(kept);
                }
            }
        }
        unknown
    }

    /// Whether there is nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.members.is_empty() && self.in_elements.is_empty()
    }

    /// Puts everything back to where it was. What was in an element of a list goes with it, also when the element is
    /// changed.
    pub(crate) fn put_back(&self, metadata: &mut Value) {
        let Value::Object(present) = metadata else {
            return;
        };
        for (name, value) in &self.members {
            present.entry(name.clone()).or_insert_with(|| value.clone());
        }
        for (list, known, members) in &self.in_elements {
            let elements = present.get_mut(list).and_then(Value::as_array_mut);
            let mut elements = elements.into_iter().flatten();
            let element = elements.find(|element| *element == known);
            if let Some(Value::Object(element)) = element {
                element.extend(members.clone());
            }
        }
    }
}

/// Members that an object has and another one has not.
fn more_of(whole: &Value, known: &Value) -> Map<String, Value> {
    let members = whole.as_object().into_iter().flatten();
    let more = members.filter(|(name, _)| known.get(name).is_none());
    more.map(|(name, value)| (name.clone(), value.clone()))
        .collect()
}

//! Who manages which fields: `metadata.managedFields`, in Kubernetes' format FieldsV1.
//!
//! As on an API server, a manager that changes a field by an update owns it from then on, and whoever owned it before
//! does not any more. Lists are one field each, as those of Kubernetes' custom resources are by default.

use proto_node::meta::{ManagedFieldsEntry, ObjectMeta};
use proto_node::to_json;
use serde_json::{Map, Value};

use crate::object::Object;
use crate::write::Part;

/// Kubernetes' bounds: of a manager's name, and of entries of updates.
const MAX_NAME_CHARACTERS: usize = 128;
const MAX_UPDATES: usize = 10;

/// Who owns what the oldest entries owned, where there are too many.
const ANCIENT: &str = "ancient-changes";

const UPDATE: &str = "Update";

const METADATA: &str = "metadata";

/// Who writes an object.
#[derive(Clone, Copy, Debug)]
pub struct Manager<'a> {
    /// Its name. Empty: nobody whose fields are of interest to others.
    pub name: &'a str,
    /// Part of the object that the manager writes: spec or status.
    pub part: Part,
    /// The time, as RFC 3339 has it.
    pub now: &'a str,
}

/// Whether a manager may have this name; else what is wrong with it, in Kubernetes' words.
///
/// # Errors
/// The rule that is broken.
pub fn check_manager(name: &str) -> Result<(), String> {
    if name.chars().count() > MAX_NAME_CHARACTERS {
        return Err(format!(
            "fieldManager: Too long: may not be more than {MAX_NAME_CHARACTERS} characters"
        ));
    }
    if name.chars().any(char::is_control) {
        return Err(format!(
            "fieldManager: Invalid value: {name:?}: should only contain printable characters"
        ));
    }
    Ok(())
}

/// Notes in a changed object whose fields are whose. What the writer itself said of that does not count.
pub fn manage(before: Option<&Object>, after: &mut Object, manager: &Manager<'_>) {
    let is_managed = before.is_some_and(|before| !before.metadata.managed_fields.is_empty());
    if manager.name.is_empty() && !is_managed {
        after.metadata.managed_fields.clear();
        return;
    }
    let new = Fields::of(after);
    let old = before.map(Fields::of);
    let changed = new.changed_since(old.as_ref());
    let is_there = |name: &str| new.get(name);
    let entries = before.map(|before| before.metadata.managed_fields.clone());
    let mut entries = entries.unwrap_or_default();
    let subresource = match manager.part {
        Part::Main | Part::Live => "",
        Part::Status => "status",
    };
    let is_own = |entry: &ManagedFieldsEntry| {
        entry.operation == UPDATE
            && entry.manager == manager.name
            && entry.api_version == after.api_version
            && entry.subresource == subresource
    };
    let mut own = Map::new();
    entries.retain_mut(|entry| {
        // An entry that cannot be read owns nothing.
        let set = serde_json::from_slice(&entry.fields_v1).unwrap_or_default();
        if is_own(entry) {
            own = still_there(&set, is_there);
            return false;
        }
        let set = still_there(&without(set, &changed), is_there);
        entry.fields_v1 = text_of(&set);
        !set.is_empty()
    });
    add(&mut own, changed);
    if !manager.name.is_empty() && !own.is_empty() {
        entries.push(ManagedFieldsEntry {
            manager: manager.name.to_owned(),
            operation: UPDATE.to_owned(),
            api_version: after.api_version.clone(),
            time: manager.now.to_owned(),
            fields_type: String::from("FieldsV1"),
            fields_v1: text_of(&own),
            subresource: subresource.to_owned(),
        });
    }
    merge_ancient(&mut entries);
    after.metadata.managed_fields = entries;
}

/// A set of fields as JSON text.
fn text_of(set: &Map<String, Value>) -> Vec<u8> {
    serde_json::to_vec(set).expect("a JSON object has a text")
}

/// The fields of an object that somebody may own: some of its metadata, and all others as they stand in it.
struct Fields<'o> {
    metadata: Value,
    content: &'o Map<String, Value>,
}

impl<'o> Fields<'o> {
    fn of(object: &'o Object) -> Self {
        // Field by field: a new field of metadata does not compile before it is decided here whether it has field managers.
        let ObjectMeta {
            generate_name,
            labels,
            annotations,
            owner_references,
            finalizers,
            // The name of the object, and what the server sets.
            name: _,
            namespace: _,
            self_link: _,
            uid: _,
            resource_version: _,
            generation: _,
            creation_timestamp: _,
            deletion_timestamp: _,
            deletion_grace_period_seconds: _,
            managed_fields: _,
        } = &object.metadata;
        let owned = ObjectMeta {
            generate_name: generate_name.clone(),
            labels: labels.clone(),
            annotations: annotations.clone(),
            owner_references: owner_references.clone(),
            finalizers: finalizers.clone(),
            ..ObjectMeta::default()
        };
        Self {
            metadata: to_json(&owned),
            content: &object.content,
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        match name {
            METADATA => Some(&self.metadata),
            name => self.content.get(name),
        }
    }

    /// The set of fields that are there and were not, or had another value.
    fn changed_since(&self, before: Option<&Self>) -> Map<String, Value> {
        let mut set = Map::new();
        let metadata = std::iter::once((METADATA, &self.metadata));
        let content = self.content.iter();
        for (name, value) in metadata.chain(content.map(|(name, value)| (name.as_str(), value))) {
            let before = before.and_then(|before| before.get(name));
            note_changed(&mut set, name, before, value);
        }
        set
    }
}

/// Adds a field to a set, unless it is as it was before.
fn note_changed(set: &mut Map<String, Value>, name: &str, before: Option<&Value>, value: &Value) {
    if before == Some(value) {
        return;
    }
    let mut within = Map::new();
    if let Value::Object(members) = value
        && !members.is_empty()
    {
        let before = before.and_then(Value::as_object);
        for (name, value) in members {
            let before = before.and_then(|before| before.get(name));
            note_changed(&mut within, name, before, value);
        }
        // Members that are gone are nobody's.
        if within.is_empty() {
            return;
        }
    }
    set.insert(format!("f:{name}"), Value::Object(within));
}

/// A set of fields, without those of another.
fn without(mut set: Map<String, Value>, taken: &Map<String, Value>) -> Map<String, Value> {
    set.retain(|name, within| {
        let Some(taken) = taken.get(name).and_then(Value::as_object) else {
            return true;
        };
        match within {
            Value::Object(members) if !members.is_empty() && !taken.is_empty() => {
                *members = without(std::mem::take(members), taken);
                !members.is_empty()
            }
            _ => false,
        }
    });
    set
}

/// A set of fields, without those that are not there any more; `find` finds one.
fn still_there<'o>(
    set: &Map<String, Value>,
    find: impl Fn(&str) -> Option<&'o Value>,
) -> Map<String, Value> {
    let mut left = Map::new();
    for (name, within) in set {
        let value = name.strip_prefix("f:").and_then(&find);
        let (Some(value), Some(members)) = (value, within.as_object()) else {
            continue;
        };
        let kept = match value.as_object() {
            Some(value) if !members.is_empty() => {
                let find: &dyn Fn(&str) -> Option<&'o Value> = &|name| value.get(name);
                let kept = still_there(members, find);
                if kept.is_empty() {
                    continue;
                }
                kept
            }
            _ => Map::new(),
        };
        left.insert(name.clone(), Value::Object(kept));
    }
    left
}

/// Adds fields to a set.
fn add(set: &mut Map<String, Value>, more: Map<String, Value>) {
    for (name, within) in more {
        match (set.get_mut(&name), within) {
            (Some(Value::Object(present)), Value::Object(within)) => add(present, within),
            (_, within) => {
                set.insert(name, within);
            }
        }
    }
}

/// Kubernetes' remedy against a new manager at each write.
fn merge_ancient(entries: &mut Vec<ManagedFieldsEntry>) {
    let updates = entries.iter().filter(|entry| entry.operation == UPDATE);
    let excess = updates.count().saturating_sub(MAX_UPDATES);
    if excess == 0 {
        return;
    }
    // Entries that were written stand last, so the first are the oldest.
    let mut all = Map::new();
    let mut merged = None;
    let mut left = excess + 1;
    entries.retain(|entry| {
        if left == 0 || entry.operation != UPDATE {
            return true;
        }
        left -= 1;
        add(
            &mut all,
            serde_json::from_slice(&entry.fields_v1).unwrap_or_default(),
        );
        merged = Some(entry.clone());
        false
    });
    if let Some(mut entry) = merged {
        ANCIENT.clone_into(&mut entry.manager);
        entry.subresource.clear();
        entry.fields_v1 = text_of(&all);
        entries.insert(0, entry);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Object {
        Object::from_json(value).unwrap()
    }

    fn map(data: Value) -> Object {
        object(json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "web", "labels": {"app": "web"}}, "data": data,
        }))
    }

    fn write(before: Option<&Object>, mut after: Object, name: &str) -> Object {
        let manager = Manager {
            name,
            part: Part::Main,
            now: "2026-01-01T00:00:00Z",
        };
        manage(before, &mut after, &manager);
        after
    }

    fn sets(object: &Object) -> Vec<(String, Value)> {
        let entries = object.metadata.managed_fields.iter();
        entries
            .map(|entry| {
                let set = serde_json::from_slice(&entry.fields_v1).unwrap();
                (entry.manager.clone(), set)
            })
            .collect()
    }

    #[test]
    fn whoever_changes_a_field_owns_it_and_nobody_owns_one_that_is_gone() {
        let first = write(None, map(json!({"a": "1", "b": "1"})), "alice");
        let labels = json!({"f:labels": {"f:app": {}}});
        assert_eq!(
            sets(&first),
            [(
                String::from("alice"),
                json!({"f:metadata": labels, "f:data": {"f:a": {}, "f:b": {}}})
            )]
        );
        let second = write(Some(&first), map(json!({"a": "1", "b": "2"})), "bob");
        assert_eq!(
            sets(&second),
            [
                (
                    String::from("alice"),
                    json!({"f:metadata": labels, "f:data": {"f:a": {}}})
                ),
                (String::from("bob"), json!({"f:data": {"f:b": {}}})),
            ]
        );
        let third = write(Some(&second), map(json!({"a": "1"})), "carol");
        assert_eq!(
            sets(&third),
            [(
                String::from("alice"),
                json!({"f:metadata": labels, "f:data": {"f:a": {}}})
            )]
        );
        let fourth = write(Some(&second), map(json!({"a": "3", "b": "2"})), "");
        let managers: Vec<String> = sets(&fourth).into_iter().map(|(name, _)| name).collect();
        assert_eq!(managers, ["alice", "bob"], "alice still owns the label");
    }

    #[test]
    fn a_hundred_managers_are_ten() {
        let mut present = write(None, map(json!({"k": "0"})), "first");
        for number in 0..100 {
            let mut data = present.content["data"].clone();
            data[format!("k{number}")] = json!("1");
            present = write(Some(&present), map(data), &format!("m{number}"));
        }
        let entries = sets(&present);
        assert_eq!(entries.len(), MAX_UPDATES);
        assert_eq!(entries[0].0, ANCIENT);
        assert_eq!(entries[0].1["f:data"]["f:k3"], json!({}));
        assert_eq!(entries[9].0, "m99");
    }

    #[test]
    fn a_name_of_a_manager_is_short_and_printable() {
        check_manager("kvmctl-edit").unwrap();
        check_manager(&"a".repeat(129)).unwrap_err();
        check_manager("a\nb").unwrap_err();
    }
}

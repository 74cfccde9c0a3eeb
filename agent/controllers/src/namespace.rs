//! Kubernetes' Namespace: one that is being deleted is emptied, and goes when nothing is left in it.

use std::collections::BTreeSet;

use agent_objects::{Kinds, Object, ObjectKind, Part, Preconditions, Scope, Writer};
use serde_json::{Map, Value, json};

use crate::store::{ObjectStore, StoreError};

/// Kind of a namespace.
const NAMESPACE: &str = "Namespace";

/// Kubernetes' finalizer of a namespace that has to be emptied.
const FINALIZER: &str = "kubernetes";

/// Kubernetes' condition of a namespace in which something is left.
const REMAINING: &str = "NamespaceContentRemaining";

/// The controller of namespaces.
#[derive(Debug, Default)]
pub struct Namespaces {
    /// Everything up to this version was read; `None` before the first round.
    seen: Option<u64>,
    /// Namespaces that are being deleted.
    ending: BTreeSet<String>,
    /// Those of them in which something has changed since they were looked at.
    changed: BTreeSet<String>,
}

impl Namespaces {
    /// Notes what has changed.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    pub fn follow(&mut self, store: &impl ObjectStore) -> Result<(), StoreError> {
        let changes = match self.seen {
            Some(seen) => store.changes_after(seen),
            None => Err(StoreError::Expired(String::new())),
        };
        let changes = match changes {
            Ok(changes) => changes,
            Err(StoreError::Expired(_)) => return self.list_all(store),
            Err(error) => return Err(error),
        };
        for change in changes {
            self.seen = Some(change.version);
            let metadata = &change.metadata;
            if change.kind == NAMESPACE && !metadata.deletion_timestamp.is_empty() {
                self.ending.insert(metadata.name.clone());
                self.changed.insert(metadata.name.clone());
            } else if self.ending.contains(&metadata.namespace) {
                self.changed.insert(metadata.namespace.clone());
            }
        }
        Ok(())
    }

    fn list_all(&mut self, store: &impl ObjectStore) -> Result<(), StoreError> {
        let listed = store.list(NAMESPACE, None)?;
        let ending = listed.items.iter().filter(|object| object.is_deleted());
        self.ending = ending.map(|object| object.metadata.name.clone()).collect();
        self.changed.clone_from(&self.ending);
        self.seen = Some(listed.version);
        Ok(())
    }

    /// Whether there is a namespace to work on.
    #[must_use]
    pub fn is_due(&self) -> bool {
        !self.changed.is_empty()
    }

    /// Works on one namespace; false when there is none to work on.
    ///
    /// # Errors
    /// [`StoreError::Unknown`]: the namespace stays due.
    pub fn work(&mut self, store: &impl ObjectStore, date: &str) -> Result<bool, StoreError> {
        let Some(name) = self.changed.pop_first() else {
            return Ok(false);
        };
        let worked = self.work_on(store, &name, date);
        if worked.is_err() {
            self.changed.insert(name);
        }
        worked
    }

    fn work_on(
        &mut self,
        store: &impl ObjectStore,
        name: &str,
        date: &str,
    ) -> Result<bool, StoreError> {
        let listed = store.list(NAMESPACE, None)?;
        let mut namespaces = listed.items.into_iter();
        let present = namespaces.find(|object| object.metadata.name == name);
        let Some(namespace) = present.filter(Object::is_deleted) else {
            self.ending.remove(name);
            return Ok(true);
        };
        let left = empty(store, name)?;
        if let Some(status) = ending_status(&namespace, &left, date) {
            let patch = json!({"status": status});
            write(store, &namespace, Part::Status, &patch)?;
        } else if left.is_empty() {
            let finalizers = namespace.metadata.finalizers.iter();
            let others: Vec<&String> = finalizers.filter(|it| *it != FINALIZER).collect();
            let patch = json!({"metadata": {"finalizers": others}});
            write(store, &namespace, Part::Main, &patch)?;
        }
        Ok(true)
    }
}

/// Deletes what is in a namespace; the answer says what is there still. What the agent writes of its own accord, such as
/// events, goes last.
fn empty(store: &impl ObjectStore, namespace: &str) -> Result<Vec<String>, StoreError> {
    let kinds = Kinds::this_release().all();
    let kinds = kinds.filter(|kind| kind.scope == Scope::Namespaced);
    let (last, first): (Vec<_>, Vec<_>) =
        kinds.partition(|kind| matches!(kind.writer, Writer::Agent));
    let left = delete_all(store, namespace, &first)?;
    if left.is_empty() {
        delete_all(store, namespace, &last)
    } else {
        Ok(left)
    }
}

fn delete_all(
    store: &impl ObjectStore,
    namespace: &str,
    kinds: &[&'static ObjectKind],
) -> Result<Vec<String>, StoreError> {
    let mut left = Vec::new();
    for kind in kinds {
        let listed = match store.list_heads(kind.kind, namespace) {
            Ok(listed) => listed,
            // The others go meanwhile.
            Err(StoreError::Unknown(why)) => {
                left.push(format!("{} cannot be listed: {why}", kind.plural));
                continue;
            }
            Err(error) => return Err(error),
        };
        for object in listed.items.iter().filter(|object| !object.is_deleted()) {
            match store.delete(&object.id(), &Preconditions::same(&object.metadata)) {
                Ok(()) | Err(StoreError::NotFound(_) | StoreError::Conflict(_)) => {}
                // It belongs to somebody who keeps it; the condition says that it remains.
                Err(StoreError::Refused(_)) => {}
                Err(error) => return Err(error),
            }
        }
        let remaining = store.list_heads(kind.kind, namespace)?.items.len();
        if remaining > 0 {
            let kind = kind.plural;
            left.push(format!("{kind} has {remaining} resource instances"));
        }
    }
    Ok(left)
}

/// The status of a namespace that ends, where it is not as it should be.
fn ending_status(namespace: &Object, left: &[String], date: &str) -> Option<Value> {
    let present = namespace.at(&["status"]).cloned().unwrap_or_default();
    let conditions = namespace.at(&["status", "conditions"]);
    let mut conditions = conditions.and_then(Value::as_array).into_iter().flatten();
    let known = conditions.find(|condition| condition["type"] == REMAINING);
    let (is_remaining, reason, message) = if left.is_empty() {
        let text = "All content successfully removed";
        ("False", "ContentRemoved", text.to_owned())
    } else {
        let text = format!("Some resources are remaining: {}", left.join(", "));
        ("True", "SomeResourcesRemain", text)
    };
    if left.is_empty() && known.is_none() && present["phase"] == "Terminating" {
        return None;
    }
    let since = known.filter(|known| known["status"] == is_remaining);
    let since = since.and_then(|known| known["lastTransitionTime"].as_str());
    let condition = json!({
        "type": REMAINING, "status": is_remaining,
        "lastTransitionTime": since.unwrap_or(date), "reason": reason, "message": message,
    });
    let mut status = Map::new();
    status.insert(String::from("phase"), "Terminating".into());
    status.insert(String::from("conditions"), json!([condition]));
    let status = Value::Object(status);
    (status != present).then_some(status)
}

fn write(
    store: &impl ObjectStore,
    namespace: &Object,
    part: Part,
    patch: &Value,
) -> Result<(), StoreError> {
    let exactly = Preconditions::exactly(&namespace.metadata);
    match store.patch(&namespace.id(), part, patch, &exactly) {
        // It changed meanwhile: that change has it looked at again.
        Ok(_) | Err(StoreError::Conflict(_) | StoreError::NotFound(_)) => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ending(status: Value) -> Object {
        let value = json!({
            "apiVersion": "v1", "kind": NAMESPACE,
            "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": status,
        });
        Object::from_json(value).expect("a namespace")
    }

    #[test]
    fn a_namespace_says_what_remains_and_since_when() {
        let [two, one] = [2, 1].map(|count| [format!("secrets has {count} resource instances")]);
        let first = ending(json!({"phase": "Active"}));
        let said = ending_status(&first, &two, "t1").expect("a change");
        assert_eq!(said["phase"], "Terminating");
        let condition = &said["conditions"][0];
        let message = "Some resources are remaining: secrets has 2 resource instances";
        assert_eq!(condition["message"], message);
        let second = ending(said);
        assert_eq!(ending_status(&second, &two, "t2"), None);
        let fewer = ending_status(&second, &one, "t2").expect("a change");
        assert_eq!(fewer["conditions"][0]["lastTransitionTime"], "t1");
        let none = ending_status(&second, &[], "t2").expect("a change");
        assert_eq!(none["conditions"][0]["lastTransitionTime"], "t2");
        assert_eq!(ending_status(&ending(none), &[], "t3"), None);
    }
}

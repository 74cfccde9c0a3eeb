//! Which objects go because their owners are gone.

use std::collections::BTreeMap;

use proto_node::meta::{ObjectMeta, OwnerReference};
use serde_json::{Value, json};

use crate::object::Object;
use crate::write::{ORPHAN_FINALIZER, Part, Preconditions, Write};

/// What to do about objects whose owners are gone or going, given all objects there are.
///
/// An owner that is not there may live in another store, so its absence needs proof: `is_gone` answers for uids of
/// objects that were there and are not. One pass deletes at most what depends on objects that are gone already; what it
/// deletes has its own dependents collected by the next, so cycles end.
#[must_use]
pub fn collect<'a>(
    objects: impl IntoIterator<Item = &'a Object>,
    is_gone: impl Fn(&str) -> bool,
) -> Vec<Write> {
    let objects: Vec<&Object> = objects.into_iter().collect();
    let present: BTreeMap<&str, &Object> = objects
        .iter()
        .map(|object| (object.metadata.uid.as_str(), *object))
        .collect();
    let standing = |owner: &OwnerReference| match present.get(owner.uid.as_str()) {
        Some(owner) if is_orphaning(&owner.metadata) => Standing::LetsGo,
        Some(_) => Standing::Owns,
        None if is_gone(&owner.uid) => Standing::Absent,
        None => Standing::Owns,
    };
    let mut writes = Vec::new();
    let mut still_owned: Vec<&str> = Vec::new();
    for object in &objects {
        let owners = &object.metadata.owner_references;
        let mut left = Vec::new();
        let mut let_go = false;
        for owner in owners {
            match standing(owner) {
                Standing::Owns => left.push(owner),
                Standing::Absent => {}
                Standing::LetsGo => {
                    let_go = true;
                    still_owned.push(&owner.uid);
                }
            }
        }
        if left.len() == owners.len() {
            continue;
        }
        if left.is_empty() && !let_go {
            if !object.is_deleted() {
                writes.push(Write::Delete {
                    id: object.id(),
                    preconditions: Preconditions::exactly(&object.metadata),
                });
            }
        } else {
            writes.push(without_owners(object, &left));
        }
    }
    // An owner goes once nothing refers to it any more.
    for object in objects {
        let is_free = !still_owned.contains(&object.metadata.uid.as_str());
        if is_orphaning(&object.metadata) && is_free {
            writes.push(without_finalizer(object));
        }
    }
    writes
}

/// How an owner stands to its dependent.
enum Standing {
    /// It is there, or may be elsewhere.
    Owns,
    /// It is gone for certain.
    Absent,
    /// It is being deleted, and its dependents are to stay.
    LetsGo,
}

fn is_orphaning(metadata: &ObjectMeta) -> bool {
    let mut finalizers = metadata.finalizers.iter();
    !metadata.deletion_timestamp.is_empty() && finalizers.any(|name| name == ORPHAN_FINALIZER)
}

fn without_owners(object: &Object, left: &[&OwnerReference]) -> Write {
    let left: Vec<Value> = left
        .iter()
        .map(|owner| proto_node::to_json(*owner))
        .collect();
    let left = if left.is_empty() {
        Value::Null
    } else {
        Value::Array(left)
    };
    Write::Patch {
        id: object.id(),
        part: Part::Main,
        patch: json!({"metadata": {"ownerReferences": left}}),
        preconditions: Preconditions::exactly(&object.metadata),
    }
}

fn without_finalizer(object: &Object) -> Write {
    let finalizers = object.metadata.finalizers.iter();
    let left: Vec<&String> = finalizers
        .filter(|name| *name != ORPHAN_FINALIZER)
        .collect();
    Write::Patch {
        id: object.id(),
        part: Part::Main,
        patch: json!({"metadata": {"finalizers": left}}),
        preconditions: Preconditions::exactly(&object.metadata),
    }
}

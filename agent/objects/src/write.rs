//! What a write does to one object.

use agent_domain::{FieldError, Rule, check_metadata, generated_name};
use proto_node::meta::ObjectMeta;
use proto_node::to_json;
use serde_json::Value;

use crate::kind::table::Kinds;
use crate::kind::{ObjectKind, Scope};
use crate::live::with_live;
use crate::object::{Object, ObjectId};
use crate::patch::merge_patch;
use crate::refusal::Refusal;

/// Kubernetes' finalizer of an object whose dependents are to stay when it goes.
pub const ORPHAN_FINALIZER: &str = "orphan";

/// What must hold for a write. Empty: anything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preconditions {
    /// The object's uid.
    pub uid: String,
    /// The object's version.
    pub resource_version: String,
}

/// The part of an object that a write can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Everything but the status, where that is written apart.
    Main,
    /// The status alone.
    Status,
    /// States of a guest's interfaces and where it may run, the only parts of its spec that may change. For controllers
    /// alone: callers of the service may change nothing of the spec, as under KubeVirt.
    Live,
}

/// Whether the objects that a deleted object owns are deleted too, and when.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Propagation {
    /// They are deleted after it.
    #[default]
    Background,
    /// They stay, without it as their owner.
    Orphan,
}

/// A write that a controller or the collector of garbage wants. Carrying one out twice does nothing the second time.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// Make an object. Its name is given, so that a repeated write finds the first.
    Create(Box<Object>),
    /// Change one by a merge patch.
    Patch {
        /// Kind, namespace and name of the object.
        id: ObjectId,
        /// The object itself or its status: a patch keeps to one of them.
        part: Part,
        /// A JSON merge patch (RFC 7386).
        patch: Value,
        /// A uid or version that the object must have, or the write is a conflict.
        preconditions: Preconditions,
    },
    /// Delete one.
    Delete {
        /// Kind, namespace and name of the object.
        id: ObjectId,
        /// A uid or version that the object must have, or the write is a conflict.
        preconditions: Preconditions,
    },
}

/// What a new object is given.
#[derive(Clone, Copy, Debug)]
pub struct Given<'a> {
    /// An identity that no object has had before.
    pub uid: &'a str,
    /// The time, as RFC 3339 has it.
    pub now: &'a str,
    /// What completes `generateName`.
    pub suffix: &'a str,
}

/// What a write comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Written {
    /// The object is as it should be.
    Unchanged,
    /// The object is to be stored.
    Changed(Object),
    /// The object is to be removed; its last state.
    Gone(Object),
}

impl Preconditions {
    /// That the object is this one, at this version.
    #[must_use]
    pub fn exactly(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone(),
            resource_version: metadata.resource_version.clone(),
        }
    }

    /// That the object is this one, at any version.
    #[must_use]
    pub fn same(metadata: &ObjectMeta) -> Self {
        Self {
            uid: metadata.uid.clone(),
            resource_version: String::new(),
        }
    }

    /// Refuses another object, or another version of it.
    ///
    /// # Errors
    /// [`Refusal::Conflict`].
    pub fn check(&self, present: &ObjectMeta) -> Result<(), Refusal> {
        if !self.uid.is_empty() && self.uid != present.uid {
            return Err(Refusal::Conflict(format!(
                "{:?} has uid {}, not {}",
                present.name, present.uid, self.uid
            )));
        }
        let version = &present.resource_version;
        if !self.resource_version.is_empty() && self.resource_version != *version {
            return Err(Refusal::Conflict(format!(
                "{:?} is at version {version}, not {}: get it again and repeat the change",
                present.name, self.resource_version
            )));
        }
        Ok(())
    }
}

/// A new object as it is to be admitted. Server fields and the status are not the caller's to give.
///
/// # Errors
/// [`Refusal::Invalid`].
pub fn create(kind: &ObjectKind, mut object: Object, given: &Given<'_>) -> Result<Object, Refusal> {
    let metadata = &mut object.metadata;
    if !metadata.resource_version.is_empty() {
        return Err(invalid(
            "metadata.resourceVersion",
            "resourceVersion should not be set on objects to be created",
        ));
    }
    if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
        metadata.name = generated_name(&metadata.generate_name, given.suffix);
    }
    given.uid.clone_into(&mut metadata.uid);
    metadata.generation = 1;
    given.now.clone_into(&mut metadata.creation_timestamp);
    metadata.deletion_timestamp.clear();
    metadata.deletion_grace_period_seconds = None;
    metadata.self_link.clear();
    metadata.managed_fields.clear();
    if let Some(finalizer) = kind.finalizer
        && !metadata.finalizers.iter().any(|given| given == finalizer)
    {
        metadata.finalizers.push(finalizer.to_owned());
    }
    if kind.has_status {
        object.content.shift_remove("status");
    }
    check(kind, &mut object)?;
    Ok(object)
}

/// What an object comes to when it is to be as `offered`. Whatever is not of the written part stays as it is.
///
/// # Errors
/// [`Refusal::Conflict`] when uid or version of the offered object are given and others, [`Refusal::Invalid`].
pub fn update(
    kind: &ObjectKind,
    present: &Object,
    offered: Object,
    part: Part,
) -> Result<Written, Refusal> {
    Preconditions::exactly(&offered.metadata).check(&present.metadata)?;
    let mut object = match part {
        Part::Main => with_main(kind, present, offered),
        Part::Status => with_status(kind, present, offered)?,
        Part::Live => with_live(present, &offered),
    };
    for member in kind.frozen.iter().filter(|_| part != Part::Live) {
        if object.content.get(*member) != present.content.get(*member) {
            return Err(immutable(kind, member, &present.metadata.name));
        }
    }
    check_finalizers(&present.metadata, &object.metadata)?;
    if is_same(&object, present) {
        return Ok(Written::Unchanged);
    }
    check(kind, &mut object)?;
    if spec_of(kind, &object) != spec_of(kind, present) {
        object.metadata.generation = present.metadata.generation.saturating_add(1);
    }
    Ok(
        if object.is_deleted() && object.metadata.finalizers.is_empty() {
            Written::Gone(object)
        } else {
            Written::Changed(object)
        },
    )
}

/// The object that a merge patch offers, for [`update`].
///
/// # Errors
/// [`Refusal::Conflict`], [`Refusal::Malformed`] when the patched object does not have the form of its kind,
/// [`Refusal::Invalid`] when it would have another name.
pub fn patched(
    (kinds, kind): (&Kinds, &ObjectKind),
    present: &Object,
    patch: &Value,
    preconditions: &Preconditions,
) -> Result<Object, Refusal> {
    preconditions.check(&present.metadata)?;
    let mut value = present.to_json();
    merge_patch(&mut value, patch);
    let offered = kinds.read_as(kind, value)?;
    if offered.metadata.name != present.metadata.name
        || offered.metadata.namespace != present.metadata.namespace
    {
        return Err(invalid("metadata.name", "field is immutable"));
    }
    Ok(offered)
}

/// What an object comes to when it is deleted. With finalizers it is marked; a second delete changes nothing but how it
/// goes on with what it owns.
///
/// # Errors
/// [`Refusal::Conflict`], [`Refusal::Forbidden`] for an object that its kind never loses.
pub fn delete(
    kind: &ObjectKind,
    present: &Object,
    (preconditions, propagation): (&Preconditions, Propagation),
    now: &str,
) -> Result<Written, Refusal> {
    preconditions.check(&present.metadata)?;
    let name = &present.metadata.name;
    if kind.undeletable.contains(&name.as_str()) {
        let (plural, singular) = (kind.plural, kind.singular);
        return Err(Refusal::Forbidden(format!(
            "{plural} {name:?} is forbidden: this {singular} may not be deleted"
        )));
    }
    let mut object = present.clone();
    propagate(&mut object.metadata, propagation);
    let is_final = object.metadata.finalizers.is_empty();
    if object.metadata.deletion_timestamp.is_empty() {
        now.clone_into(&mut object.metadata.deletion_timestamp);
        object.metadata.deletion_grace_period_seconds = Some(0);
        object.metadata.generation = object.metadata.generation.saturating_add(1);
    }
    Ok(if is_final {
        Written::Gone(object)
    } else if object == *present {
        Written::Unchanged
    } else {
        Written::Changed(object)
    })
}

/// Notes on an object that is deleted what becomes of what it owns; true when that was not noted before.
pub fn propagate(metadata: &mut ObjectMeta, propagation: Propagation) -> bool {
    let before = metadata.finalizers.clone();
    let finalizers = &mut metadata.finalizers;
    finalizers.retain(|finalizer| finalizer != ORPHAN_FINALIZER);
    if propagation == Propagation::Orphan {
        finalizers.push(ORPHAN_FINALIZER.to_owned());
    }
    *finalizers != before
}

/// The offered object, with all that only the server sets as it is present.
fn with_main(kind: &ObjectKind, present: &Object, mut offered: Object) -> Object {
    let (metadata, before) = (&mut offered.metadata, &present.metadata);
    metadata.uid.clone_from(&before.uid);
    metadata
        .resource_version
        .clone_from(&before.resource_version);
    metadata.generation = before.generation;
    metadata
        .creation_timestamp
        .clone_from(&before.creation_timestamp);
    metadata
        .deletion_timestamp
        .clone_from(&before.deletion_timestamp);
    metadata.deletion_grace_period_seconds = before.deletion_grace_period_seconds;
    metadata.generate_name.clone_from(&before.generate_name);
    metadata.self_link.clone_from(&before.self_link);
    metadata.managed_fields.clone_from(&before.managed_fields);
    if kind.has_status {
        offered.content.shift_remove("status");
        if let Some(status) = present.content.get("status") {
            offered
                .content
                .insert(String::from("status"), status.clone());
        }
    }
    offered
}

/// The present object with the offered status.
fn with_status(
    kind: &ObjectKind,
    present: &Object,
    mut offered: Object,
) -> Result<Object, Refusal> {
    if !kind.has_status {
        let text = format!("{} has no status that is written apart", kind.kind);
        return Err(Refusal::Forbidden(text));
    }
    let mut object = present.clone();
    match offered.content.shift_remove("status") {
        Some(status) => {
            object.content.insert(String::from("status"), status);
        }
        None => {
            object.content.shift_remove("status");
        }
    }
    Ok(object)
}

/// Whether two objects are the same to whoever reads them: what is empty is as good as left out.
fn is_same(one: &Object, other: &Object) -> bool {
    one.api_version == other.api_version
        && one.kind == other.kind
        && one.content == other.content
        && one.unknown_metadata == other.unknown_metadata
        && (one.metadata == other.metadata || to_json(&one.metadata) == to_json(&other.metadata))
}

/// Everything whose change counts as a generation.
fn spec_of(kind: &ObjectKind, object: &Object) -> serde_json::Map<String, Value> {
    let mut content = object.content.clone();
    if kind.has_status {
        content.shift_remove("status");
    }
    content
}

fn check(kind: &ObjectKind, object: &mut Object) -> Result<(), Refusal> {
    let mut errors = match kind.scope {
        Scope::Namespaced => check_metadata(&mut object.metadata),
        Scope::Cluster => {
            let mut errors = Vec::new();
            if !object.metadata.namespace.is_empty() {
                errors.push(FieldError::new(
                    "metadata.namespace",
                    Rule::Forbidden,
                    "objects of this kind live in no namespace",
                ));
            }
            errors.extend(check_metadata(&mut object.metadata.clone()));
            errors
        }
    };
    let mut controllers = object.metadata.owner_references.iter();
    if controllers
        .by_ref()
        .filter(|owner| owner.controller == Some(true))
        .count()
        > 1
    {
        errors.push(FieldError::new(
            "metadata.ownerReferences",
            Rule::Invalid,
            "Only one reference can have Controller set to true",
        ));
    }
    if errors.is_empty() {
        Ok(())
    } else {
        Err(Refusal::Invalid(errors))
    }
}

/// An object that is being deleted gets no further finalizers.
fn check_finalizers(before: &ObjectMeta, after: &ObjectMeta) -> Result<(), Refusal> {
    let mut finalizers = after.finalizers.iter();
    let is_new = |finalizer: &String| !before.finalizers.contains(finalizer);
    if !before.deletion_timestamp.is_empty() && finalizers.any(is_new) {
        return Err(invalid(
            "metadata.finalizers",
            "no new finalizers can be added if the object is being deleted",
        ));
    }
    Ok(())
}

/// A member is other than when the object was made.
fn immutable(kind: &ObjectKind, member: &str, name: &str) -> Refusal {
    match kind.frozen_words {
        None => invalid(member, "field is immutable"),
        Some(words) => {
            let error = FieldError::new(member, Rule::Forbidden, words);
            Refusal::Invalid(vec![error.fix(format!("delete {name} and apply again"))])
        }
    }
}

fn invalid(path: &str, message: &str) -> Refusal {
    Refusal::Invalid(vec![FieldError::new(path, Rule::Invalid, message)])
}

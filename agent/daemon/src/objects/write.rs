//! Writes of objects of any kind: what is decided by [`agent_objects`] is stored in one transaction.

use agent_domain::name_suffix;
use agent_objects::{
    AdmitContext, Given, Kinds, Manager, Object, ObjectId, ObjectKind, Part, Writer, Written,
    applied, create, delete, manage, patched, update,
};
use agent_sources::{
    ApiError, Delete, Kind, ObjectDelete, ObjectPatch, ObjectRef, ObjectScale, ObjectWritten,
    WriteBy,
};
use agent_store::{StoredObject, Transaction};
use serde_json::{Value, json};

use super::attempts::{ATTEMPTS, changed_too_often};
use super::companion::Companion;
use super::guests::{in_stored_form, legible};
use super::inputs::Inputs;
use super::namespace::{self, check_open};
use super::rows::Extent;
use super::{Objects, key, kind_of, not_found, refused};
use crate::clock;
use crate::error::{WriteError, store};
use crate::generated_name::Attempts;
use crate::object::FINALIZER;
use crate::object_source::{self, OWN_ANNOTATIONS};
use crate::uid::new_uid;

/// What a write comes to.
pub(super) struct Decision {
    pub(super) written: Written,
    pub(super) created: bool,
    pub(super) warnings: Vec<String>,
    /// What else was looked at.
    pub(super) inputs: Inputs,
}

/// On what a write was decided.
struct Decided {
    kind: &'static ObjectKind,
    id: ObjectId,
    /// The version of the object that was there.
    before: Option<u64>,
    /// How much of it is known.
    extent: Extent,
    /// Other objects that were looked at.
    inputs: Inputs,
    idempotency_key: String,
    /// What is stored with it.
    companions: Vec<Companion>,
}

impl Objects {
    pub(super) async fn create_any(
        &self,
        mut object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        match kind.writer {
            Writer::Guests => return self.create_guest(object, None, by),
            Writer::Agent => return Err(agent_only(kind)),
            Writer::Objects(_) => object_source::set_source(&mut object.metadata, &by.source),
        }
        if let Some(written) = self.repeated_write(kind, &object, by)? {
            return Ok(written);
        }
        let mut attempts = Attempts::of(&object.metadata);
        loop {
            let answer = self.create_new(kind, object.clone(), by).await;
            if !attempts.go_on(&answer) {
                return answer;
            }
        }
    }

    async fn create_new(
        &self,
        kind: &'static ObjectKind,
        object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let object = self.new_object(kind, object)?;
        let id = object.id();
        let decide = |present| match present {
            Some(_) => Err(already_exists(kind, &object.metadata.name)),
            None => self.admitted(kind, object.clone()),
        };
        if !by.dry_run {
            // There is hardly ever an object of that name, and the transaction looks in any case.
            let absent = (None, None, Extent::Whole);
            let stored = self
                .decide_and_store(kind, (&id, Part::Main), by, absent, &decide)
                .await?;
            if let Some(written) = stored {
                return Ok(written);
            }
        }
        self.change(kind, (&id, Part::Main), by, decide).await
    }

    pub(super) async fn apply_three_way(
        &self,
        mut object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        match kind.writer {
            Writer::Guests => return self.apply_guest(kind, object, by).await,
            Writer::Agent => return Err(agent_only(kind)),
            Writer::Objects(_) => {}
        }
        if object.metadata.name.is_empty() {
            // Its name is made with it: there is nothing to merge with.
            let first = self.read_as(kind, applied(object, None))?;
            return self.create_any(first, by).await;
        }
        object_source::set_source(&mut object.metadata, &by.source);
        if let Some(written) = self.repeated_write(kind, &object, by)? {
            return Ok(written);
        }
        self.change(kind, (&object.id(), Part::Main), by, |present| {
            let value = applied(object.clone(), present.as_ref());
            let offered = self.read_as(kind, value)?;
            match present {
                Some(present) => self.updated(kind, &present, offered, Part::Main, by),
                None => self.admitted(kind, self.new_object(kind, offered)?),
            }
        })
        .await
    }

    pub(super) async fn patch_any(
        &self,
        wanted: &ObjectPatch,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&wanted.id.kind)?;
        if matches!(kind.writer, Writer::Agent) {
            return Err(agent_only(kind));
        }
        let object = (&wanted.id, wanted.part, extent_of(&wanted.patch));
        self.change_as_far(kind, object, by, |present| {
            let present = present.ok_or_else(|| not_found(kind, &wanted.id))?;
            let kinds = (Kinds::this_release(), kind);
            let offered = patched(kinds, &present, &wanted.patch, &wanted.preconditions);
            let offered = offered.map_err(|error| refused(kind, &wanted.id.name, error))?;
            self.updated(kind, &present, offered, wanted.part, by)
        })
        .await
    }

    pub(super) async fn scale_any(
        &self,
        wanted: &ObjectScale,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&wanted.id.kind)?;
        let Some(scale) = kind.scale else {
            return Err(ApiError::BadRequest(format!(
                "a {} has no scale",
                kind.kind
            )));
        };
        // The path is one of plain members.
        let members = scale.spec_replicas.trim_start_matches('.').rsplit('.');
        let patch = members.fold(
            json!(wanted.replicas),
            |value, member| json!({member: value}),
        );
        let patch = ObjectPatch {
            id: wanted.id.clone(),
            part: Part::Main,
            patch,
            preconditions: wanted.preconditions.clone(),
        };
        self.patch_any(&patch, by).await
    }

    pub(super) async fn replace_any(
        &self,
        object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        if matches!(kind.writer, Writer::Agent) {
            return Err(agent_only(kind));
        }
        let id = object.id();
        self.change(kind, (&id, Part::Main), by, |present| {
            let present = present.ok_or_else(|| not_found(kind, &id))?;
            self.updated(kind, &present, object.clone(), Part::Main, by)
        })
        .await
    }

    pub(super) async fn delete_any(
        &self,
        wanted: &ObjectDelete,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&wanted.id.kind)?;
        if !matches!(kind.writer, Writer::Objects(_)) {
            return self.delete_other(kind, wanted, by);
        }
        // What is encrypted goes unread: its key may be lost.
        let object = (&wanted.id, Part::Main, Extent::Head);
        self.change_as_far(kind, object, by, |present| {
            let present = present.ok_or_else(|| not_found(kind, &wanted.id))?;
            let control_plane = self.control_planes.dialled();
            object_source::check_delete((kind.kind, &present.metadata), &by.source, control_plane)?;
            let now = clock::rfc3339(clock::now());
            let how = (&wanted.preconditions, wanted.propagation);
            let written = delete(kind, &present, how, &now);
            Ok(Decision {
                written: written.map_err(|error| refused(kind, &wanted.id.name, error))?,
                created: false,
                warnings: Vec::new(),
                inputs: Inputs::default(),
            })
        })
        .await
    }

    /// Objects that the agent has a path of its own for.
    fn delete_other(
        &self,
        kind: &ObjectKind,
        wanted: &ObjectDelete,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let served = Kind::parse(kind.kind).ok_or_else(|| agent_only(kind))?;
        let deleted = self.delete_object(&Delete {
            target: ObjectRef {
                kind: served,
                namespace: wanted.id.namespace.clone(),
                name: wanted.id.name.clone(),
            },
            grace_period_seconds: wanted.grace_period_seconds,
            uid: wanted.preconditions.uid.clone(),
            resource_version: wanted.preconditions.resource_version.clone(),
            by: by.source.clone(),
            propagation: Some(wanted.propagation),
            dry_run: by.dry_run,
        })?;
        Ok(ObjectWritten {
            object: self.read_as(kind, deleted.object.to_json())?,
            created: false,
            changed: true,
            gone: deleted.gone,
            warnings: Vec::new(),
        })
    }

    /// An object with what the server gives it.
    pub(super) fn new_object(&self, kind: &ObjectKind, object: Object) -> Result<Object, ApiError> {
        let name = object.metadata.name.clone();
        let uid = new_uid();
        let given = Given {
            uid: &uid,
            now: &clock::rfc3339(clock::now()),
            suffix: &name_suffix(&[&uid]),
        };
        create(kind, object, &given).map_err(|error| refused(kind, &name, error))
    }

    /// A new object, if its kind admits it.
    pub(super) fn admitted(
        &self,
        kind: &ObjectKind,
        mut object: Object,
    ) -> Result<Decision, ApiError> {
        let (warnings, inputs) = self.admit(kind, &mut object, None)?;
        Ok(Decision {
            written: Written::Changed(object),
            created: true,
            warnings,
            inputs,
        })
    }

    /// What an object comes to that is there already.
    pub(super) fn updated(
        &self,
        kind: &ObjectKind,
        present: &Object,
        mut offered: Object,
        part: Part,
        by: &WriteBy,
    ) -> Result<Decision, ApiError> {
        object_source::check_change(kind.kind, &present.metadata, &by.source)?;
        if part == Part::Status && matches!(kind.writer, Writer::Guests) {
            let text = format!("the status of a {} is what its guest is", kind.kind);
            return Err(ApiError::Forbidden(text));
        }
        keep_own(&mut offered, present);
        let (mut warnings, mut inputs) = (Vec::new(), Inputs::default());
        if part == Part::Main && matches!(kind.writer, Writer::Guests) {
            (offered, warnings) = in_stored_form(kind, present, offered)?;
        }
        let written = update(kind, present, offered, part);
        let mut written = written.map_err(|error| refused(kind, &present.metadata.name, error))?;
        if let (Written::Changed(object), Part::Main | Part::Live) = (&mut written, part)
            && is_judged_anew(kind, present, object)
        {
            let more;
            (more, inputs) = self.admit(kind, object, Some(present))?;
            warnings.extend(more);
        }
        Ok(Decision {
            written,
            created: false,
            warnings,
            inputs,
        })
    }

    /// Judges an object by its kind's own rules; the answer is advice, and what else was looked at.
    fn admit(
        &self,
        kind: &ObjectKind,
        object: &mut Object,
        before: Option<&Object>,
    ) -> Result<(Vec<String>, Inputs), ApiError> {
        let caps = || self.node.caps();
        let (admission, inputs) = match kind.writer {
            Writer::Objects(_) => self.with_find(|find| {
                let context = AdmitContext {
                    caps: Some(&caps),
                    before,
                    find,
                    finds_all: true,
                };
                kind.admit(object, &context).unwrap_or_default()
            })?,
            // What is stored must be legible to the guest's actor: its annotations count, too.
            Writer::Guests => (legible(kind, object)?, Inputs::default()),
            Writer::Agent => return Err(agent_only(kind)),
        };
        if admission.errors.is_empty() {
            return Ok((admission.warnings, inputs));
        }
        Err(ApiError::Invalid {
            kind: kind.kind,
            name: object.metadata.name.clone(),
            errors: admission.errors,
        })
    }

    pub(super) fn read_as(&self, kind: &ObjectKind, value: Value) -> Result<Object, ApiError> {
        let read = Kinds::this_release().read_as(kind, value);
        read.map_err(|error| refused(kind, "", error))
    }

    /// Decides on what is there, and stores it unless the write is only judged. Nobody waits for the decision: it is
    /// made outside of the transaction, which starts over when what it was made on has changed meanwhile.
    pub(super) async fn change(
        &self,
        kind: &'static ObjectKind,
        (id, part): (&ObjectId, Part),
        by: &WriteBy,
        decide: impl Fn(Option<Object>) -> Result<Decision, ApiError> + Send + Sync,
    ) -> Result<ObjectWritten, ApiError> {
        let object = (id, part, Extent::Whole);
        self.change_as_far(kind, object, by, decide).await
    }

    /// The same of a write that needs so much of the object that is there.
    async fn change_as_far(
        &self,
        kind: &'static ObjectKind,
        (id, part, needed): (&ObjectId, Part, Extent),
        by: &WriteBy,
        decide: impl Fn(Option<Object>) -> Result<Decision, ApiError> + Send + Sync,
    ) -> Result<ObjectWritten, ApiError> {
        let key = key(id);
        let space = namespace::key_of(&id.namespace);
        for _ in 0..ATTEMPTS {
            let (row, space) = self.store.ledger().object_or(&key, &space).map_err(store)?;
            check_open(space.as_ref(), (kind.plural, id))?;
            let read = row.as_ref().map(|row| self.read_as_far(kind, row, needed));
            let (present, extent) = read.transpose()?.unzip();
            let present = (row.as_ref(), present, extent.unwrap_or(Extent::Whole));
            let stored = self
                .decide_and_store(kind, (id, part), by, present, &decide)
                .await?;
            if let Some(written) = stored {
                return Ok(written);
            }
        }
        Err(changed_too_often(id))
    }

    /// Decides on an object that is there, as its row, as it is read and how far, and stores what was decided; nothing when
    /// the object has changed meanwhile.
    async fn decide_and_store(
        &self,
        kind: &'static ObjectKind,
        (id, part): (&ObjectId, Part),
        by: &WriteBy,
        (row, present, extent): (Option<&StoredObject>, Option<Object>, Extent),
        decide: &(impl Fn(Option<Object>) -> Result<Decision, ApiError> + Send + Sync),
    ) -> Result<Option<ObjectWritten>, ApiError> {
        let mut decision = decide(present.clone())?;
        if let (Written::Changed(object), Extent::Whole) = (&mut decision.written, extent) {
            let manager = Manager {
                name: &by.manager,
                part,
                now: &clock::rfc3339(clock::now()),
            };
            manage(present.as_ref(), object, &manager);
        }
        if by.dry_run {
            self.check_storable(kind, (row, extent), &decision.written)?;
            return Ok(Some(written(decision, present)));
        }
        if matches!(decision.written, Written::Unchanged) {
            return Ok(Some(written(decision, present)));
        }
        let mut inputs = std::mem::take(&mut decision.inputs);
        let companions = match (&present, &mut decision.written) {
            (None, Written::Changed(object)) => {
                let (companions, more) = self.companions(kind, object)?;
                inputs.extend(more);
                companions
            }
            _ => Vec::new(),
        };
        let wanted = Decided {
            kind,
            id: id.clone(),
            before: version_of(row),
            extent,
            inputs,
            idempotency_key: by.idempotency_key.clone(),
            companions,
        };
        let objects = self.clone();
        let store = move |transaction: &mut Transaction<'_>| {
            objects.store_decided(transaction, &wanted, (decision, present))
        };
        let woken = self.clone();
        let wake = move |written: &Option<ObjectWritten>| {
            if let Some(written) = written {
                woken.actors.wake(&written.object.metadata.uid);
            }
        };
        Ok(self.store.write_shared(store, wake).await?)
    }

    /// Refuses what could not be stored, such as a Secret without the key to encrypt it.
    fn check_storable(
        &self,
        kind: &ObjectKind,
        (present, extent): (Option<&StoredObject>, Extent),
        written: &Written,
    ) -> Result<(), ApiError> {
        if let Written::Changed(object) | Written::Gone(object) = written {
            self.row_of(kind, present, (object, extent), object.version())?;
        }
        Ok(())
    }

    /// Stores what was decided; nothing when what that was decided on has changed meanwhile.
    fn store_decided(
        &self,
        transaction: &mut Transaction<'_>,
        wanted: &Decided,
        (mut decision, present): (Decision, Option<Object>),
    ) -> Result<Option<ObjectWritten>, WriteError> {
        let Decided { kind, id, .. } = wanted;
        let now = transaction.object(&key(id))?;
        if version_of(now.as_ref()) != wanted.before || !wanted.inputs.are_current(transaction)? {
            return Ok(None);
        }
        if now.is_none() {
            let space = transaction.object(&namespace::key_of(&id.namespace))?;
            check_open(space.as_ref(), (kind.plural, id))?;
        }
        let before = (now.as_ref(), wanted.extent);
        self.store_written(transaction, kind, before, &mut decision.written)?;
        for companion in &wanted.companions {
            self.store_companion(transaction, companion)?;
        }
        let written = written(decision, present);
        if written.created && !wanted.idempotency_key.is_empty() {
            let uid = &written.object.metadata.uid;
            transaction.put_idempotency_key(&wanted.idempotency_key, uid)?;
        }
        Ok(Some(written))
    }

    /// Stores what was decided, and gives it its version.
    pub(super) fn store_written(
        &self,
        transaction: &mut Transaction<'_>,
        kind: &ObjectKind,
        (present, extent): (Option<&StoredObject>, Extent),
        written: &mut Written,
    ) -> Result<(), WriteError> {
        let is_gone = matches!(written, Written::Gone(_));
        let (Written::Changed(object) | Written::Gone(object)) = written else {
            return Ok(());
        };
        let version = transaction.next_version();
        object.metadata.resource_version = version.to_string();
        let row = self.row_of(kind, present, (object, extent), version)?;
        let key = key(&object.id());
        if is_gone {
            transaction.remove_owner(&key, row)?;
        } else {
            transaction.put(&key, row)?;
        }
        Ok(())
    }
}

/// How much of an object it takes to patch it.
fn extent_of(patch: &Value) -> Extent {
    let mut members = patch.as_object().into_iter().flatten();
    if patch.is_object() && members.all(|(name, _)| name == "metadata") {
        Extent::Head
    } else {
        Extent::Whole
    }
}

/// Tells states of an object apart.
fn version_of(row: Option<&StoredObject>) -> Option<u64> {
    row.map(|row| row.resource_version)
}

/// Whether a changed object is judged: what was admitted, and of which only metadata changes, stays admitted whatever has
/// become of the node. A VMI's annotations are part of what it means.
fn is_judged_anew(kind: &ObjectKind, present: &Object, changed: &Object) -> bool {
    matches!(kind.writer, Writer::Guests) || present.content != changed.content
}

/// What is returned to the caller of a write.
fn written(decision: Decision, present: Option<Object>) -> ObjectWritten {
    let (object, changed, gone) = match decision.written {
        Written::Unchanged => (present.unwrap_or_default(), false, false),
        Written::Changed(object) => (object, true, false),
        Written::Gone(object) => (object, true, true),
    };
    ObjectWritten {
        object,
        created: decision.created,
        changed,
        gone,
        warnings: decision.warnings,
    }
}

/// Annotations and the finalizer that are the agent's stay as they are.
fn keep_own(offered: &mut Object, present: &Object) {
    let (metadata, before) = (&mut offered.metadata, &present.metadata);
    let is_own = |name: &String| name.starts_with(OWN_ANNOTATIONS);
    metadata.annotations.retain(|name, _| !is_own(name));
    let own = before.annotations.iter().filter(|(name, _)| is_own(name));
    metadata
        .annotations
        .extend(own.map(|(name, value)| (name.clone(), value.clone())));
    let ours = |name: &String| name == FINALIZER;
    if before.finalizers.iter().any(ours) && !metadata.finalizers.iter().any(ours) {
        metadata.finalizers.push(FINALIZER.to_owned());
    }
}

pub(super) fn agent_only(kind: &ObjectKind) -> ApiError {
    let text = format!("a {} is written by the agent alone", kind.kind);
    ApiError::Forbidden(text)
}

/// In Kubernetes' words, which name the resource.
fn already_exists(kind: &ObjectKind, name: &str) -> ApiError {
    let (dot, group) = if kind.group.is_empty() {
        ("", "")
    } else {
        (".", kind.group)
    };
    let text = format!("{}{dot}{group} {name:?} already exists", kind.plural);
    ApiError::AlreadyExists(text)
}

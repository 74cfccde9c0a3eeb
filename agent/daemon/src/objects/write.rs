//! Writes of objects of any kind: what is decided by [`agent_objects`] is stored in one transaction.

use agent_domain::Vmi;
use agent_host::Host;
use agent_objects::{
    Admission, AdmitContext, Given, Kinds, Object, ObjectId, ObjectKind, Part, Refusal, Writer,
    Written, applied, create, delete, patched, update,
};
use agent_sources::{
    ApiError, Apply, CallerTrace, Delete, Kind, ObjectDelete, ObjectPatch, ObjectRef,
    ObjectWritten, WriteBy,
};
use agent_store::{StoredObject, Transaction};
use proto_node::{from_json, to_json};
use serde_json::Value;

use super::namespace::{self, check_open};
use super::{key, kind_of, not_found, refused};
use crate::agent::Agent;
use crate::clock;
use crate::error::{WriteError, store};
use crate::object::FINALIZER;
use crate::owner::{self, OWN_ANNOTATIONS};

/// What a write comes to.
struct Decision {
    written: Written,
    created: bool,
    warnings: Vec<String>,
}

impl<H: Host> Agent<H> {
    pub(super) fn create_any(
        &self,
        mut object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        match kind.writer {
            Writer::Guests => return self.create_guest(object, by),
            Writer::Agent => return Err(agent_only(kind)),
            Writer::Objects(_) => owner::claim(&mut object.metadata, &by.owner),
        }
        let object = self.new_object(kind, object)?;
        self.change(kind, &object.id(), by, |present| match present {
            Some(_) => Err(already_exists(kind, &object.metadata.name)),
            None => self.admitted(kind, object.clone()),
        })
    }

    pub(super) fn apply_three_way(
        &self,
        mut object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        let is_there = self.ledger.object(&key(&object.id())).map_err(store)?;
        if is_there.is_none() && matches!(kind.writer, Writer::Guests) {
            let first = self.read_as(kind, applied(object, None))?;
            return self.create_guest(first, by);
        }
        if matches!(kind.writer, Writer::Agent) {
            return Err(agent_only(kind));
        }
        owner::claim(&mut object.metadata, &by.owner);
        self.change(kind, &object.id(), by, |present| {
            let value = applied(object.clone(), present.as_ref());
            let offered = self.read_as(kind, value)?;
            match present {
                Some(present) => self.updated(kind, &present, offered, Part::Main, by),
                None => self.admitted(kind, self.new_object(kind, offered)?),
            }
        })
    }

    pub(super) fn patch_any(
        &self,
        wanted: &ObjectPatch,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&wanted.id.kind)?;
        if matches!(kind.writer, Writer::Agent) {
            return Err(agent_only(kind));
        }
        self.change(kind, &wanted.id, by, |present| {
            let present = present.ok_or_else(|| not_found(kind, &wanted.id))?;
            let kinds = (Kinds::this_release(), kind);
            let offered = patched(kinds, &present, &wanted.patch, &wanted.preconditions);
            let offered = offered.map_err(|error| refused(kind, &wanted.id.name, error))?;
            self.updated(kind, &present, offered, wanted.part, by)
        })
    }

    pub(super) fn replace_any(
        &self,
        object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        if matches!(kind.writer, Writer::Agent) {
            return Err(agent_only(kind));
        }
        let id = object.id();
        self.change(kind, &id, by, |present| {
            let present = present.ok_or_else(|| not_found(kind, &id))?;
            self.updated(kind, &present, object, Part::Main, by)
        })
    }

    pub(super) fn delete_any(
        &self,
        wanted: &ObjectDelete,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&wanted.id.kind)?;
        if !matches!(kind.writer, Writer::Objects(_)) && !by.dry_run {
            return self.delete_other(kind, wanted, by);
        }
        self.change(kind, &wanted.id, by, |present| {
            let present = present.ok_or_else(|| not_found(kind, &wanted.id))?;
            self.check_delete(kind.kind, &present.metadata, &by.owner)?;
            let now = clock::rfc3339(clock::now());
            let how = (&wanted.preconditions, wanted.propagation);
            let written = delete(kind, &present, how, &now);
            Ok(Decision {
                written: written.map_err(|error| refused(kind, &wanted.id.name, error))?,
                created: false,
                warnings: Vec::new(),
            })
        })
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
            by: by.owner.clone(),
        })?;
        Ok(ObjectWritten {
            object: self.read_as(kind, deleted.object.to_json())?,
            created: false,
            changed: true,
            gone: deleted.gone,
            warnings: Vec::new(),
        })
    }

    /// A VMI goes the way of all VMIs: admission, record, actor.
    fn create_guest(&self, object: Object, by: &WriteBy) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        let malformed = |errors| {
            let refusal = Refusal::Malformed(errors);
            refused(kind, &object.metadata.name, refusal)
        };
        let applied = self.apply_vmi(Apply {
            object: from_json(object.to_json()).map_err(malformed)?,
            idempotency_key: String::new(),
            dry_run: by.dry_run,
            create_only: true,
            by: by.owner.clone(),
            trace: CallerTrace::default(),
        })?;
        Ok(ObjectWritten {
            object: self.read_as(kind, to_json(&applied.object))?,
            created: true,
            changed: true,
            gone: false,
            warnings: applied.warnings,
        })
    }

    /// An object with what the server gives it.
    fn new_object(&self, kind: &ObjectKind, object: Object) -> Result<Object, ApiError> {
        let name = object.metadata.name.clone();
        let uid = uuid::Uuid::new_v4();
        let suffix = uid.simple().to_string();
        let given = Given {
            uid: &uid.to_string(),
            now: &clock::rfc3339(clock::now()),
            suffix: suffix.get(..5).unwrap_or_default(),
        };
        create(kind, object, &given).map_err(|error| refused(kind, &name, error))
    }

    /// A new object, if its kind admits it.
    fn admitted(&self, kind: &ObjectKind, mut object: Object) -> Result<Decision, ApiError> {
        let warnings = self.admit(kind, &mut object, None)?;
        Ok(Decision {
            written: Written::Changed(object),
            created: true,
            warnings,
        })
    }

    /// What an object comes to that is there already.
    fn updated(
        &self,
        kind: &ObjectKind,
        present: &Object,
        mut offered: Object,
        part: Part,
        by: &WriteBy,
    ) -> Result<Decision, ApiError> {
        owner::check_change(kind.kind, &present.metadata, &by.owner)?;
        if part == Part::Status && matches!(kind.writer, Writer::Guests) {
            let text = format!("the status of a {} is what its guest is", kind.kind);
            return Err(ApiError::Forbidden(text));
        }
        keep_own(&mut offered, present);
        let written = update(kind, present, offered, part);
        let mut written = written.map_err(|error| refused(kind, &present.metadata.name, error))?;
        let mut warnings = Vec::new();
        if let (Written::Changed(object), Part::Main) = (&mut written, part) {
            warnings = self.admit(kind, object, Some(present))?;
        }
        Ok(Decision {
            written,
            created: false,
            warnings,
        })
    }

    /// Judges an object by its kind's own rules; the answer is advice.
    fn admit(
        &self,
        kind: &ObjectKind,
        object: &mut Object,
        before: Option<&Object>,
    ) -> Result<Vec<String>, ApiError> {
        let caps = self.caps();
        let admission = match kind.writer {
            Writer::Objects(admit) => admit(
                object,
                &AdmitContext {
                    caps: Some(&caps),
                    before,
                },
            ),
            // What is stored must be legible to the guest's actor: its annotations count, too.
            Writer::Guests => legible(kind, object)?,
            Writer::Agent => return Err(agent_only(kind)),
        };
        if admission.errors.is_empty() {
            return Ok(admission.warnings);
        }
        Err(ApiError::Invalid {
            kind: kind.kind,
            name: object.metadata.name.clone(),
            errors: admission.errors,
        })
    }

    fn read_as(&self, kind: &ObjectKind, value: Value) -> Result<Object, ApiError> {
        let read = Kinds::this_release().read_as(kind, value);
        read.map_err(|error| refused(kind, "", error))
    }

    /// Decides on what is there, and stores it unless the write is only judged.
    fn change(
        &self,
        kind: &ObjectKind,
        id: &ObjectId,
        by: &WriteBy,
        decide: impl FnOnce(Option<Object>) -> Result<Decision, ApiError>,
    ) -> Result<ObjectWritten, ApiError> {
        let key = key(id);
        let read_row = |row: Option<&StoredObject>| row.map(|row| self.read(kind, row)).transpose();
        if by.dry_run {
            let row = self.ledger.object(&key).map_err(store)?;
            if row.is_none() {
                let space = self.ledger.object(&namespace::key_of(&id.namespace));
                check_open(space.map_err(store)?.as_ref(), (kind.plural, id))?;
            }
            let present = read_row(row.as_ref())?;
            let decision = decide(present.clone())?;
            return Ok(told(decision, present));
        }
        let written = self.write(|transaction| {
            let row = transaction.object(&key)?;
            if row.is_none() {
                let space = transaction.object(&namespace::key_of(&id.namespace))?;
                check_open(space.as_ref(), (kind.plural, id))?;
            }
            let present = read_row(row.as_ref())?;
            let mut decision = decide(present.clone())?;
            self.store_written(transaction, kind, row.as_ref(), &mut decision.written)?;
            Ok(told(decision, present))
        })?;
        self.wake(&written.object.metadata.uid);
        Ok(written)
    }

    /// Stores what was decided, and gives it its version.
    fn store_written(
        &self,
        transaction: &mut Transaction<'_>,
        kind: &ObjectKind,
        present: Option<&StoredObject>,
        written: &mut Written,
    ) -> Result<(), WriteError> {
        let is_gone = matches!(written, Written::Gone(_));
        let (Written::Changed(object) | Written::Gone(object)) = written else {
            return Ok(());
        };
        let version = transaction.next_version();
        object.metadata.resource_version = version.to_string();
        let row = self.row_of(kind, present, object, version)?;
        let key = key(&object.id());
        if is_gone {
            transaction.remove_owner(&key, row)?;
        } else {
            transaction.put(&key, row)?;
        }
        Ok(())
    }
}

/// Whether a VMI can be read back once it is stored.
fn legible(kind: &ObjectKind, object: &Object) -> Result<Admission, ApiError> {
    let vmi = from_json(object.to_json());
    let vmi = vmi.map_err(|errors| refused(kind, "", Refusal::Malformed(errors)))?;
    let errors = Vmi::restore(vmi).err().unwrap_or_default();
    Ok(Admission {
        errors,
        warnings: Vec::new(),
    })
}

/// What a caller hears of a decision.
fn told(decision: Decision, present: Option<Object>) -> ObjectWritten {
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

fn agent_only(kind: &ObjectKind) -> ApiError {
    let text = format!("a {} is written by the agent alone", kind.kind);
    ApiError::Forbidden(text)
}

fn already_exists(kind: &ObjectKind, name: &str) -> ApiError {
    let text = format!("{} {name:?} already exists", kind.kind);
    ApiError::AlreadyExists(text)
}

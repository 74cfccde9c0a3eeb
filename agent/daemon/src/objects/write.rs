//! Writes of objects of any kind: what is decided by [`agent_objects`] is stored in one transaction.

use agent_domain::Vmi;
use agent_host::Host;
use agent_objects::{
    Admission, Given, Kinds, NodeContext, Object, ObjectId, ObjectKind, Part, Refusal, Writer,
    Written, applied, create, delete, patched, update,
};
use agent_sources::{
    ApiError, Apply, CallerTrace, Delete, Kind, ObjectDelete, ObjectPatch, ObjectRef,
    ObjectWritten, WriteBy,
};
use agent_store::{StoredObject, Transaction};
use proto_node::{from_json, to_json};
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::{key, kind_of, not_found, read, refused};
use crate::agent::Agent;
use crate::clock;
use crate::error::{WriteError, store};
use crate::object::{self, FINALIZER};
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
            let now = clock::rfc3339(clock::now());
            let written = delete(&present, &wanted.preconditions, wanted.propagation, &now);
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
        let warnings = self.admit(kind, &mut object)?;
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
        owner::check_change(&present.metadata, &by.owner)?;
        if part == Part::Status && matches!(kind.writer, Writer::Guests) {
            let text = format!("the status of a {} is what its guest is", kind.kind);
            return Err(ApiError::Forbidden(text));
        }
        keep_own(&mut offered, present);
        let written = update(kind, present, offered, part);
        let mut written = written.map_err(|error| refused(kind, &present.metadata.name, error))?;
        let mut warnings = Vec::new();
        if let (Written::Changed(object), Part::Main) = (&mut written, part) {
            warnings = self.admit(kind, object)?;
        }
        Ok(Decision {
            written,
            created: false,
            warnings,
        })
    }

    /// Judges an object by its kind's own rules; the answer is advice.
    fn admit(&self, kind: &ObjectKind, object: &mut Object) -> Result<Vec<String>, ApiError> {
        let admission = match kind.writer {
            Writer::Objects(admit) => admit(object, &NodeContext { caps: &self.caps() }),
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
        let read_row = |row: Option<&StoredObject>| row.map(|row| read(kind, row)).transpose();
        if by.dry_run {
            let row = self.ledger.object(&key).map_err(store)?;
            let present = read_row(row.as_ref())?;
            let decision = decide(present.clone())?;
            return Ok(told(decision, present));
        }
        let written = self.write(|transaction| {
            let row = transaction.object(&key)?;
            let present = read_row(row.as_ref())?;
            let mut decision = decide(present.clone())?;
            store_written(transaction, kind, row.as_ref(), &mut decision.written)?;
            Ok(told(decision, present))
        })?;
        self.wake(&written.object.metadata.uid);
        Ok(written)
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

/// Stores what was decided, and gives it its version.
fn store_written(
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
    let row = row(kind, present, object, version)?;
    let key = key(&object.id());
    if is_gone {
        transaction.remove_owner(&key, row)?;
    } else {
        transaction.put(&key, row)?;
    }
    Ok(())
}

fn row(
    kind: &ObjectKind,
    present: Option<&StoredObject>,
    object: &Object,
    version: u64,
) -> Result<StoredObject, ApiError> {
    if let (Writer::Guests, Some(present)) = (kind.writer, present) {
        // Only its metadata can have changed. The rest stays byte for byte as it was admitted.
        let mut vmi = object::vmi(present)?;
        vmi.metadata = Some(object.metadata.clone());
        return Ok(object::row(vmi, version));
    }
    let mut spec = object.content.clone();
    if kind.has_status {
        spec.shift_remove("status");
    }
    let bytes = Kinds::this_release().to_wire(kind, object);
    Ok(StoredObject {
        uid: object.metadata.uid.clone(),
        generation: object.metadata.generation,
        resource_version: version,
        spec_digest: Sha256::digest(Value::Object(spec).to_string()).to_vec(),
        object: bytes.map_err(|error| refused(kind, &object.metadata.name, error))?,
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

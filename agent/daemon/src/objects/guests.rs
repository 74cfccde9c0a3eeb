//! Writes of VMIs: a new one goes the way of all VMIs, to admission, record and actor.

use agent_domain::Vmi;
use agent_objects::{Admission, Object, ObjectKind, Part, Refusal, applied};
use agent_sources::{ApiError, Apply, CallerTrace, ObjectWritten, WriteBy};
use proto_node::vmi::VirtualMachineInstance;
use proto_node::{from_json, to_json};

use super::apply::{fill_in, goes_first};
use super::attempts::{ATTEMPTS, changed_too_often};
use super::companion::Companion;
use super::{Objects, key, kind_of, not_found, refused};
use crate::error::store;
use crate::object;

impl Objects {
    /// Makes a VMI, or changes it by a three-way merge.
    pub(super) async fn apply_guest(
        &self,
        kind: &'static ObjectKind,
        object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        if let Some(written) = self.repeated_write(kind, &object, by)? {
            return Ok(written);
        }
        let id = object.id();
        let first = || self.read_as(kind, applied(object.clone(), None));
        if id.name.is_empty() {
            return self.create_guest(first()?, None, by);
        }
        for _ in 0..ATTEMPTS {
            if self
                .store
                .ledger()
                .object(&key(&id))
                .map_err(store)?
                .is_none()
            {
                match self.create_guest(first()?, None, by) {
                    // Somebody else's came first.
                    Err(ApiError::AlreadyExists(_)) => {}
                    made => return made,
                }
            }
            let merged = self.change(kind, (&id, Part::Main), by, |present| {
                let present = present.ok_or_else(|| not_found(kind, &id))?;
                let offered = self.read_as(kind, applied(object.clone(), Some(&present)))?;
                let mut decision = self.updated(kind, &present, offered, Part::Main, by)?;
                if present.is_deleted() {
                    decision.warnings.push(goes_first(&id.name));
                }
                Ok(decision)
            });
            match merged.await {
                // It went in between.
                Err(ApiError::NotFound { .. }) => {}
                written => return written,
            }
        }
        Err(changed_too_often(&id))
    }

    /// Makes a VMI.
    pub(super) fn create_guest(
        &self,
        object: Object,
        companion: Option<&Companion>,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        let kind = kind_of(&object.kind)?;
        let malformed = |errors| {
            let refusal = Refusal::Malformed(errors);
            refused(kind, &object.metadata.name, refusal)
        };
        let apply = Apply {
            object: from_json(object.to_json()).map_err(malformed)?,
            idempotency_key: by.idempotency_key.clone(),
            dry_run: by.dry_run,
            create_only: true,
            by: by.source.clone(),
            manager: by.manager.clone(),
            trace: CallerTrace::default(),
        };
        let applied = self.apply_vmi_with(apply, companion)?;
        Ok(ObjectWritten {
            object: self.read_as(kind, to_json(&applied.object))?,
            created: true,
            changed: true,
            gone: false,
            warnings: applied.warnings,
        })
    }
}

/// An offered VMI with the defaults that the present one was given, and advice: what means the same is no change.
pub(super) fn in_stored_form(
    kind: &ObjectKind,
    present: &Object,
    mut offered: Object,
) -> Result<(Object, Vec<String>), ApiError> {
    let spec = String::from("spec");
    if offered.content.get(&spec) == present.content.get(&spec) {
        return Ok((offered, Vec::new()));
    }
    let vmi = |object: &Object| {
        let vmi = from_json::<VirtualMachineInstance>(object.to_json());
        vmi.map_err(|errors| refused(kind, &object.metadata.name, Refusal::Malformed(errors)))
    };
    let before = vmi(present)?;
    let filled_in = fill_in(vmi(&offered)?, &before)?;
    let whole = if filled_in.object.spec == before.spec {
        present.content.get(&spec).cloned()
    } else {
        object::as_object(&filled_in.object)?
            .content
            .shift_remove(&spec)
    };
    match whole {
        Some(whole) => drop(offered.content.insert(spec, whole)),
        None => drop(offered.content.shift_remove(&spec)),
    }
    Ok((offered, filled_in.warnings))
}

/// Whether a VMI can be read back once it is stored.
pub(super) fn legible(kind: &ObjectKind, object: &Object) -> Result<Admission, ApiError> {
    let vmi = from_json(object.to_json());
    let vmi = vmi.map_err(|errors| refused(kind, "", Refusal::Malformed(errors)))?;
    let errors = Vmi::restore(vmi).err().unwrap_or_default();
    Ok(Admission {
        errors,
        warnings: Vec::new(),
    })
}

//! Creating and changing VMIs.

mod repeated;

use std::path::PathBuf;

use agent_domain::{Admitted, FieldError, NodeCaps, PathRecords, Rule, Vmi};
use agent_host::Host;
use agent_objects::{Manager, ObjectId, Part};
use agent_plan::{Record, Timestamp, VmiId};
use agent_sources::{ApiError, Applied, Apply, Kind, ObjectRef};
use agent_store::{StoredObject, Transaction};
use proto_node::meta::ObjectMeta;
use proto_node::object::{VMI_API_VERSION, VMI_KIND};
use proto_node::vmi::{VirtualMachineInstance, VirtualMachineInstanceStatus};

use crate::agent::Agent;
use crate::error::WriteError;
use crate::object::{self, FINALIZER};
use crate::objects::companion::Companion;
use crate::objects::namespace::{self, check_open};
use crate::owner::{self, OWN_ANNOTATIONS};
use crate::traces::{self, Call, Moment};
use crate::{clock, events, paths, verbs, vsock};

use repeated::repeated;

/// How often a write is judged anew because its VMI was changed meanwhile.
const ATTEMPTS: usize = 16;

impl<H: Host> Agent<H> {
    /// Carries out an apply. What it answers is on disk.
    pub(crate) fn apply_vmi(&self, apply: Apply) -> Result<Applied, ApiError> {
        self.apply_vmi_with(apply, None)
    }

    /// The same, and another object is stored with a new VMI.
    pub(crate) fn apply_vmi_with(
        &self,
        apply: Apply,
        companion: Option<&Companion>,
    ) -> Result<Applied, ApiError> {
        let mut call = Call::begin(self.traces.pipeline(), &apply);
        let answer = self.apply_within(&mut call, apply, companion);
        call.end(&answer);
        answer
    }

    fn apply_within(
        &self,
        call: &mut Call,
        mut apply: Apply,
        companion: Option<&Companion>,
    ) -> Result<Applied, ApiError> {
        verbs::check_idempotency_key(&apply.idempotency_key)?;
        let now = clock::now();
        clear_server_fields(&mut apply.object);
        owner::claim(apply.object.metadata.get_or_insert_default(), &apply.by);
        if apply.dry_run {
            let target = object::vmi_ref(&object::metadata(&apply.object));
            let before = self
                .ledger
                .object(&object::key(&target))
                .map_err(crate::error::store)?;
            let begun = call.mark();
            let decided = self.decide(apply, before.as_ref(), now);
            call.note("admission", begun);
            return Ok(decided?.applied);
        }
        let mut committing = None;
        let mut stored = None;
        for _ in 0..ATTEMPTS {
            stored = self.apply_once(call, (&apply, companion), now, &mut committing)?;
            if stored.is_some() {
                break;
            }
        }
        let Some((decision, spawn)) = stored else {
            let name = object::metadata(&apply.object).name;
            return Err(ApiError::Conflict(format!(
                "{name:?} was changed {ATTEMPTS} times while this write was judged: try again"
            )));
        };
        call.note("store commit", committing);
        let metadata = object::metadata(&decision.object);
        if spawn {
            self.spawn(&object::vmi_ref(&metadata), &metadata.uid, false);
        } else {
            self.wake(&metadata.uid);
        }
        Ok(decision)
    }

    /// Judges outside of the transaction, so that nobody waits for it; nothing when what was judged on has changed
    /// meanwhile.
    fn apply_once(
        &self,
        call: &mut Call,
        (apply, companion): (&Apply, Option<&Companion>),
        now: Timestamp,
        committing: &mut Option<Moment>,
    ) -> Result<Option<(Applied, bool)>, ApiError> {
        let target = object::vmi_ref(&object::metadata(&apply.object));
        let key = object::key(&target);
        let before = self.ledger.object(&key).map_err(crate::error::store)?;
        let begun = call.mark();
        let decided = self.decide(apply.clone(), before.as_ref(), now);
        call.note("admission", begun);
        let written = self.write(|transaction| {
            if let Some(applied) = repeated(transaction, apply, || self.caps())? {
                return Ok(Some((applied, false, PathRecords::new())));
            }
            let present = transaction.object(&key)?;
            let version = |row: &Option<StoredObject>| row.as_ref().map(|row| row.resource_version);
            if version(&present) != version(&before) {
                return Ok(None);
            }
            if present.is_none() {
                let space = transaction.object(&namespace::key_of(&target.namespace))?;
                let id = ObjectId {
                    kind: VMI_KIND.to_owned(),
                    namespace: target.namespace.clone(),
                    name: target.name.clone(),
                };
                check_open(space.as_ref(), ("virtualmachineinstances", &id))?;
            }
            let mut decision = decided?;
            let spawn = decision.applied.created;
            if spawn {
                call.made(decision.applied.object.metadata.get_or_insert_default());
            }
            *committing = call.mark();
            let owner = (target.namespace.as_str(), target.name.as_str());
            let claimed = paths::claim(transaction, &self.path_rules(), owner, &decision.written)?;
            let key = &apply.idempotency_key;
            let applied = self.store_decision(transaction, decision, key, now)?;
            // After all that may refuse: others share the transaction.
            if let Some(companion) = companion.filter(|_| spawn) {
                self.store_companion(transaction, companion)?;
            }
            Ok(Some((applied, spawn, claimed)))
        });
        let Some((applied, spawn, claimed)) = written? else {
            return Ok(None);
        };
        self.remember_paths(claimed);
        Ok(Some((applied, spawn)))
    }

    fn store_decision(
        &self,
        transaction: &mut Transaction<'_>,
        decision: Decision,
        idempotency_key: &str,
        now: Timestamp,
    ) -> Result<Applied, WriteError> {
        let mut applied = decision.applied;
        let metadata = object::metadata(&applied.object);
        let target = object::vmi_ref(&metadata);
        if applied.created {
            let mut record = Record::new(id(&metadata), now);
            record.orders = verbs::first_orders(&applied.object);
            if vsock::is_asked_for(&applied.object) {
                record.vsock_cid = vsock::free_cid(&transaction.records()?);
            }
            transaction.put_record(&record)?;
            if !idempotency_key.is_empty() {
                transaction.put_idempotency_key(idempotency_key, &metadata.uid)?;
            }
        }
        if applied.created || applied.configured {
            let row = object::row(applied.object.clone(), transaction.next_version());
            applied
                .object
                .metadata
                .get_or_insert_default()
                .resource_version = row.resource_version.to_string();
            let key = object::key(&target);
            if decision.gone {
                transaction.remove_owner(&key, row)?;
            } else {
                transaction.put(&key, row)?;
            }
        }
        if applied.created {
            let said = events::normal(
                "SuccessfulCreate",
                format!("Accepted on node {}", self.node_name()),
            );
            self.record_events(transaction, (&target, &metadata.uid), &[said], now)?;
        }
        Ok(applied)
    }

    /// What an apply comes to. Changes nothing.
    fn decide(
        &self,
        apply: Apply,
        before: Option<&StoredObject>,
        now: Timestamp,
    ) -> Result<Decision, ApiError> {
        let manager = Manager {
            name: &apply.manager,
            part: Part::Main,
            now: &clock::rfc3339(now),
        };
        match before {
            None => {
                let mut decision = create(apply.object, &self.caps(), now)?;
                object::manage_fields(None, &mut decision.applied.object, &manager)?;
                Ok(decision)
            }
            Some(row) => {
                let present = object::vmi(row)?;
                owner::check_change(VMI_KIND, &object::metadata(&present), &apply.by)?;
                if apply.create_only {
                    let metadata = object::metadata(&present);
                    let text = format!("{VMI_KIND} {:?} already exists", metadata.name);
                    return Err(ApiError::AlreadyExists(text));
                }
                let mut decision = update(apply.object, present.clone(), &self.caps())?;
                if decision.applied.configured {
                    object::manage_fields(Some(present), &mut decision.applied.object, &manager)?;
                }
                Ok(decision)
            }
        }
    }
}

/// What an apply comes to.
struct Decision {
    applied: Applied,
    /// The last finalizer of a deleted object was taken away.
    gone: bool,
    /// Disks that a new VMI writes to.
    written: Vec<PathBuf>,
}

/// Who a VMI is, for its record.
pub(crate) fn id(metadata: &ObjectMeta) -> VmiId {
    VmiId {
        uid: metadata.uid.clone(),
        namespace: metadata.namespace.clone(),
        name: metadata.name.clone(),
    }
}

/// Fields of metadata that only the server sets, and the status, are not the caller's to give.
fn clear_server_fields(object: &mut VirtualMachineInstance) {
    let suffix = uuid::Uuid::new_v4().simple().to_string();
    let metadata = object.metadata.get_or_insert_default();
    if metadata.name.is_empty() && !metadata.generate_name.is_empty() {
        metadata.name = format!(
            "{}{}",
            metadata.generate_name,
            suffix.get(..5).unwrap_or_default()
        );
    }
    if metadata.namespace.is_empty() {
        metadata.namespace = String::from("default");
    }
    metadata.uid.clear();
    metadata.self_link.clear();
    metadata.resource_version.clear();
    metadata.generation = 0;
    metadata.creation_timestamp.clear();
    metadata.deletion_timestamp.clear();
    metadata.deletion_grace_period_seconds = None;
    metadata.annotations.remove(traces::ANNOTATION);
    metadata.managed_fields.clear();
    object.status = None;
}

fn admit(object: VirtualMachineInstance, caps: &NodeCaps) -> Result<Admitted, ApiError> {
    let name = object::metadata(&object).name;
    Vmi::admit(object, caps).map_err(|errors| ApiError::Invalid {
        kind: VMI_KIND,
        name,
        errors,
    })
}

fn create(
    mut object: VirtualMachineInstance,
    caps: &NodeCaps,
    now: Timestamp,
) -> Result<Decision, ApiError> {
    object.api_version = VMI_API_VERSION.to_owned();
    object.kind = VMI_KIND.to_owned();
    object.status = Some(VirtualMachineInstanceStatus {
        phase: String::from("Pending"),
        ..Default::default()
    });
    let metadata = object.metadata.get_or_insert_default();
    metadata.uid = uuid::Uuid::new_v4().to_string();
    metadata.generation = 1;
    metadata.creation_timestamp = clock::rfc3339(now);
    if !metadata
        .finalizers
        .iter()
        .any(|finalizer| finalizer == FINALIZER)
    {
        metadata.finalizers.push(FINALIZER.to_owned());
    }
    let admitted = admit(object, caps)?;
    let written = paths::written(&admitted.vmi);
    let applied = Applied {
        object: admitted.object,
        created: true,
        configured: false,
        warnings: admitted.warnings,
    };
    Ok(Decision {
        applied,
        gone: false,
        written,
    })
}

/// Labels, annotations, owners and finalizers can change; the spec of a VMI cannot.
fn update(
    offered: VirtualMachineInstance,
    present: VirtualMachineInstance,
    caps: &NodeCaps,
) -> Result<Decision, ApiError> {
    let before = object::metadata(&present);
    let mut metadata = offered.metadata.clone().unwrap_or_default();
    take_over(&mut metadata, &before);
    let candidate = VirtualMachineInstance {
        metadata: Some(metadata.clone()),
        api_version: present.api_version.clone(),
        kind: present.kind.clone(),
        ..offered
    };
    // Defaults that come from the uid are those of the present object.
    let admitted = admit(candidate, caps)?;
    if admitted.object.spec != as_of_now(&present).spec {
        return Err(restricted(&before));
    }
    let configured = metadata != before;
    let gone = !metadata.deletion_timestamp.is_empty() && metadata.finalizers.is_empty();
    let mut warnings = admitted.warnings;
    if !metadata.deletion_timestamp.is_empty() {
        warnings.push(format!(
            "{} is being deleted; apply it again when it is gone",
            metadata.name
        ));
    }
    let object = VirtualMachineInstance {
        metadata: Some(metadata),
        ..present
    };
    Ok(Decision {
        applied: Applied {
            object,
            created: false,
            configured,
            warnings,
        },
        gone,
        written: Vec::new(),
    })
}

/// The stored object with the defaults of this release, which may fill in more than the one did that
/// stored it.
fn as_of_now(present: &VirtualMachineInstance) -> VirtualMachineInstance {
    Vmi::restore(present.clone()).map_or_else(|_| present.clone(), |restored| restored.object)
}

fn restricted(metadata: &ObjectMeta) -> ApiError {
    let error = FieldError::new(
        "spec",
        Rule::Forbidden,
        "update of VMI object is restricted",
    )
    .fix(format!("delete {} and apply again", metadata.name));
    ApiError::Invalid {
        kind: VMI_KIND,
        name: metadata.name.clone(),
        errors: vec![error],
    }
}

/// What the caller gave, and of what is there whatever is not the caller's to change.
fn take_over(metadata: &mut ObjectMeta, before: &ObjectMeta) {
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
    metadata
        .annotations
        .retain(|name, _| !name.starts_with(OWN_ANNOTATIONS));
    let own = before
        .annotations
        .iter()
        .filter(|(name, _)| name.starts_with(OWN_ANNOTATIONS));
    metadata
        .annotations
        .extend(own.map(|(name, value)| (name.clone(), value.clone())));
    if metadata.owner_references.is_empty() {
        metadata
            .owner_references
            .clone_from(&before.owner_references);
    }
    metadata.managed_fields.clone_from(&before.managed_fields);
    if metadata.finalizers.is_empty() {
        metadata.finalizers.clone_from(&before.finalizers);
    } else {
        // Only the agent says that nothing of the guest is left.
        let ours = |finalizer: &String| finalizer == FINALIZER;
        metadata.finalizers.retain(|finalizer| !ours(finalizer));
        if before.finalizers.iter().any(ours) {
            metadata.finalizers.push(FINALIZER.to_owned());
        }
    }
}

/// The VMI that a name stands for.
pub(crate) fn is_vmi(target: &ObjectRef) -> bool {
    target.kind == Kind::VirtualMachineInstance
}

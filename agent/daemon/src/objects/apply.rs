//! Creating and changing VMIs.

mod decision;
mod repeated;

use agent_domain::{PathRecords, name_suffix};
use agent_objects::{Manager, ObjectId, Part, Refusal};
use agent_plan::{Record, Timestamp};
use agent_sources::{ApiError, Applied, Apply};
use agent_store::{StoredObject, Transaction};
use proto_node::check_message;
use proto_node::object::VMI_KIND;
use proto_node::vmi::VirtualMachineInstance;

use self::decision::{Decision, create, update};
pub(super) use self::decision::{fill_in, goes_first};
use self::repeated::{Earlier, is_current};
use super::Objects;
use super::companion::Companion;
use super::namespace::{self, check_open};
use crate::error::WriteError;
use crate::generated_name::{self, Attempts};
use crate::idempotency::check_key;
use crate::object;
use crate::object_source;
use crate::traces::{self, Call, Moment};
use crate::uid::new_uid;
use crate::{clock, events, orders, paths, vsock};

/// How often a write is judged anew because its VMI was changed meanwhile.
const ATTEMPTS: usize = 16;

/// What an apply comes to within a transaction.
enum Judged {
    /// It was carried out before.
    Repeated(Box<Applied>),
    /// This, and whose disks are whose then.
    Decided(Box<Decision>, PathRecords),
}

impl Objects {
    /// Carries out an apply. What it answers is on disk.
    pub(crate) fn apply_vmi(&self, apply: Apply) -> Result<Applied, ApiError> {
        self.apply_vmi_with(apply, None)
    }

    /// The same, and another object is stored with a new VMI.
    pub(super) fn apply_vmi_with(
        &self,
        apply: Apply,
        companion: Option<&Companion>,
    ) -> Result<Applied, ApiError> {
        let mut call = Call::begin(self.traces.pipeline(), &apply);
        let answer = self.apply_named(&mut call, apply, companion);
        call.end(&answer);
        answer
    }

    /// A VMI whose name is made with it is a new one: it is no change of another that happens to have this name.
    fn apply_named(
        &self,
        call: &mut Call,
        mut apply: Apply,
        companion: Option<&Companion>,
    ) -> Result<Applied, ApiError> {
        let metadata = object::metadata(&apply.object);
        apply.create_only |= generated_name::is_to_be_made(&metadata);
        let mut attempts = Attempts::of(&metadata);
        loop {
            let answer = self.apply_within(call, apply.clone(), companion);
            if !attempts.go_on(&answer) {
                return answer;
            }
        }
    }

    fn apply_within(
        &self,
        call: &mut Call,
        mut apply: Apply,
        companion: Option<&Companion>,
    ) -> Result<Applied, ApiError> {
        check_key(&apply.idempotency_key)?;
        let now = clock::now();
        clear_server_fields(&mut apply.object);
        check_form(&apply.object)?;
        object_source::set_source(apply.object.metadata.get_or_insert_default(), &apply.by);
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
        if apply.dry_run {
            return Ok(decision);
        }
        let metadata = object::metadata(&decision.object);
        if spawn {
            self.actors
                .begin(&object::vmi_ref(&metadata), &metadata.uid);
        } else {
            self.actors.wake(&metadata.uid);
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
        let before = self.store.ledger().object(&object::key(&target));
        let before = before.map_err(crate::error::store)?;
        let earlier = self.earlier(apply)?;
        let begun = call.mark();
        let decided = self.decide(apply.clone(), before.as_ref(), now);
        call.note("admission", begun);
        let judged = |transaction: &Transaction<'_>| {
            let on = (apply, companion, before.as_ref());
            self.judge_within(transaction, on, earlier, decided)
        };
        if apply.dry_run {
            let judged = self.store.read_as_transaction(judged)?;
            return Ok(judged.map(|judged| match judged {
                Judged::Repeated(applied) => (*applied, false),
                Judged::Decided(decision, _) => (decision.applied, false),
            }));
        }
        let written = self.store.write(|transaction| {
            let (mut decision, path_records) = match judged(transaction)? {
                None => return Ok(None),
                Some(Judged::Repeated(applied)) => {
                    return Ok(Some((*applied, false, PathRecords::new(), 0)));
                }
                Some(Judged::Decided(decision, path_records)) => (decision, path_records),
            };
            let spawn = decision.applied.created;
            if spawn {
                call.made(decision.applied.object.metadata.get_or_insert_default());
            }
            *committing = call.mark();
            paths::put_records(transaction, &path_records)?;
            let key = &apply.idempotency_key;
            let applied = self.store_decision(transaction, *decision, key, now)?;
            // After all that may refuse: others share the transaction.
            if let Some(companion) = companion.filter(|_| spawn) {
                self.store_companion(transaction, companion)?;
            }
            Ok(Some((applied, spawn, path_records, transaction.version())))
        });
        let Some((applied, spawn, path_records, version)) = written? else {
            return Ok(None);
        };
        for (path, record) in path_records {
            self.node.known_paths.insert(path, record, version);
        }
        Ok(Some((applied, spawn)))
    }

    /// Judges what takes a transaction to judge. Changes nothing.
    fn judge_within(
        &self,
        transaction: &Transaction<'_>,
        (apply, companion, before): (&Apply, Option<&Companion>, Option<&StoredObject>),
        earlier: Option<Earlier>,
        decided: Result<Decision, ApiError>,
    ) -> Result<Option<Judged>, WriteError> {
        if !is_current(transaction, apply, earlier.as_ref())? {
            return Ok(None);
        }
        if let Some(earlier) = earlier {
            return Ok(Some(Judged::Repeated(Box::new(earlier.answer?))));
        }
        let is_companion_current = match companion {
            Some(companion) => companion.inputs.are_current(transaction)?,
            None => true,
        };
        if !is_companion_current {
            let text = "what a guest is to be made with was judged on has changed: try again";
            return Err(ApiError::Conflict(text.to_owned()).into());
        }
        let target = object::vmi_ref(&object::metadata(&apply.object));
        let present = transaction.object(&object::key(&target))?;
        let version = |row: Option<&StoredObject>| row.map(|row| row.resource_version);
        if version(present.as_ref()) != version(before) {
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
        let decision = decided?;
        let vmi = (target.namespace.as_str(), target.name.as_str());
        let rules = self.node.path_rules();
        let path_records = paths::judge_disks(transaction, &rules, vmi, &decision.written)?;
        Ok(Some(Judged::Decided(Box::new(decision), path_records)))
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
            let mut record = Record::new(object::vmi_id(&metadata), now);
            record.orders = orders::first_orders(&applied.object);
            if vsock::is_asked_for(&applied.object) {
                record.allocations.vsock_cid = vsock::free_cid(&transaction.allocations()?);
            }
            transaction.begin_record(&record)?;
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
            let event = events::normal(
                "SuccessfulCreate",
                format!("Accepted on node {}", self.node.name),
            );
            self.store
                .record_events(transaction, (&target, &metadata.uid), &[event], now)?;
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
                let mut decision = create(apply.object, &self.node.caps(), now)?;
                object::manage_fields(None, &mut decision.applied.object, &manager)?;
                Ok(decision)
            }
            Some(row) => {
                let present = object::vmi(row)?;
                object_source::check_change(VMI_KIND, &object::metadata(&present), &apply.by)?;
                if apply.create_only {
                    let metadata = object::metadata(&present);
                    let text = format!("{VMI_KIND} {:?} already exists", metadata.name);
                    return Err(ApiError::AlreadyExists(text));
                }
                let mut decision = update(apply.object, present.clone())?;
                if decision.applied.configured {
                    object::manage_fields(Some(present), &mut decision.applied.object, &manager)?;
                }
                Ok(decision)
            }
        }
    }
}

/// A message that a client or a control plane made may hold anything where the API has JSON.
fn check_form(object: &VirtualMachineInstance) -> Result<(), ApiError> {
    check_message(object).map_err(|error| {
        let name = object::metadata(object).name;
        ApiError::of_refusal(VMI_KIND, &name, Refusal::Malformed(vec![error]))
    })
}

/// Fields of metadata that only the server sets, and the status, are not the caller's to give.
fn clear_server_fields(object: &mut VirtualMachineInstance) {
    let metadata = object.metadata.get_or_insert_default();
    if generated_name::is_to_be_made(metadata) {
        let suffix = name_suffix(&[&new_uid()]);
        metadata.name = agent_domain::generated_name(&metadata.generate_name, &suffix);
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

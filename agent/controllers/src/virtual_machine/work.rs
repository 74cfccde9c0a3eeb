//! Following machines, and carrying out what is decided for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_domain::{Sort, upgrade_kit};
use agent_objects::{
    KitPart, ORPHAN_FINALIZER, Object, ObjectId, Part, Write, controller_of, find_kit,
};
use proto_node::from_json;
use proto_node::vmi::VirtualMachine;
use serde_json::{Value, json};

use super::decide::{Outcome, Start, decide};
use super::memory::{Failure, Memory};
use super::moment::Moment;
use super::view::{MACHINE, REVISION, Started, VMI, View, has_finalizer};
use super::{make, revision};
use crate::event::ControllerEvent;
use crate::queue::WorkQueue;
use crate::store::{Change, ChangeKind, ObjectStore, StoreError};

/// How long a machine whose VMI was just made is left alone. Its guest starts meanwhile, which takes syncs of the same disk
/// as reporting each step would; what has come of it is reported in one go.
const REST: Duration = Duration::from_millis(50);

/// What a machine reports when a copy of what it names cannot be made; KubeVirt's words.
const COPIES_FAILED: &str =
    "error encountered while storing instancetype.kubevirt.io controllerRevisions";

/// The controller of all machines of a store.
#[derive(Debug, Default)]
pub struct VirtualMachines {
    queue: WorkQueue<ObjectId>,
    memories: BTreeMap<ObjectId, Memory>,
    /// The generation that each machine was last seen with.
    generations: BTreeMap<ObjectId, i64>,
    /// Machines that wait for an instance type or preference.
    waiting: BTreeSet<ObjectId>,
    /// The changes up to this version were followed; `None` before the first round.
    followed: Option<u64>,
}

impl VirtualMachines {
    /// Takes note of what has changed. The first time, and when too much has, all machines are looked at.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    pub fn follow(&mut self, store: &impl ObjectStore, now: Duration) -> Result<(), StoreError> {
        let changes = match self.followed.map(|version| store.changes_after(version)) {
            Some(Ok(changes)) => changes,
            None | Some(Err(StoreError::Expired(_))) => {
                let (version, machines) = store.names(MACHINE)?;
                for machine in machines {
                    self.queue.add(machine, now);
                }
                self.followed = Some(version);
                return Ok(());
            }
            Some(Err(error)) => return Err(error),
        };
        for change in changes {
            self.followed = Some(change.version);
            self.note(&change, now);
        }
        Ok(())
    }

    fn note(&mut self, change: &Change, now: Duration) {
        let metadata = &change.metadata;
        let machine = |name: &str| ObjectId {
            kind: String::from(MACHINE),
            namespace: metadata.namespace.clone(),
            name: name.to_owned(),
        };
        if change.kind == VMI {
            // A VMI concerns the machine of its name, whoever made it.
            let id = machine(&metadata.name);
            if self.generations.contains_key(&id) || controller_of(metadata).is_some() {
                self.queue.add(id, now);
            }
        } else if change.kind == REVISION
            || change.kind.ends_with("nstancetype")
            || change.kind.ends_with("Preference")
        {
            for id in &self.waiting {
                self.queue.add(id.clone(), now);
            }
        } else if change.kind == MACHINE {
            let id = machine(&metadata.name);
            if change.happened == ChangeKind::Deleted {
                self.generations.remove(&id);
            } else {
                let generation = metadata.generation;
                // What is wanted differently is tried at once.
                if self.generations.insert(id.clone(), generation) != Some(generation) {
                    self.queue.hasten(&id);
                }
            }
            self.queue.add(id, now);
        }
    }

    /// When there is work again, if nothing changes.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.queue.next_due()
    }

    /// Works on the machine that has been due for longest; false when none is. `say` records events of the machine.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when the store cannot be read. The machine is looked at again later.
    pub fn work(
        &mut self,
        store: &impl ObjectStore,
        moment: Moment,
        mut report: impl FnMut(&Object, ControllerEvent),
    ) -> Result<bool, StoreError> {
        let now = moment.elapsed;
        let Some(id) = self.queue.take(now) else {
            return Ok(false);
        };
        let view = match read_view(store, &id) {
            Ok(Some(view)) => view,
            Ok(None) => {
                self.memories.remove(&id);
                self.generations.remove(&id);
                self.waiting.remove(&id);
                self.queue.hasten(&id);
                return Ok(true);
            }
            Err(error) => {
                self.queue.retry(id, now);
                return Err(error);
            }
        };
        self.generations
            .insert(id.clone(), view.machine.metadata.generation);
        let is_missing = |part: &KitPart| matches!(part, KitPart::Missing(_));
        if is_missing(&view.instancetype) || is_missing(&view.preference) {
            self.waiting.insert(id.clone());
        } else {
            self.waiting.remove(&id);
        }
        let memory = self.memories.entry(id.clone()).or_default();
        memory.observe(&view);
        let outcome = decide(&view, memory, moment);
        let before = memory.failure.take();
        let is_start = outcome.start.is_some();
        let again_at = outcome.again_at;
        let done = carry_out(store, &view, outcome, memory, &mut report);
        if memory.failure != before {
            // The status is to say so.
            self.queue.add_at(id.clone(), now);
        }
        match done {
            Done::All => self.queue.forgive(&id),
            Done::NotAll => self.queue.retry(id.clone(), now),
        }
        if is_start && done == Done::All {
            self.queue.rest(id.clone(), now.saturating_add(REST));
        }
        if let Some(at) = again_at {
            self.queue.add_at(id, at);
        }
        Ok(true)
    }
}

/// What is to be seen of a machine; nothing when it is gone.
fn read_view(store: &impl ObjectStore, id: &ObjectId) -> Result<Option<View>, StoreError> {
    // The machine first: the VMI must be no older than it.
    let (_, machine) = store.view(id)?;
    let Some(machine) = machine else {
        return Ok(None);
    };
    let (version, vmi) = store.view(&make::vmi_id(&machine))?;
    let part =
        |of: &VirtualMachine, sort| find_kit(of, sort, |id| store.view(id).map(|(_, found)| found));
    let as_message = with_names_of_kit(&machine, machine.content.get("spec"));
    let made_of = vmi.as_ref().and_then(revision::made_of);
    let outdated = match made_of {
        Some(made_of) => {
            let of = (REVISION, machine.metadata.namespace.as_str());
            let kept = store.names_owned(of, &machine.metadata.uid)?;
            revision::outdated(&machine, made_of, kept)
        }
        None => Vec::new(),
    };
    let revision = match made_of.filter(|made_of| *made_of != machine.metadata.generation) {
        Some(made_of) => store.view(&revision::id(&machine, made_of))?.1,
        None => None,
    };
    let started = |revision: Object| {
        let named = with_names_of_kit(&machine, revision.at(&["data", "spec"]));
        Ok(Started {
            instancetype: part(&named, Sort::Instancetype)?,
            preference: part(&named, Sort::Preference)?,
            revision,
        })
    };
    Ok(Some(View {
        started: revision.map(started).transpose()?,
        outdated,
        instancetype: part(&as_message, Sort::Instancetype)?,
        preference: part(&as_message, Sort::Preference)?,
        machine,
        vmi,
        version,
    }))
}

/// As much of a machine as says which instance type and preference it has by a spec, its own or an earlier one; reading
/// all of it takes many times as long.
fn with_names_of_kit(machine: &Object, spec: Option<&Value>) -> VirtualMachine {
    let some = |part: Option<&Value>, members: [&str; 2]| -> Value {
        let found = members.into_iter().filter_map(|name| {
            let value = part?.get(name)?.clone();
            Some((name.to_owned(), value))
        });
        found.collect()
    };
    let status = machine.content.get("status");
    let some = json!({
        "metadata": {"namespace": machine.metadata.namespace},
        "spec": some(spec, ["instancetype", "preference"]),
        "status": some(status, ["instancetypeRef", "preferenceRef"]),
    });
    from_json(some).unwrap_or_default()
}

/// Whether everything was carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    All,
    /// Something failed, or was left out for that; it is tried again.
    NotAll,
}

/// Carries everything out, up to the first write that fails.
fn carry_out(
    store: &impl ObjectStore,
    view: &View,
    outcome: Outcome,
    memory: &mut Memory,
    report: &mut impl FnMut(&Object, ControllerEvent),
) -> Done {
    let mut version = view.machine.version();
    for write in outcome.writes {
        let done = match &write {
            Write::Create(copy) => match store.create(copy) {
                Err(StoreError::AlreadyExists(_)) => check_copy(store, copy),
                made => made.map(drop),
            },
            Write::Patch {
                id,
                part,
                patch,
                preconditions,
            } => {
                if *part == Part::Main && !may_change(store, view, id) {
                    return Done::NotAll;
                }
                let patched = store.patch(id, *part, patch, preconditions);
                patched.map(|patched| {
                    if patched.kind == MACHINE {
                        version = patched.version();
                    }
                })
            }
            Write::Delete { id, preconditions } => match store.delete(id, preconditions) {
                // What is to be deleted is gone.
                Err(StoreError::NotFound(_)) => Ok(()),
                deleted => deleted,
            },
        };
        match done {
            Ok(()) => report_stop(view, &write, report),
            Err(error) => {
                let failure = failure(&write, &error).map(|it| (it, failed(&write, &error)));
                return not_all(view, failure, memory, report);
            }
        }
    }
    let Some(start) = outcome.start else {
        return Done::All;
    };
    match make_vmi(store, (&view.machine, version), &start, memory) {
        Ok(true) => {
            report_start(view, &start.vmi, report);
            Done::All
        }
        Ok(false) => Done::NotAll,
        Err(error) => {
            let failure = failure_of_start(&error).map(|it| (it, failed_start(&error)));
            not_all(view, failure, memory, report)
        }
    }
}

/// Whether the revision that has the name of a copy is that copy. As KubeVirt does, one is known by what it keeps.
fn check_copy(store: &impl ObjectStore, copy: &Object) -> Result<(), StoreError> {
    let name = &copy.metadata.name;
    let Some(present) = store.get(&copy.id())? else {
        return Err(StoreError::Conflict(format!("{name:?} is gone")));
    };
    let owner = |of: &Object| controller_of(&of.metadata).map(|owner| owner.uid.clone());
    let controller = owner(&present);
    if controller.is_some() && controller != owner(copy) {
        // A machine of this name had it, and is gone: so will it be.
        let text = format!("{name:?} belongs to another machine");
        return Err(StoreError::Conflict(text));
    }
    let spec = |of: &Object| {
        let kept = upgrade_kit(of.content.get("data")?).ok()?;
        kept.get("spec").cloned()
    };
    if spec(&present) == spec(copy) {
        return Ok(());
    }
    Err(StoreError::Refused(format!(
        "found existing ControllerRevision with unexpected data: {name}"
    )))
}

/// Records and reports why not everything was carried out.
fn not_all(
    view: &View,
    failure: Option<(Failure, String)>,
    memory: &mut Memory,
    report: &mut impl FnMut(&Object, ControllerEvent),
) -> Done {
    if let Some((failure, text)) = failure {
        report(
            &view.machine,
            ControllerEvent::warning(failure.reason, text),
        );
        memory.failure = Some(failure);
    }
    Done::NotAll
}

/// Makes the VMI; false when the machine, which must be at this version, or its VMI is not as it was when that was decided.
fn make_vmi(
    store: &impl ObjectStore,
    (machine, version): (&Object, u64),
    start: &Start,
    memory: &mut Memory,
) -> Result<bool, StoreError> {
    let present = store.get(&machine.id())?;
    let is_same = present.is_some_and(|present| {
        present.metadata.uid == machine.metadata.uid && present.version() == version
    });
    if !is_same {
        return Ok(false);
    }
    // One that was made before, with the answer lost, is no older than the view by now.
    if let Some(present) = store.get(&start.vmi.id())? {
        memory.awaited = Some(present.version());
        return Ok(false);
    }
    let made = store.create_after(&start.revision, &start.vmi)?;
    memory.awaited = Some(made.version());
    Ok(true)
}

/// What goes for good is not let go by a view that does not show everything: a machine of which there is a VMI.
fn may_change(store: &impl ObjectStore, view: &View, id: &ObjectId) -> bool {
    if id.kind != MACHINE || !view.machine.is_deleted() {
        return true;
    }
    match store.get(&make::vmi_id(&view.machine)) {
        Ok(present) => present
            .is_none_or(|vmi| !view.is_own(&vmi) || has_finalizer(&view.machine, ORPHAN_FINALIZER)),
        Err(_) => false,
    }
}

fn report_start(view: &View, vmi: &Object, report: &mut impl FnMut(&Object, ControllerEvent)) {
    let message = format!(
        "Started the virtual machine by creating the new virtual machine instance {}",
        vmi.metadata.name
    );
    report(
        &view.machine,
        ControllerEvent::normal("SuccessfulCreate", message),
    );
}

fn report_stop(view: &View, write: &Write, report: &mut impl FnMut(&Object, ControllerEvent)) {
    let Write::Delete { id, preconditions } = write else {
        return;
    };
    if id.kind == VMI {
        let message = format!(
            "Stopped the virtual machine by deleting the virtual machine instance {}",
            preconditions.uid
        );
        report(
            &view.machine,
            ControllerEvent::normal("SuccessfulDelete", message),
        );
    }
}

/// What the machine reports of a start that failed. A conflict is no failure: somebody else was faster.
fn failure_of_start(error: &StoreError) -> Option<Failure> {
    if matches!(error, StoreError::Conflict(_)) {
        return None;
    }
    Some(Failure {
        reason: "FailedCreate",
        message: format!("Failure while starting VMI: {error}"),
    })
}

/// The same as an event says it.
fn failed_start(error: &StoreError) -> String {
    format!("Error creating virtual machine instance: {error}")
}

/// What the machine reports of another write that failed.
fn failure(write: &Write, error: &StoreError) -> Option<Failure> {
    if matches!(error, StoreError::Conflict(_)) {
        return None;
    }
    let (reason, what) = match write {
        Write::Create(_) => ("FailedCreate", COPIES_FAILED),
        // What a start leaves over is tried again with it.
        Write::Delete { id, .. } if id.kind != VMI => return failure_of_start(error),
        Write::Delete { .. } => ("FailedDelete", "Failure attempting to delete VMI"),
        Write::Patch {
            part: Part::Main, ..
        } if matches!(error, StoreError::Refused(_)) => ("FailedUpdate", "Failure while updating"),
        // KubeVirt's words.
        Write::Patch {
            part: Part::Live,
            patch,
            ..
        } if matches!(error, StoreError::Refused(_)) => (
            match patch.pointer("/spec/domain") {
                Some(_) => "HotPlugNetworkInterfaceError",
                None => "AffinityChangeError",
            },
            "error encountered when trying to patch vmi",
        ),
        Write::Patch { .. } => return None,
    };
    Some(Failure {
        reason,
        message: format!("{what}: {error}"),
    })
}

/// The same as an event says it.
fn failed(write: &Write, error: &StoreError) -> String {
    match write {
        Write::Delete { id, .. } if id.kind == VMI => {
            format!(
                "Error deleting virtual machine instance {}: {error}",
                id.name
            )
        }
        Write::Patch { id, .. } => format!("Error updating {}: {error}", id.name),
        Write::Create(_) => format!("{COPIES_FAILED}: {error}"),
        Write::Delete { .. } => failed_start(error),
    }
}

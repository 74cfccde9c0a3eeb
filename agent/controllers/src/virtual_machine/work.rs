//! Following machines, and carrying out what is decided for them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_domain::Sort;
use agent_objects::{
    KitPart, ORPHAN_FINALIZER, Object, ObjectId, Part, Write, controller_of, find_kit,
};
use proto_node::from_json;
use proto_node::vmi::VirtualMachine;

use super::memory::Failure;
use super::{MACHINE, Memory, Moment, REVISION, VMI, View, decide, has_finalizer, make, revision};
use crate::{Change, ChangeKind, ObjectStore, Said, StoreError, WorkQueue};

/// The controller of all machines of a store.
#[derive(Debug, Default)]
pub struct VirtualMachines {
    queue: WorkQueue<ObjectId>,
    memories: BTreeMap<ObjectId, Memory>,
    /// The generation that each machine was last seen with.
    generations: BTreeMap<ObjectId, i64>,
    /// Machines that wait for an instance type or preference.
    waiting: BTreeSet<ObjectId>,
    /// The changes up to this version were followed; nothing before the first look.
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
                let machines = store.list(MACHINE, None)?;
                for machine in machines.items {
                    self.queue.add(machine.id(), now);
                }
                self.followed = Some(machines.version);
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
                    self.queue.forgive(&id);
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
        mut say: impl FnMut(&Object, Said),
    ) -> Result<bool, StoreError> {
        let now = moment.elapsed;
        let Some(id) = self.queue.take(now) else {
            return Ok(false);
        };
        let view = match look(store, &id) {
            Ok(Some(view)) => view,
            Ok(None) => {
                self.memories.remove(&id);
                self.generations.remove(&id);
                self.waiting.remove(&id);
                self.queue.forgive(&id);
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
        memory.look(&view);
        let outcome = decide(&view, memory, moment);
        let before = memory.failure.take();
        let done = carry_out(store, &view, outcome.writes, memory, &mut say);
        if memory.failure != before {
            // The status is to say so.
            self.queue.add_at(id.clone(), now);
        }
        match done {
            Done::All => self.queue.forgive(&id),
            Done::NotAll => self.queue.retry(id.clone(), now),
        }
        if let Some(at) = outcome.again_at {
            self.queue.add_at(id, at);
        }
        Ok(true)
    }
}

/// What is to be seen of a machine; nothing when it is gone.
fn look(store: &impl ObjectStore, id: &ObjectId) -> Result<Option<View>, StoreError> {
    // The machine first: the VMI must be no older than it.
    let (_, machine) = store.view(id)?;
    let Some(machine) = machine else {
        return Ok(None);
    };
    let (version, vmi) = store.view(&make::vmi_id(&machine))?;
    let as_message: VirtualMachine = from_json(machine.to_json()).unwrap_or_default();
    let part = |sort| {
        find_kit(&as_message, sort, |id| {
            store.view(id).map(|(_, found)| found)
        })
    };
    let made_of = vmi.as_ref().and_then(revision::made_of);
    let outdated = match made_of {
        Some(made_of) => {
            let of = (REVISION, machine.metadata.namespace.as_str());
            let kept = store.list_owned_or_labelled(of, &machine.metadata.uid, "")?;
            revision::outdated(&machine, made_of, &kept.items)
        }
        None => Vec::new(),
    };
    let started = match made_of.filter(|made_of| *made_of != machine.metadata.generation) {
        Some(made_of) => store.view(&revision::id(&machine, made_of))?.1,
        None => None,
    };
    Ok(Some(View {
        started,
        outdated,
        instancetype: part(Sort::Instancetype)?,
        preference: part(Sort::Preference)?,
        machine,
        vmi,
        version,
    }))
}

/// Whether everything was carried out.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Done {
    All,
    /// Something failed, or was left out for that; it is tried again.
    NotAll,
}

/// Carries writes out, up to the first that fails.
fn carry_out(
    store: &impl ObjectStore,
    view: &View,
    writes: Vec<Write>,
    memory: &mut Memory,
    say: &mut impl FnMut(&Object, Said),
) -> Done {
    let mut machine = view.machine.clone();
    for write in writes {
        let done = match &write {
            Write::Create(copy) if copy.kind == REVISION => match store.create(copy) {
                // Its name says what it is a copy of.
                Err(StoreError::AlreadyExists(_)) => Ok(true),
                made => made.map(|_| true),
            },
            Write::Create(vmi) => create(store, &machine, vmi, memory),
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
                        machine = patched;
                    }
                    true
                })
            }
            Write::Delete { id, preconditions } => match store.delete(id, preconditions) {
                // What is to be deleted is gone.
                Err(StoreError::NotFound(_)) => Ok(true),
                deleted => deleted.map(|()| true),
            },
        };
        match done {
            Ok(true) => tell(view, &write, say),
            Ok(false) => return Done::NotAll,
            Err(error) => {
                if let Some(failure) = failure(&write, &error) {
                    let text = failed(&write, &error);
                    say(&view.machine, Said::warning(failure.reason, text));
                    memory.failure = Some(failure);
                }
                return Done::NotAll;
            }
        }
    }
    Done::All
}

/// Makes the VMI; false when the machine or its VMI is not as it was when that was decided.
fn create(
    store: &impl ObjectStore,
    machine: &Object,
    vmi: &Object,
    memory: &mut Memory,
) -> Result<bool, StoreError> {
    let present = store.get(&machine.id())?;
    let is_same = present.is_some_and(|present| {
        present.metadata.uid == machine.metadata.uid && present.version() == machine.version()
    });
    if !is_same {
        return Ok(false);
    }
    // One that was made before, with the answer lost, is no older than the view by now.
    if let Some(present) = store.get(&vmi.id())? {
        memory.awaited = Some(present.version());
        return Ok(false);
    }
    let made = store.create(vmi)?;
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

fn tell(view: &View, write: &Write, say: &mut impl FnMut(&Object, Said)) {
    match write {
        Write::Create(made) if made.kind == VMI => {
            let message = format!(
                "Started the virtual machine by creating the new virtual machine instance {}",
                made.metadata.name
            );
            say(&view.machine, Said::normal("SuccessfulCreate", message));
        }
        Write::Delete { id, preconditions } if id.kind == VMI => {
            let message = format!(
                "Stopped the virtual machine by deleting the virtual machine instance {}",
                preconditions.uid
            );
            say(&view.machine, Said::normal("SuccessfulDelete", message));
        }
        Write::Create(_) | Write::Patch { .. } | Write::Delete { .. } => {}
    }
}

/// What the machine reports of a failed write. A conflict is no failure: somebody else was faster.
fn failure(write: &Write, error: &StoreError) -> Option<Failure> {
    if matches!(error, StoreError::Conflict(_)) {
        return None;
    }
    let (reason, what) = match write {
        Write::Create(_) => ("FailedCreate", "Failure while starting VMI"),
        // What a start leaves over is tried again with it.
        Write::Delete { id, .. } if id.kind != VMI => {
            ("FailedCreate", "Failure while starting VMI")
        }
        Write::Delete { .. } => ("FailedDelete", "Failure attempting to delete VMI"),
        Write::Patch {
            part: Part::Main, ..
        } if matches!(error, StoreError::Refused(_)) => ("FailedUpdate", "Failure while updating"),
        // KubeVirt's words.
        Write::Patch {
            part: Part::Links, ..
        } if matches!(error, StoreError::Refused(_)) => (
            "HotPlugNetworkInterfaceError",
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
        Write::Create(_) | Write::Delete { .. } => {
            format!("Error creating virtual machine instance: {error}")
        }
    }
}

//! Following sets, and carrying out what is decided for them.

use std::collections::BTreeMap;
use std::time::Duration;

use agent_objects::{Object, ObjectId, Part, Write, controller_of};
use serde_json::Value;

use super::decide::decide;
use super::memory::{Failure, Memory};
use super::view::{SET, VMI, View};
use crate::event::ControllerEvent;
use crate::queue::WorkQueue;
use crate::store::{Change, ChangeKind, ObjectStore, StoreError};

/// The controller of all replica sets of a store.
#[derive(Debug, Default)]
pub struct ReplicaSets {
    queue: WorkQueue<ObjectId>,
    memories: BTreeMap<ObjectId, Memory>,
    /// The generation that each set was last seen with.
    generations: BTreeMap<ObjectId, i64>,
    /// The changes up to this version were followed; `None` before the first round.
    followed: Option<u64>,
}

impl ReplicaSets {
    /// Takes note of what has changed. The first time, and when too much has, all sets are looked at.
    ///
    /// # Errors
    /// [`StoreError::Unknown`].
    pub fn follow(&mut self, store: &impl ObjectStore, now: Duration) -> Result<(), StoreError> {
        let Some(followed) = self.followed else {
            return self.follow_anew(store, now);
        };
        let changes = match store.changes_after(followed) {
            Ok(changes) => changes,
            Err(StoreError::Expired(_)) => return self.follow_anew(store, now),
            Err(error) => return Err(error),
        };
        for change in changes {
            self.followed = Some(change.version);
            self.note(store, &change, now)?;
        }
        Ok(())
    }

    fn follow_anew(&mut self, store: &impl ObjectStore, now: Duration) -> Result<(), StoreError> {
        let (version, sets) = store.names(SET)?;
        for set in sets {
            self.queue.add(set, now);
        }
        self.followed = Some(version);
        Ok(())
    }

    fn note(
        &mut self,
        store: &impl ObjectStore,
        change: &Change,
        now: Duration,
    ) -> Result<(), StoreError> {
        let metadata = &change.metadata;
        if change.kind == SET {
            self.note_set(change, now);
        } else if change.kind == VMI {
            match controller_of(metadata) {
                Some(owner) if owner.kind == SET => {
                    let id = ObjectId {
                        kind: String::from(SET),
                        namespace: metadata.namespace.clone(),
                        name: owner.name.clone(),
                    };
                    self.queue.add(id, now);
                }
                Some(_) => {}
                // Any set may select it.
                None => {
                    let sets = store.list(SET, Some(&metadata.namespace))?;
                    for set in sets.items {
                        self.queue.add(set.id(), now);
                    }
                }
            }
        }
        Ok(())
    }

    fn note_set(&mut self, change: &Change, now: Duration) {
        let id = ObjectId {
            kind: String::from(SET),
            namespace: change.metadata.namespace.clone(),
            name: change.metadata.name.clone(),
        };
        if change.happened == ChangeKind::Deleted {
            self.generations.remove(&id);
        } else {
            let generation = change.metadata.generation;
            // What is wanted differently is tried at once.
            if self.generations.insert(id.clone(), generation) != Some(generation) {
                self.queue.hasten(&id);
            }
        }
        self.queue.add(id, now);
    }

    /// When there is work again, if nothing changes.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.queue.next_due()
    }

    /// Works on the set that has been due for longest; false when none is. `say` records events of the set.
    ///
    /// # Errors
    /// [`StoreError::Unknown`] when the store cannot be read. The set is looked at again later.
    pub fn work(
        &mut self,
        store: &impl ObjectStore,
        (now, date): (Duration, &str),
        mut report: impl FnMut(&Object, ControllerEvent),
    ) -> Result<bool, StoreError> {
        let Some(id) = self.queue.take(now) else {
            return Ok(false);
        };
        let view = match read_view(store, &id) {
            Ok(Some(view)) => view,
            Ok(None) => {
                self.memories.remove(&id);
                self.queue.forgive(&id);
                return Ok(true);
            }
            Err(error) => {
                self.queue.retry(id, now);
                return Err(error);
            }
        };
        let memory = self.memories.entry(id.clone()).or_default();
        memory.observe(&view);
        let outcome = decide(&view, memory, now, date);
        for event in outcome.events {
            report(&view.set, event);
        }
        let before = memory.failure.take();
        let failed = carry_out(store, &view, outcome.writes, memory, &mut report);
        if memory.failure != before {
            // The status is to say so.
            self.queue.add_at(id.clone(), now);
        }
        if failed {
            self.queue.retry(id.clone(), now);
        } else {
            self.queue.forgive(&id);
        }
        if let Some(at) = outcome.again_at {
            self.queue.add_at(id, at);
        }
        Ok(true)
    }
}

/// What is to be seen of a set; nothing when it is gone.
fn read_view(store: &impl ObjectStore, id: &ObjectId) -> Result<Option<View>, StoreError> {
    let sets = store.list(SET, Some(&id.namespace))?;
    let Some(set) = sets.items.into_iter().find(|set| set.id() == *id) else {
        return Ok(None);
    };
    let (namespace, uid) = (&id.namespace, &set.metadata.uid);
    let labels = set.at(&["spec", "selector", "matchLabels"]);
    let first = labels.and_then(Value::as_object).and_then(|labels| {
        let (key, value) = labels.iter().next()?;
        Some(format!("{key}={}", value.as_str()?))
    });
    let vmis = match first {
        Some(label) => store.list_owned_or_labelled((VMI, namespace), uid, &label)?,
        None => store.list(VMI, Some(namespace))?,
    };
    Ok(Some(View {
        set,
        version: vmis.version,
        vmis: vmis.items,
    }))
}

/// Whether the set is there at this moment and is not being deleted. What a set is given after it is gone would be
/// collected as garbage.
fn is_alive(store: &impl ObjectStore, set: &Object) -> Result<bool, StoreError> {
    let present = store.get(&set.id())?;
    Ok(present.is_some_and(|it| it.metadata.uid == set.metadata.uid && !it.is_deleted()))
}

/// Carries writes out; the answer is whether something failed and is to be tried again.
fn carry_out(
    store: &impl ObjectStore,
    view: &View,
    writes: Vec<Write>,
    memory: &mut Memory,
    report: &mut impl FnMut(&Object, ControllerEvent),
) -> bool {
    let takes_in = |write: &Write| match write {
        Write::Create(_) => true,
        Write::Patch { part, .. } => *part == Part::Main,
        Write::Delete { .. } => false,
    };
    if writes.iter().any(takes_in) && !matches!(is_alive(store, &view.set), Ok(true)) {
        return true;
    }
    let mut failed = false;
    for write in writes {
        let answer = carry_out_one(store, &write);
        memory.learn(&write, &answer);
        match (&write, &answer) {
            (Write::Create(_), Ok(Some(made))) if memory.is_ours(made) => {
                let message = format!("Created virtual machine {}", made.metadata.name);
                report(
                    &view.set,
                    ControllerEvent::normal("SuccessfulCreate", message),
                );
            }
            // The name was somebody else's, who may have left it by now: another look finds another.
            (Write::Create(_), Ok(_)) => failed = true,
            (Write::Delete { id, .. }, Ok(_)) => {
                let message = format!("Deleted virtual machine {}", id.name);
                report(
                    &view.set,
                    ControllerEvent::normal("SuccessfulDelete", message),
                );
            }
            // What is to be deleted is gone.
            (Write::Delete { .. }, Err(StoreError::NotFound(_))) | (Write::Patch { .. }, Ok(_)) => {
            }
            (_, Err(error)) => {
                failed = true;
                if let Some(failure) = failure(&write, error) {
                    report(
                        &view.set,
                        ControllerEvent::warning(failure.reason, failure.message.clone()),
                    );
                    memory.failure = Some(failure);
                }
            }
        }
    }
    failed
}

/// What the set reports of a failed write. A conflict is no failure: somebody else was faster.
fn failure(write: &Write, error: &StoreError) -> Option<Failure> {
    let (reason, what) = match write {
        Write::Create(made) => ("FailedCreate", format!("creating {}", made.metadata.name)),
        Write::Delete { id, .. } => ("FailedDelete", format!("deleting {}", id.name)),
        Write::Patch { .. } => return None,
    };
    (!matches!(error, StoreError::Conflict(_))).then(|| Failure {
        reason,
        message: format!("Error {what}: {error}"),
    })
}

/// Carries one write out. A replica that is there already is answered as if it had just been made.
fn carry_out_one(store: &impl ObjectStore, write: &Write) -> Result<Option<Object>, StoreError> {
    match write {
        Write::Create(object) => match store.create(object) {
            Err(StoreError::AlreadyExists(_)) => store.get(&object.id()),
            made => made.map(Some),
        },
        Write::Patch {
            id,
            part,
            patch,
            preconditions,
        } => store.patch(id, *part, patch, preconditions).map(Some),
        Write::Delete { id, preconditions } => store.delete(id, preconditions).map(|()| None),
    }
}

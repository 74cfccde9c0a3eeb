//! What the controller remembers of a set between two rounds. Losing it is harmless as long as the next round has a
//! state that is no older than the last write.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use agent_objects::{Object, Part, Write, controller_of};

use super::view::View;
use crate::queue::delay;
use crate::store::StoreError;

/// So many rounds of replacements follow at once. Further ones wait, so that a guest that ends at once does not keep
/// the node busy.
const FIRST_ROUNDS: u32 = 3;

/// Names of others that are remembered, at most.
const MOST_TAKEN: usize = 256;

/// What is remembered of a set.
#[derive(Clone, Debug, Default)]
pub struct Memory {
    /// The set's uid; another set of the same name begins anew.
    uid: String,
    /// Replicas that were asked for and are not in view, by name.
    pub(super) awaited: BTreeMap<String, Awaited>,
    /// Names that somebody else's objects had: those need not be in view. Other names are as good.
    pub(super) taken: BTreeSet<String>,
    /// Deletions whose outcome is not in view, by uid.
    pub(super) ending: BTreeMap<String, Ending>,
    /// VMIs whose owners the controller may not change, by uid.
    pub(super) left_alone: BTreeSet<String>,
    /// Error of the last round's writes.
    pub(super) failure: Option<Failure>,
    /// Rounds of replacements that followed each other closely.
    rounds: u32,
    /// When the last round was.
    replaced_at: Duration,
}

/// A replica that was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaited {
    /// The store did not say whether it made it.
    Unknown,
    /// It was made at this version.
    Made(u64),
}

/// A deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// The store did not say whether it took it.
    Unknown,
    /// The store took it.
    Taken,
}

/// Why writes were not carried out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

impl Memory {
    /// Takes note of a view: what has come into it is no longer waited for.
    pub fn observe(&mut self, view: &View) {
        let uid = &view.set.metadata.uid;
        if self.uid != *uid {
            *self = Self {
                uid: uid.clone(),
                ..Self::default()
            };
        }
        let is_there = |name: &String| view.vmis.iter().any(|vmi| vmi.metadata.name == *name);
        self.awaited.retain(|name, awaited| {
            let is_past = matches!(awaited, Awaited::Made(at) if *at <= view.version);
            !is_past && !is_there(name)
        });
        self.taken.retain(|name| !is_there(name));
        while self.taken.len() > MOST_TAKEN {
            self.taken.pop_first();
        }
        self.ending.retain(|uid, _| {
            let mut vmis = view.vmis.iter();
            vmis.any(|vmi| vmi.metadata.uid == *uid && !vmi.is_deleted())
        });
        self.left_alone.retain(|uid| {
            let mut vmis = view.vmis.iter();
            vmis.any(|vmi| vmi.metadata.uid == *uid)
        });
    }

    /// Takes note of what became of a write.
    pub(super) fn learn(&mut self, write: &Write, answer: &Result<Option<Object>, StoreError>) {
        match write {
            Write::Create(object) => self.learn_creation(&object.metadata.name, answer),
            Write::Delete { preconditions, .. } => {
                let uid = preconditions.uid.clone();
                match answer {
                    // What is not there, or is another by now, is gone.
                    Ok(_) | Err(StoreError::NotFound(_) | StoreError::Conflict(_)) => {
                        self.ending.insert(uid, Ending::Taken);
                    }
                    Err(StoreError::Unknown(_)) => {
                        self.ending.insert(uid, Ending::Unknown);
                    }
                    Err(_) => {}
                }
            }
            Write::Patch {
                part: Part::Main,
                preconditions,
                ..
            } if matches!(answer, Err(StoreError::Refused(_))) => {
                self.left_alone.insert(preconditions.uid.clone());
            }
            Write::Patch { .. } => {}
        }
    }

    fn learn_creation(&mut self, name: &str, answer: &Result<Option<Object>, StoreError>) {
        match answer {
            Ok(Some(made)) if self.is_ours(made) => {
                let made = Awaited::Made(made.version());
                self.awaited.insert(name.to_owned(), made);
            }
            // Somebody else's object has the name.
            Ok(Some(_)) => {
                self.awaited.remove(name);
                self.taken.insert(name.to_owned());
            }
            Err(StoreError::Unknown(_)) => {
                self.awaited.insert(name.to_owned(), Awaited::Unknown);
            }
            Ok(None) | Err(_) => {
                self.awaited.remove(name);
            }
        }
    }

    /// Whether the set controls an object.
    pub(super) fn is_ours(&self, object: &Object) -> bool {
        controller_of(&object.metadata).is_some_and(|owner| owner.uid == self.uid)
    }

    /// When replicas that have ended may be replaced.
    pub(super) fn replaces_at(&self) -> Duration {
        match self.rounds.checked_sub(FIRST_ROUNDS) {
            Some(more) => self.replaced_at.saturating_add(delay(more)),
            None => Duration::ZERO,
        }
    }

    /// Takes note of a round of replacements. One that comes long after the one before is the first.
    pub(super) fn replaced(&mut self, now: Duration) {
        let pause = delay(self.rounds).saturating_mul(4);
        let is_late = now > self.replaced_at.saturating_add(pause);
        self.rounds = if is_late {
            1
        } else {
            self.rounds.saturating_add(1)
        };
        self.replaced_at = now;
    }
}

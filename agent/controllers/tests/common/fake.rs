//! A store in memory, with Kubernetes' semantics and with seeded faults: a cache that lags behind, requests and replies
//! that are lost, requests that arrive twice, conflicts, and a controller that dies between any two writes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use agent_controllers::{Change, ChangeKind, Listed, ObjectStore, StoreError};
use agent_objects::{
    Given, Kinds, Object, ObjectId, Part, Preconditions, Propagation, Refusal, Written, create,
    delete, patched, update,
};
use serde_json::Value;

pub const VMI: &str = "VirtualMachineInstance";

/// What a VMI has until nothing of its guest is left.
pub const FINALIZER: &str = "kubevirt.io/foregroundDeleteVirtualMachine";

/// A small generator of numbers that follow from a seed (splitmix64).
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let end = u64::try_from(end.max(1)).expect("fits");
        usize::try_from(mixed % end).expect("fits")
    }

    pub fn one_in(&mut self, number: usize) -> bool {
        self.below(number) == 0
    }
}

/// The store.
pub struct Fake(RefCell<Inner>);

struct Inner {
    random: Random,
    has_faults: bool,
    /// Makes two objects in one write, as a ledger does, and not one after the other, as a Kubernetes API does.
    has_transactions: bool,
    version: u64,
    truth: BTreeMap<ObjectId, Object>,
    log: Vec<(u64, ChangeKind, Object)>,
    cache: BTreeMap<ObjectId, Object>,
    cached: u64,
    /// Writes until the controller dies.
    dies_after: Option<usize>,
    is_dead: bool,
    writes: usize,
    creations: usize,
    /// VMIs that were deleted while they had not ended.
    killed: Vec<String>,
    refuses_creations: bool,
}

impl Fake {
    pub fn new(seed: u64) -> Self {
        Self(RefCell::new(Inner {
            random: Random::new(seed),
            has_faults: true,
            has_transactions: seed.is_multiple_of(2),
            version: 0,
            truth: BTreeMap::new(),
            log: Vec::new(),
            cache: BTreeMap::new(),
            cached: 0,
            dies_after: None,
            is_dead: false,
            writes: 0,
            creations: 0,
            killed: Vec::new(),
            refuses_creations: false,
        }))
    }

    /// An object as a user makes it.
    pub fn make(&self, object: Value) -> Object {
        let kinds = Kinds::this_release();
        let (_, object) = kinds.read(object).expect("a legal object");
        self.0.borrow_mut().create(&object).expect("is made")
    }

    /// A change as a user or a guest makes it.
    pub fn change(&self, id: &ObjectId, part: Part, change: &Value) {
        let any = Preconditions::default();
        let changed = self.0.borrow_mut().patch(id, part, change, &any);
        changed.expect("is changed");
    }

    /// A delete by a user.
    pub fn remove(&self, id: &ObjectId) {
        let mut inner = self.0.borrow_mut();
        drop(inner.delete(id, &Preconditions::default(), Propagation::Background));
        inner.killed.clear();
    }

    /// Somebody deletes an object, and leaves what it owns.
    #[allow(dead_code, reason = "of one of the two controllers")]
    pub fn remove_alone(&self, id: &ObjectId) {
        let mut inner = self.0.borrow_mut();
        drop(inner.delete(id, &Preconditions::default(), Propagation::Orphan));
        inner.killed.clear();
    }

    pub fn all(&self, kind: &str) -> Vec<Object> {
        let inner = self.0.borrow();
        let all = inner.truth.values().filter(|it| it.kind == kind);
        all.cloned().collect()
    }

    /// The cache shows some more of what has happened, or all.
    pub fn catch_up(&self, steps: usize) {
        let mut inner = self.0.borrow_mut();
        for _ in 0..steps {
            let cached = inner.cached;
            let Some(next) = inner.log.iter().find(|it| it.0 > cached).cloned() else {
                return;
            };
            let (version, happened, object) = next;
            inner.cached = version;
            match happened {
                ChangeKind::Put => inner.cache.insert(object.id(), object),
                ChangeKind::Deleted => inner.cache.remove(&object.id()),
            };
        }
    }

    pub fn die_after(&self, writes: usize) {
        self.0.borrow_mut().dies_after = Some(writes);
    }

    /// Whether the controller has not come to the write yet that it is to die before.
    pub fn is_to_die(&self) -> bool {
        self.0.borrow().dies_after.is_some()
    }

    /// Whether the controller died; it begins anew, and its cache with what there is.
    pub fn rises(&self) -> bool {
        let died = std::mem::take(&mut self.0.borrow_mut().is_dead);
        if died {
            self.catch_up(usize::MAX);
        }
        died
    }

    pub fn end_faults(&self) {
        let mut inner = self.0.borrow_mut();
        inner.has_faults = false;
        inner.dies_after = None;
        inner.refuses_creations = false;
    }

    pub fn refuse_creations(&self, refuses: bool) {
        self.0.borrow_mut().refuses_creations = refuses;
    }

    /// Writes and creations of the controller so far.
    pub fn counts(&self) -> (usize, usize) {
        let inner = self.0.borrow();
        (inner.writes, inner.creations)
    }

    /// VMIs that the controller deleted though they had not ended.
    #[allow(dead_code, reason = "not every controller's tests ask for it")]
    pub fn killed(&self) -> Vec<String> {
        self.0.borrow().killed.clone()
    }
}

impl Inner {
    fn create(&mut self, object: &Object) -> Result<Object, StoreError> {
        let kinds = Kinds::this_release();
        let kind = kinds.named(&object.kind).map_err(refused)?;
        let object = kinds.read_as(kind, object.to_json()).map_err(refused)?;
        let uid = format!("uid-{}", self.version + 1);
        let date = format!("2026-01-01T00:00:{:02}Z", self.version % 60);
        let given = Given {
            uid: &uid,
            now: &date,
            suffix: "zzzzz",
        };
        let mut object = create(kind, object, &given).map_err(refused)?;
        if self.truth.contains_key(&object.id()) {
            return Err(StoreError::AlreadyExists(object.metadata.name));
        }
        if object.kind == VMI {
            object.metadata.finalizers.push(FINALIZER.to_owned());
        }
        Ok(self.put(object))
    }

    fn patch(
        &mut self,
        id: &ObjectId,
        part: Part,
        change: &Value,
        preconditions: &Preconditions,
    ) -> Result<Object, StoreError> {
        let kinds = Kinds::this_release();
        let kind = kinds.named(&id.kind).map_err(refused)?;
        let present = self.present(id)?;
        let offered = patched((kinds, kind), &present, change, preconditions);
        let written = update(kind, &present, offered.map_err(refused)?, part);
        self.store(&present, written.map_err(refused)?)
    }

    fn delete(
        &mut self,
        id: &ObjectId,
        preconditions: &Preconditions,
        propagation: Propagation,
    ) -> Result<(), StoreError> {
        let present = self.present(id)?;
        let kind = Kinds::this_release().named(&id.kind).map_err(refused)?;
        let how = (preconditions, propagation);
        let written = delete(kind, &present, how, "now");
        let written = written.map_err(refused)?;
        let has_ended = matches!(present.text(&["status", "phase"]), "Succeeded" | "Failed");
        if !has_ended && !present.is_deleted() {
            self.killed.push(present.metadata.name.clone());
        }
        self.store(&present, written).map(drop)
    }

    fn present(&self, id: &ObjectId) -> Result<Object, StoreError> {
        let present = self.truth.get(id).cloned();
        present.ok_or_else(|| StoreError::NotFound(id.name.clone()))
    }

    fn store(&mut self, present: &Object, written: Written) -> Result<Object, StoreError> {
        match written {
            Written::Unchanged => Ok(present.clone()),
            Written::Changed(object) => Ok(self.put(object)),
            Written::Gone(object) => {
                self.truth.remove(&object.id());
                self.note(ChangeKind::Deleted, object.clone());
                Ok(object)
            }
        }
    }

    fn put(&mut self, mut object: Object) -> Object {
        object.metadata.resource_version = (self.version + 1).to_string();
        self.truth.insert(object.id(), object.clone());
        self.note(ChangeKind::Put, object.clone());
        object
    }

    fn note(&mut self, kind: ChangeKind, object: Object) {
        self.version += 1;
        self.log.push((self.version, kind, object));
    }

    /// One write of the controller, through a network and a process that may die.
    fn write<T>(
        &mut self,
        mut work: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let lost = || StoreError::Unknown(String::from("no answer"));
        if self.is_dead {
            return Err(lost());
        }
        self.writes += 1;
        if let Some(left) = &mut self.dies_after {
            if *left == 0 {
                self.is_dead = true;
                self.dies_after = None;
                return Err(lost());
            }
            *left -= 1;
        }
        if !self.has_faults {
            return work(self);
        }
        match self.random.below(12) {
            0 => Err(lost()),
            1 => {
                drop(work(self));
                Err(lost())
            }
            2 => {
                drop(work(self));
                work(self)
            }
            _ => work(self),
        }
    }
}

impl ObjectStore for Fake {
    fn get(&self, id: &ObjectId) -> Result<Option<Object>, StoreError> {
        Ok(self.0.borrow().truth.get(id).cloned())
    }

    fn view(&self, id: &ObjectId) -> Result<(u64, Option<Object>), StoreError> {
        let inner = self.0.borrow();
        Ok((inner.cached, inner.cache.get(id).cloned()))
    }

    fn list(&self, kind: &str, namespace: Option<&str>) -> Result<Listed, StoreError> {
        let inner = self.0.borrow();
        let all = inner.cache.values().filter(|object| {
            object.kind == kind && namespace.is_none_or(|name| object.metadata.namespace == name)
        });
        Ok(Listed {
            version: inner.cached,
            items: all.cloned().collect(),
        })
    }

    fn changes_after(&self, version: u64) -> Result<Vec<Arc<Change>>, StoreError> {
        let mut inner = self.0.borrow_mut();
        if inner.has_faults && inner.random.one_in(40) {
            return Err(StoreError::Expired(String::from("too old")));
        }
        let cached = inner.cached;
        let changes = inner.log.iter();
        let changes = changes.filter(|it| it.0 > version && it.0 <= cached);
        let change = |(version, happened, object): &(u64, ChangeKind, Object)| {
            Arc::new(Change {
                version: *version,
                happened: *happened,
                kind: object.kind.clone(),
                metadata: object.metadata.clone(),
            })
        };
        Ok(changes.map(change).collect())
    }

    fn create(&self, object: &Object) -> Result<Object, StoreError> {
        let mut inner = self.0.borrow_mut();
        inner.creations += 1;
        if inner.refuses_creations {
            inner.writes += 1;
            return Err(StoreError::Refused(String::from("no such network")));
        }
        inner.write(|inner| inner.create(object))
    }

    fn create_after(&self, first: &Object, second: &Object) -> Result<Object, StoreError> {
        let mut inner = self.0.borrow_mut();
        if inner.refuses_creations || !inner.has_transactions {
            drop(inner);
            return match self.create(first) {
                Ok(_) | Err(StoreError::AlreadyExists(_)) => self.create(second),
                Err(error) => Err(error),
            };
        }
        inner.creations += 1;
        inner.write(|inner| {
            if inner.truth.contains_key(&second.id()) {
                return Err(StoreError::AlreadyExists(second.metadata.name.clone()));
            }
            match inner.create(first) {
                Ok(_) | Err(StoreError::AlreadyExists(_)) => inner.create(second),
                Err(error) => Err(error),
            }
        })
    }

    fn patch(
        &self,
        id: &ObjectId,
        part: Part,
        change: &Value,
        preconditions: &Preconditions,
    ) -> Result<Object, StoreError> {
        let mut inner = self.0.borrow_mut();
        inner.write(|inner| inner.patch(id, part, change, preconditions))
    }

    fn delete(&self, id: &ObjectId, preconditions: &Preconditions) -> Result<(), StoreError> {
        let mut inner = self.0.borrow_mut();
        inner.write(|inner| inner.delete(id, preconditions, Propagation::Background))
    }
}

fn refused(refusal: Refusal) -> StoreError {
    match refusal {
        Refusal::Conflict(text) => StoreError::Conflict(text),
        other => StoreError::Refused(other.to_string()),
    }
}

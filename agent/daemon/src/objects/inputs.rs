//! What a write was judged on beside its own object, such as the instance type of a machine. It is read outside of the
//! transaction that stores the write, which checks that it is as it was.

use std::cell::RefCell;

use agent_objects::{Object, ObjectId};
use agent_sources::ApiError;
use agent_store::{ObjectKey, StoreError, Transaction};

use super::{Objects, key, kind_of};
use crate::error::store;

/// Objects that were looked at, and their versions; none of those that were not there.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inputs(Vec<(ObjectKey, Option<u64>)>);

impl Inputs {
    /// Adds what else was looked at.
    pub(super) fn extend(&mut self, more: Self) {
        self.0.extend(more.0);
    }

    /// Whether all are as they were.
    pub(crate) fn are_current(&self, transaction: &Transaction<'_>) -> Result<bool, StoreError> {
        for (key, version) in &self.0 {
            let now = transaction.object(key)?.map(|row| row.resource_version);
            if now != *version {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Finds what an object names, and notes what was found.
pub(super) struct Finder<'a> {
    objects: &'a Objects,
    inputs: RefCell<Inputs>,
    failed: RefCell<Option<ApiError>>,
}

impl<'a> Finder<'a> {
    pub(super) fn new(objects: &'a Objects) -> Self {
        Self {
            objects,
            inputs: RefCell::default(),
            failed: RefCell::default(),
        }
    }

    /// An object, if it is there.
    pub(super) fn find(&self, id: &ObjectId) -> Option<Object> {
        match self.read(id) {
            Ok(found) => found,
            Err(error) => {
                *self.failed.borrow_mut() = Some(error);
                None
            }
        }
    }

    fn read(&self, id: &ObjectId) -> Result<Option<Object>, ApiError> {
        let kind = kind_of(&id.kind)?;
        let key = key(id);
        let row = self.objects.store.ledger().object(&key).map_err(store)?;
        let version = row.as_ref().map(|row| row.resource_version);
        self.inputs.borrow_mut().0.push((key, version));
        row.map(|row| self.objects.read(kind, &row)).transpose()
    }

    /// What was looked at.
    ///
    /// # Errors
    /// What could not be read is not taken for absent.
    pub(super) fn inputs(self) -> Result<Inputs, ApiError> {
        match self.failed.into_inner() {
            Some(error) => Err(error),
            None => Ok(self.inputs.into_inner()),
        }
    }
}

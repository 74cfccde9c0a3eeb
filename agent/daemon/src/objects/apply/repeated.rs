//! A create that was asked for before, by the same idempotency key.

use agent_sources::{ApiError, Applied, Apply};
use agent_store::{ObjectKey, StoreError, StoredObject, Transaction};
use proto_node::meta::ObjectMeta;
use proto_node::object::VMI_KIND;

use crate::error::store;
use crate::object;
use crate::objects::Objects;

/// What was found of an earlier request.
pub(super) struct Earlier {
    version: u64,
    /// The object as it is now. With the same key for something else, a conflict.
    pub(super) answer: Result<Applied, ApiError>,
}

impl Objects {
    /// The answer to a request that was answered before, outside of any transaction: whether it is the same request takes
    /// a whole admission to say.
    pub(super) fn earlier(&self, apply: &Apply) -> Result<Option<Earlier>, ApiError> {
        if apply.idempotency_key.is_empty() {
            return Ok(None);
        }
        let uid = self
            .store
            .ledger()
            .uid_of_idempotency_key(&apply.idempotency_key);
        let Some(uid) = uid.map_err(store)? else {
            return Ok(None);
        };
        let Some(key) = self.store.ledger().key_of(&uid).map_err(store)? else {
            return Ok(None);
        };
        let Some(row) = self.store.ledger().object(&key).map_err(store)? else {
            return Ok(None);
        };
        Ok(Some(Earlier {
            version: row.resource_version,
            answer: answer(apply, &key, &row),
        }))
    }
}

/// Whether what was found of an earlier request is there still, or still nothing.
pub(super) fn is_current(
    transaction: &Transaction<'_>,
    apply: &Apply,
    earlier: Option<&Earlier>,
) -> Result<bool, StoreError> {
    let now = version_of_earlier(transaction, &apply.idempotency_key)?;
    Ok(now == earlier.map(|earlier| earlier.version))
}

fn version_of_earlier(
    transaction: &Transaction<'_>,
    idempotency_key: &str,
) -> Result<Option<u64>, StoreError> {
    if idempotency_key.is_empty() {
        return Ok(None);
    }
    let Some(uid) = transaction.uid_of_idempotency_key(idempotency_key)? else {
        return Ok(None);
    };
    let Some(key) = transaction.key_of(&uid)? else {
        return Ok(None);
    };
    let row = transaction.object(&key)?;
    Ok(row.map(|row| row.resource_version))
}

fn answer(apply: &Apply, key: &ObjectKey, row: &StoredObject) -> Result<Applied, ApiError> {
    if key.kind != VMI_KIND {
        return Err(used_before(apply));
    }
    let present = object::vmi(row)?;
    let same_object = is_meant(
        &object::metadata(&apply.object),
        &object::metadata(&present),
    );
    // What an answer does not distinguish: an object that the caller may not see, and one that it may.
    let same = || super::decision::update(apply.object.clone(), present.clone()).is_ok();
    if !same_object || !same() {
        return Err(used_before(apply));
    }
    // As it was answered then; its actor is there already.
    Ok(Applied {
        object: present,
        created: true,
        configured: false,
        warnings: Vec::new(),
    })
}

fn used_before(apply: &Apply) -> ApiError {
    ApiError::Conflict(format!(
        "idempotency_key {:?} was used before, for another object or for other content: give each request a key \
         of its own",
        apply.idempotency_key
    ))
}

/// Whether the metadata of a request are for this object. A name that the agent made up stands for its prefix.
fn is_meant(wanted: &ObjectMeta, present: &ObjectMeta) -> bool {
    let by_prefix =
        !wanted.generate_name.is_empty() && wanted.generate_name == present.generate_name;
    wanted.namespace == present.namespace && (by_prefix || wanted.name == present.name)
}

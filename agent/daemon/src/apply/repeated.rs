//! A create that was asked for before, by the same idempotency key.

use agent_sources::{ApiError, Applied, Apply};
use agent_store::Transaction;
use proto_node::meta::ObjectMeta;
use proto_node::object::VMI_KIND;

use crate::error::WriteError;
use crate::object;

/// The answer to a request that was answered before: the object as it is now. With the same key for
/// something else, a conflict.
pub(super) fn repeated(
    transaction: &Transaction<'_>,
    apply: &Apply,
) -> Result<Option<Applied>, WriteError> {
    if apply.idempotency_key.is_empty() {
        return Ok(None);
    }
    let Some(uid) = transaction.uid_of_idempotency_key(&apply.idempotency_key)? else {
        return Ok(None);
    };
    let Some(key) = transaction.key_of(&uid)? else {
        return Ok(None);
    };
    let Some(row) = transaction.object(&key)? else {
        return Ok(None);
    };
    if key.kind != VMI_KIND {
        return Err(used_before(apply).into());
    }
    let present = object::vmi(&row)?;
    let same_object = is_meant(
        &object::metadata(&apply.object),
        &object::metadata(&present),
    );
    // What is not told apart: an object that the caller may not see, and one that it may.
    let same = || super::decision::update(apply.object.clone(), present.clone()).is_ok();
    if !same_object || !same() {
        return Err(used_before(apply).into());
    }
    // As it was answered then; its actor is there already.
    Ok(Some(Applied {
        object: present,
        created: true,
        configured: false,
        warnings: Vec::new(),
    }))
}

fn used_before(apply: &Apply) -> ApiError {
    ApiError::Conflict(format!(
        "idempotency_key {:?} was used before, for another object or for other content: give each wish a key \
         of its own",
        apply.idempotency_key
    ))
}

/// Whether a wish is for this object. A name that the agent made up stands for its prefix.
fn is_meant(wish: &ObjectMeta, present: &ObjectMeta) -> bool {
    let by_prefix = !wish.generate_name.is_empty() && wish.generate_name == present.generate_name;
    wish.namespace == present.namespace && (by_prefix || wish.name == present.name)
}

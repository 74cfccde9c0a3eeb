//! A creation that was asked for before, by the same idempotency key.

use agent_objects::{Object, ObjectId, ObjectKind};
use agent_sources::{ApiError, ObjectWritten, WriteBy};

use super::{Objects, key, kind_of};
use crate::error::store;
use crate::idempotency::check_key;

impl Objects {
    /// The answer to a request that was answered before: the object as it is now.
    ///
    /// # Errors
    /// [`ApiError::Conflict`] when the key stands for another object.
    pub(super) fn repeated_write(
        &self,
        kind: &ObjectKind,
        wanted: &Object,
        by: &WriteBy,
    ) -> Result<Option<ObjectWritten>, ApiError> {
        if by.idempotency_key.is_empty() {
            return Ok(None);
        }
        check_key(&by.idempotency_key)?;
        let uid = self
            .store
            .ledger()
            .uid_of_idempotency_key(&by.idempotency_key);
        let Some(uid) = uid.map_err(store)? else {
            return Ok(None);
        };
        let Some(found) = self.store.ledger().key_of(&uid).map_err(store)? else {
            return Ok(None);
        };
        let id = ObjectId {
            kind: found.kind.clone(),
            namespace: found.namespace.clone(),
            name: found.name.clone(),
        };
        let Some(row) = self.store.ledger().object(&key(&id)).map_err(store)? else {
            return Ok(None);
        };
        let metadata = crate::object::metadata_of(&row)?;
        let wanted = &wanted.metadata;
        // A name that the agent made up stands for its prefix.
        let by_prefix =
            !wanted.generate_name.is_empty() && wanted.generate_name == metadata.generate_name;
        let is_meant = id.kind == kind.kind
            && id.namespace == wanted.namespace
            && (by_prefix || id.name == wanted.name);
        if !is_meant {
            return Err(ApiError::Conflict(format!(
                "idempotency_key {:?} was used before, for another object: give each request a key of its own",
                by.idempotency_key
            )));
        }
        Ok(Some(ObjectWritten {
            object: self.read(kind_of(&id.kind)?, &row)?,
            created: true,
            changed: true,
            gone: false,
            warnings: Vec::new(),
        }))
    }
}

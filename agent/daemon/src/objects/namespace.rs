//! What namespaces mean to writes: nothing new comes into one that is being emptied.

use agent_objects::ObjectId;
use agent_sources::ApiError;
use agent_store::{ObjectKey, StoredObject};

use crate::object;

/// Kind of a namespace.
const KIND: &str = "Namespace";

/// The key of the object of a namespace. There need not be one for objects to be in the namespace.
pub(crate) fn key_of(namespace: &str) -> ObjectKey {
    ObjectKey {
        kind: KIND.to_owned(),
        namespace: String::new(),
        name: namespace.to_owned(),
    }
}

/// Refuses a new object in a namespace that is being deleted, with Kubernetes' words.
///
/// # Errors
/// [`ApiError::Forbidden`].
pub(crate) fn check_open(
    namespace: Option<&StoredObject>,
    (plural, id): (&str, &ObjectId),
) -> Result<(), ApiError> {
    let Some(row) = namespace else { return Ok(()) };
    if object::metadata_of(row)?.deletion_timestamp.is_empty() {
        return Ok(());
    }
    Err(ApiError::Forbidden(format!(
        "{plural} {:?} is forbidden: unable to create new content in namespace {} because it is being terminated",
        id.name, id.namespace
    )))
}

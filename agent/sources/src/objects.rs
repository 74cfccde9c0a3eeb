//! Objects of any kind over gRPC, as JSON or as messages.

pub(crate) mod calls;
#[cfg(test)]
mod tests;

use agent_domain::ChangeKind;
use agent_domain::ObjectSource;
use agent_objects::{Encoding, Kinds, Object, ObjectId, Part, Preconditions, Propagation};
use prost::bytes::Bytes;
use proto_node::meta::ObjectMeta;
use serde_json::Value;

use crate::error::ApiError;

/// The writer, and how to write.
#[derive(Clone, Debug)]
pub struct WriteBy {
    /// Source of the write, and of what it creates.
    pub source: ObjectSource,
    /// Judge only.
    pub dry_run: bool,
    /// A repeated creation with the same key does nothing again. Empty: none.
    pub idempotency_key: String,
    /// Who manages the fields that the write changes. Empty: nobody in particular.
    pub manager: String,
}

/// Result of a write.
#[derive(Clone, Debug)]
pub struct ObjectWritten {
    /// The object as it is stored, or its last state.
    pub object: Object,
    /// It is new.
    pub created: bool,
    /// It was there and was changed.
    pub changed: bool,
    /// It is gone.
    pub gone: bool,
    /// Advice.
    pub warnings: Vec<String>,
}

/// Objects of one kind at one version.
#[derive(Clone, Debug)]
pub struct ObjectsListed<T = Object> {
    /// The version of the store that was read.
    pub version: u64,
    /// By namespace and name.
    pub items: Vec<T>,
}

/// In which forms objects are wanted, besides their metadata. Each costs something for each object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Forms {
    /// As JSON text.
    pub json: bool,
    /// As a message.
    pub message: bool,
}

impl Forms {
    /// What a caller is sent, and what selectors of fields are matched against, if there are some.
    #[must_use]
    pub fn of(sent: Encoding, has_fields: bool) -> Self {
        Self {
            json: has_fields || sent == Encoding::Json,
            message: sent == Encoding::Protobuf,
        }
    }
}

/// An object in the forms that were wanted.
#[derive(Clone, Debug)]
pub struct ObjectText {
    /// Metadata by itself, for filters and pages.
    pub metadata: ObjectMeta,
    /// All of it as JSON text.
    pub json: Option<Vec<u8>>,
    /// All of it as a message.
    pub message: Option<Vec<u8>>,
}

/// Which objects a list has. It is asked about each once, by namespace and name.
pub trait Choice {
    /// Whether an object may be chosen: it is read then. Of its metadata only namespace, name and labels are there.
    fn wants(&mut self, metadata: &ObjectMeta) -> bool;

    /// Whether an object that was wanted is chosen, now that its text is there, if [`Self::reads_text`].
    fn keeps(&mut self, metadata: &ObjectMeta, json: &[u8]) -> bool;

    /// Whether it takes an object's text to say whether it is chosen.
    fn reads_text(&self) -> bool;

    /// How the chosen objects are written.
    fn encoding(&self) -> Encoding;
}

/// One change of an object.
#[derive(Clone, Debug)]
pub struct ObjectChange {
    /// The version that it made.
    pub version: u64,
    /// Whether the object was added, modified or deleted.
    pub happened: ChangeKind,
    /// The object, or its last state.
    pub object: ObjectText,
}

/// A change of one object by a merge patch.
#[derive(Clone, Debug)]
pub struct ObjectPatch {
    /// The object.
    pub id: ObjectId,
    /// Part of the object that the patch changes.
    pub part: Part,
    /// The merge patch (RFC 7386).
    pub patch: Value,
    /// Under which conditions.
    pub preconditions: Preconditions,
}

/// A request to scale an object.
#[derive(Clone, Debug)]
pub struct ObjectScale {
    /// The object.
    pub id: ObjectId,
    /// The wanted number.
    pub replicas: i32,
    /// Under which conditions.
    pub preconditions: Preconditions,
}

/// A request to delete an object.
#[derive(Clone, Debug)]
pub struct ObjectDelete {
    /// The object.
    pub id: ObjectId,
    /// Under which conditions.
    pub preconditions: Preconditions,
    /// Whether what it owns is deleted, and when.
    pub propagation: Propagation,
    /// Seconds for a guest to shut down; the object's own when absent.
    pub grace_period_seconds: Option<i64>,
}

/// The agent, as the service of its objects sees it. What a write answers is on disk.
pub trait ObjectRegistry: Clone + Send + Sync + 'static {
    /// The table of kinds.
    fn kinds(&self) -> &'static Kinds;

    /// Creates an object.
    ///
    /// # Errors
    /// [`ApiError::AlreadyExists`], and why it is not admitted.
    fn create_object(
        &self,
        object: Object,
        by: &WriteBy,
    ) -> impl Future<Output = Result<ObjectWritten, ApiError>> + Send;

    /// Creates an object, or changes it by a three-way merge.
    ///
    /// # Errors
    /// Why it is not admitted.
    fn apply_object(
        &self,
        object: Object,
        by: &WriteBy,
    ) -> impl Future<Output = Result<ObjectWritten, ApiError>> + Send;

    /// Puts an object in the place of the one of its name.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Conflict`], and why it is not admitted.
    fn replace_object(
        &self,
        object: Object,
        by: &WriteBy,
    ) -> impl Future<Output = Result<ObjectWritten, ApiError>> + Send;

    /// One object.
    ///
    /// # Errors
    /// [`ApiError::NotFound`].
    fn get_object(&self, id: &ObjectId) -> Result<Object, ApiError>;

    /// All objects of a kind.
    ///
    /// # Errors
    /// [`ApiError::Internal`].
    fn list_objects(&self, kind: &str) -> Result<ObjectsListed, ApiError>;

    /// The objects of a kind, in one namespace or in all, that are chosen, in the encoding of the choice.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`], [`ApiError::Internal`].
    fn list_encoded(
        &self,
        kind: (&str, Option<&str>),
        choice: &mut dyn Choice,
    ) -> Result<ObjectsListed<Bytes>, ApiError>;

    /// Some objects of a kind: those after an object (namespace and name), which need not be there any more, or the first.
    /// There are none only at the end.
    ///
    /// # Errors
    /// [`ApiError::BadRequest`], [`ApiError::Internal`].
    fn list_objects_after(
        &self,
        kind: (&str, Forms),
        after: Option<(&str, &str)>,
    ) -> Result<ObjectsListed<ObjectText>, ApiError>;

    /// The changes of objects of a kind after a version, the oldest first, and up to which version they reach. Only some
    /// are looked at, so there may be more.
    ///
    /// # Errors
    /// [`ApiError::Expired`], [`ApiError::Internal`].
    fn object_changes(
        &self,
        kind: (&str, Forms),
        after: u64,
    ) -> Result<(Vec<ObjectChange>, u64), ApiError>;

    /// Changes an object.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Conflict`], and why it is not admitted.
    fn patch_object(
        &self,
        patch: &ObjectPatch,
        by: &WriteBy,
    ) -> impl Future<Output = Result<ObjectWritten, ApiError>> + Send;

    /// Changes how many are wanted of what an object is a set of.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Conflict`], and [`ApiError::BadRequest`] for an object without a scale.
    fn scale_object(
        &self,
        scale: &ObjectScale,
        by: &WriteBy,
    ) -> impl Future<Output = Result<ObjectWritten, ApiError>> + Send;

    /// Records a warning about an object that may not exist.
    fn warn_of(&self, id: &ObjectId, reason: &str, message: &str);

    /// Deletes an object.
    ///
    /// # Errors
    /// [`ApiError::NotFound`], [`ApiError::Conflict`].
    fn delete_object(
        &self,
        delete: &ObjectDelete,
        by: &WriteBy,
    ) -> impl Future<Output = Result<ObjectWritten, ApiError>> + Send;
}

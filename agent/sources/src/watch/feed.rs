//! Where a watch has its objects from, and in what form its client has them: one for each service.

use agent_domain::ChangeKind;
use agent_objects::ObjectKind;
use prost::Message;
use proto_node::node::watch_response::Type;
use proto_node::node::{Object, WatchObjectsResponse, WatchResponse};
use tokio::sync::watch;

use super::filter::Watched;
use crate::error::ApiError;
use crate::objects::{Forms, ObjectRegistry, ObjectText};
use crate::registry::{GuestRegistry, Kind};

/// Changes read from the store in one go.
pub(super) const BATCH: usize = 64;

/// One change: the version that it made, what happened, and the object or its last state.
pub(crate) type Happened<T> = (u64, ChangeKind, T);

/// Namespace and name of the object after which a list goes on.
pub(crate) type After<'a> = Option<(&'a str, &'a str)>;

/// The version of the store, and objects that were there.
pub(crate) type Page<T> = (u64, Vec<T>);

/// Changes, and up to which version they reach.
pub(crate) type Batch<T> = (Vec<Happened<T>>, u64);

/// Objects of a service.
pub(crate) trait Feed: Send + Sync + 'static {
    /// An object.
    type Item: Watched;
    /// What a client is sent.
    type Response: Send + 'static;

    /// Follows the version of the store.
    fn versions(&self) -> watch::Receiver<u64>;

    /// Some objects of a kind, those after an object or the first, and the version of the store. There are none only at the
    /// end.
    ///
    /// # Errors
    /// Those of the registry.
    fn list(
        &self,
        kind: &'static ObjectKind,
        after: After<'_>,
    ) -> Result<Page<Self::Item>, ApiError>;

    /// Some changes after a version, the oldest first, and up to which version they reach.
    ///
    /// # Errors
    /// [`ApiError::Expired`].
    fn changes(&self, kind: &'static ObjectKind, after: u64)
    -> Result<Batch<Self::Item>, ApiError>;

    /// A response, and how much of the client's budget it takes until it is sent. `version` is empty when a watch cannot
    /// resume after it.
    fn response(kind: Type, object: Option<Self::Item>, version: String)
    -> (Self::Response, usize);
}

/// Of `NodeService`.
pub(crate) struct NodeFeed<O>(pub(crate) O);

impl<O: GuestRegistry> Feed for NodeFeed<O> {
    type Item = Object;
    type Response = WatchResponse;

    fn versions(&self) -> watch::Receiver<u64> {
        self.0.versions()
    }

    fn list(&self, kind: &'static ObjectKind, after: After<'_>) -> Result<Page<Object>, ApiError> {
        let listed = self.0.list_after(served(kind)?, after)?;
        Ok((listed.version, listed.items))
    }

    fn changes(&self, kind: &'static ObjectKind, after: u64) -> Result<Batch<Object>, ApiError> {
        let (changes, until) = self.0.changes_after(served(kind)?, after, BATCH)?;
        let changes = changes.into_iter();
        let changes = changes.map(|change| (change.version, change.change, change.object));
        Ok((changes.collect(), until))
    }

    fn response(kind: Type, object: Option<Object>, version: String) -> (WatchResponse, usize) {
        let size = object.as_ref().map_or(0, Message::encoded_len);
        let response = WatchResponse {
            r#type: kind.into(),
            object,
            resource_version: version,
        };
        (response, size)
    }
}

fn served(kind: &ObjectKind) -> Result<Kind, ApiError> {
    parse_kind(kind.kind)
}

/// Of `ObjectService`. Its client is sent the message of an object where there is one.
pub(crate) struct ObjectFeed<O>(pub(crate) O, pub(crate) Forms);

impl<O: GuestRegistry + ObjectRegistry> Feed for ObjectFeed<O> {
    type Item = ObjectText;
    type Response = WatchObjectsResponse;

    fn versions(&self) -> watch::Receiver<u64> {
        self.0.versions()
    }

    fn list(
        &self,
        kind: &'static ObjectKind,
        after: After<'_>,
    ) -> Result<Page<ObjectText>, ApiError> {
        let listed = self.0.list_objects_after((kind.kind, self.1), after)?;
        Ok((listed.version, listed.items))
    }

    fn changes(
        &self,
        kind: &'static ObjectKind,
        after: u64,
    ) -> Result<Batch<ObjectText>, ApiError> {
        let (changes, until) = self.0.object_changes((kind.kind, self.1), after)?;
        let changes = changes.into_iter();
        let changes = changes.map(|change| (change.version, change.happened, change.object));
        Ok((changes.collect(), until))
    }

    fn response(
        kind: Type,
        object: Option<ObjectText>,
        version: String,
    ) -> (WatchObjectsResponse, usize) {
        let object = object.and_then(|object| object.message.or(object.json));
        let object = object.unwrap_or_default();
        let size = object.len();
        let response = WatchObjectsResponse {
            r#type: kind.into(),
            object,
            resource_version: version,
        };
        (response, size)
    }
}

/// The kind of a request to `NodeService`.
///
/// # Errors
/// [`ApiError::BadRequest`].
pub(crate) fn parse_kind(kind: &str) -> Result<Kind, ApiError> {
    Kind::parse(kind).ok_or_else(|| {
        ApiError::BadRequest(format!(
            "kind {kind:?} is not known (known: VirtualMachineInstance, Event)"
        ))
    })
}

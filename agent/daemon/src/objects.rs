//! Objects of any kind, between the service, the controllers and the ledger. Nothing here asks the host.

mod apply;
mod attempts;
mod companion;
mod delete;
mod guests;
mod inputs;
mod instancetypes;
mod machines;
mod namespace;
mod node;
mod recent;
mod registry;
mod repeated;
mod rows;
mod run;
mod store;
mod sweep;
mod together;
mod wait;
mod write;

use std::sync::Arc;

use agent_objects::{Kinds, LastText, Object, ObjectId, ObjectKind, Refusal};
use agent_sources::{
    ApiError, Choice, Forms, ObjectChange, ObjectDelete, ObjectPatch, ObjectRegistry, ObjectScale,
    ObjectText, ObjectWritten, ObjectsListed, WriteBy,
};
use agent_store::{ObjectKey, Page, StoredObject};
use prost::bytes::Bytes;
use tracing::warn;

use self::recent::RecentChanges;
use crate::actors::Actors;
use crate::control_plane::known::ControlPlanes;
use crate::error::store;
use crate::events::About;
use crate::node::Node;
use crate::store::Store;
use crate::traces::handle::Traces;
use crate::{clock, events};

/// Changes that a watch reads in one go: each may be as large as an object.
const WATCHED: usize = 16;

/// What a watch reads in one go of what is there when it begins.
const PAGE: Page = Page {
    objects: 64,
    bytes: 256 << 10,
};

/// Changes that are looked at in one go.
const CHANGES: usize = 256;

/// The service of objects. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Objects {
    store: Store,
    node: Arc<Node>,
    actors: Arc<Actors>,
    control_planes: Arc<ControlPlanes>,
    traces: Arc<Traces>,
    /// Changes that were handed to controllers.
    recent: Arc<RecentChanges>,
}

impl Objects {
    pub(crate) fn new(
        store: Store,
        node: Arc<Node>,
        actors: Arc<Actors>,
        control_planes: Arc<ControlPlanes>,
        traces: Arc<Traces>,
    ) -> Self {
        Self {
            store,
            node,
            actors,
            control_planes,
            traces,
            recent: Arc::default(),
        }
    }
}

impl ObjectRegistry for Objects {
    fn kinds(&self) -> &'static Kinds {
        Kinds::this_release()
    }

    async fn create_object(&self, object: Object, by: &WriteBy) -> Result<ObjectWritten, ApiError> {
        self.create_any(object, by).await
    }

    async fn apply_object(&self, object: Object, by: &WriteBy) -> Result<ObjectWritten, ApiError> {
        self.apply_three_way(object, by).await
    }

    async fn replace_object(
        &self,
        object: Object,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        self.replace_any(object, by).await
    }

    fn get_object(&self, id: &ObjectId) -> Result<Object, ApiError> {
        let kind = kind_of(&id.kind)?;
        let row = self.store.ledger().object(&key(id)).map_err(store)?;
        let row = row.ok_or_else(|| not_found(kind, id))?;
        self.read(kind, &row)
    }

    fn list_objects(&self, kind: &str) -> Result<ObjectsListed, ApiError> {
        let kind = kind_of(kind)?;
        let (rows, version) = self.store.ledger().objects(kind.kind).map_err(store)?;
        let items = rows.iter().map(|(_, row)| self.read(kind, row));
        Ok(ObjectsListed {
            version,
            items: items.collect::<Result<_, _>>()?,
        })
    }

    fn list_encoded(
        &self,
        (kind, namespace): (&str, Option<&str>),
        choice: &mut dyn Choice,
    ) -> Result<ObjectsListed<Bytes>, ApiError> {
        self.encoded_of(kind_of(kind)?, namespace, choice)
    }

    fn list_objects_after(
        &self,
        (kind, forms): (&str, Forms),
        after: Option<(&str, &str)>,
    ) -> Result<ObjectsListed<ObjectText>, ApiError> {
        let kind = kind_of(kind)?;
        let page = self.store.ledger().objects_after(kind.kind, after, PAGE);
        self.texts((kind, forms), page.map_err(store)?)
    }

    fn object_changes(
        &self,
        (kind, forms): (&str, Forms),
        after: u64,
    ) -> Result<(Vec<ObjectChange>, u64), ApiError> {
        let kind = kind_of(kind)?;
        let some = self.store.ledger().changes_after(kind.kind, after, WATCHED);
        let some = some.map_err(store)?;
        let (ours, until) = (some.changes.into_iter(), some.until);
        let mut last = LastText::default();
        let read = ours.map(|change| {
            Ok(ObjectChange {
                version: change.version,
                happened: change.kind,
                object: self.text((kind, forms), &change.object, &mut last)?,
            })
        });
        Ok((read.collect::<Result<_, ApiError>>()?, until))
    }

    async fn patch_object(
        &self,
        patch: &ObjectPatch,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        self.patch_any(patch, by).await
    }

    async fn scale_object(
        &self,
        scale: &ObjectScale,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        self.scale_any(scale, by).await
    }

    fn warn_of(&self, id: &ObjectId, reason: &str, message: &str) {
        let Ok(kind) = kind_of(&id.kind) else { return };
        let node_name = self.node.name.clone();
        let written = self.store.write(|transaction| {
            let row = transaction.object(&key(id))?;
            let uid = row.map(|row| row.uid).unwrap_or_default();
            let namespace = if id.namespace.is_empty() {
                "default"
            } else {
                &id.namespace
            };
            let about = About {
                api_version: &kind.api_version(),
                kind: kind.kind,
                namespace,
                name: &id.name,
                uid: &uid,
                node_name: &node_name,
            };
            let said = [events::warning(reason, message)];
            self.store
                .record_events_about(transaction, &about, &said, clock::now())
        });
        if let Err(error) = written {
            warn!(%error, "an event could not be recorded");
        }
    }

    async fn delete_object(
        &self,
        delete: &ObjectDelete,
        by: &WriteBy,
    ) -> Result<ObjectWritten, ApiError> {
        self.delete_any(delete, by).await
    }
}

impl Objects {
    fn texts(
        &self,
        kind: (&'static ObjectKind, Forms),
        (rows, version): (Vec<(ObjectKey, StoredObject)>, u64),
    ) -> Result<ObjectsListed<ObjectText>, ApiError> {
        let mut last = LastText::default();
        let items = rows.iter().map(|(_, row)| self.text(kind, row, &mut last));
        Ok(ObjectsListed {
            version,
            items: items.collect::<Result<_, ApiError>>()?,
        })
    }
}

/// The entry of a kind.
fn kind_of(kind: &str) -> Result<&'static ObjectKind, ApiError> {
    let entry = Kinds::this_release().named(kind);
    entry.map_err(|error| ApiError::of_refusal("", "", error))
}

/// The ledger's key of an object.
fn key(id: &ObjectId) -> ObjectKey {
    ObjectKey {
        kind: id.kind.clone(),
        namespace: id.namespace.clone(),
        name: id.name.clone(),
    }
}

/// The name of an object of the ledger.
fn id(key: ObjectKey) -> ObjectId {
    ObjectId {
        kind: key.kind,
        namespace: key.namespace,
        name: key.name,
    }
}

fn refused(kind: &ObjectKind, name: &str, refusal: Refusal) -> ApiError {
    ApiError::of_refusal(kind.kind, name, refusal)
}

fn not_found(kind: &ObjectKind, id: &ObjectId) -> ApiError {
    ApiError::NotFound {
        kind: kind.kind,
        namespace: id.namespace.clone(),
        name: id.name.clone(),
    }
}

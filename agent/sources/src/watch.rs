//! A watch: first what is there, then every change, resumable at each step.

mod told;

use std::sync::Arc;

use agent_objects::{FieldSelector, Kinds, LabelSelector, SelectorError};
use prost::Message;
use proto_node::node::{Object, WatchResponse, watch_response::Type};
use tokio::sync::mpsc;
use tonic::Status;

pub(crate) use self::told::{Seen, Told};
use crate::access::Permit;
use crate::budget::{Call, Charge};
use crate::{ApiError, Change, Kind, Registry};

/// Changes read from the store in one go.
const BATCH: usize = 64;

/// Which objects somebody wants to see.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) kind: Kind,
    pub(crate) namespace: String,
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// What the caller may see.
    pub(crate) permit: Permit,
}

impl Filter {
    /// Reads the four fields that `ListRequest` and `WatchRequest` share. A namespace that the caller may
    /// not see is refused; without one, only those are seen that it may.
    pub(crate) fn parse(
        kind: &str,
        namespace: String,
        labels: &str,
        fields: &str,
        permit: &Permit,
    ) -> Result<Self, ApiError> {
        if !namespace.is_empty() {
            permit.check(&namespace)?;
        }
        let kind = parse_kind(kind)?;
        let bad = |error: SelectorError| ApiError::BadRequest(error.to_string());
        let kinds = Kinds::this_release();
        let entry = kinds.named(kind.as_str());
        let entry = entry.map_err(|error| ApiError::BadRequest(error.to_string()))?;
        Ok(Self {
            kind,
            namespace,
            labels: LabelSelector::parse(labels).map_err(bad)?,
            fields: FieldSelector::parse(fields, kinds, entry).map_err(bad)?,
            permit: permit.clone(),
        })
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        let labels = object.metadata().map(|metadata| &metadata.labels);
        self.covers(object)
            && labels.is_some_and(|labels| self.labels.matches(labels))
            && (self.fields == FieldSelector::default() || self.fields.matches(&object.to_json()))
    }

    /// Whether the object may have matched at another time.
    fn can_match(&self, object: &Object) -> bool {
        self.covers(object)
            && (self.fields == FieldSelector::default() || self.fields.can_match(&object.to_json()))
    }

    fn covers(&self, object: &Object) -> bool {
        let metadata = object.metadata();
        let namespace = metadata.map_or("", |metadata| metadata.namespace.as_str());
        let wanted = self.namespace.is_empty() || namespace == self.namespace;
        wanted && self.permit.covers(namespace)
    }
}

pub(crate) fn parse_kind(kind: &str) -> Result<Kind, ApiError> {
    Kind::parse(kind).ok_or_else(|| {
        ApiError::BadRequest(format!(
            "kind {kind:?} is not known (known: VirtualMachineInstance, Event)"
        ))
    })
}

/// A watch in progress.
pub(crate) struct Watch<R> {
    registry: R,
    filter: Filter,
    /// What the watcher knows, so that what no longer matches can be taken back.
    told: Told,
    version: u64,
    /// What it keeps for its client is charged to this.
    call: Arc<Call>,
    out: mpsc::Sender<Result<WatchResponse, Status>>,
}

/// Ends a watch: its client is gone, or was told why.
struct Ended;

impl<R: Registry> Watch<R> {
    /// A watch that has not begun.
    pub(crate) fn new(
        registry: R,
        filter: Filter,
        call: Arc<Call>,
        out: mpsc::Sender<Result<WatchResponse, Status>>,
    ) -> Self {
        Self {
            registry,
            filter,
            told: Told::default(),
            version: 0,
            call,
            out,
        }
    }

    /// Runs until its client goes away or it fails. It begins after `resource_version`, or with what there
    /// is when that is empty.
    pub(crate) async fn run(mut self, resource_version: String) {
        // The version is followed before the first look, so that no change falls in between.
        let mut versions = self.registry.versions();
        if self.begin(&resource_version).await.is_err() {
            return;
        }
        loop {
            if self.catch_up().await.is_err() {
                return;
            }
            tokio::select! {
                changed = versions.changed() => if changed.is_err() { return },
                () = self.out.closed() => return,
            }
        }
    }

    async fn begin(&mut self, resource_version: &str) -> Result<(), Ended> {
        if !resource_version.is_empty() {
            return match resource_version.parse() {
                Ok(version) => {
                    self.version = version;
                    self.remember_unchanged();
                    Ok(())
                }
                Err(_) => {
                    let text = format!(
                        "resourceVersion {resource_version:?} is not a version of this agent"
                    );
                    self.fail(ApiError::BadRequest(text)).await
                }
            };
        }
        let listed = match self.registry.list(self.filter.kind) {
            Ok(listed) => listed,
            Err(error) => return self.fail(error).await,
        };
        self.version = listed.version;
        // What the watcher does not see is not kept until it has read the rest.
        let seen = listed.items.into_iter();
        let seen: Vec<Object> = seen
            .filter(|object| self.told.note(object, &self.filter))
            .collect();
        for (object, _charge) in self.kept(seen) {
            self.send(Type::Added, Some(object), listed.version).await?;
        }
        self.send(Type::Bookmark, None, listed.version).await
    }

    /// What has not changed since was then as it is now.
    fn remember_unchanged(&mut self) {
        let Ok(listed) = self.registry.list(self.filter.kind) else {
            return;
        };
        for object in &listed.items {
            let version = object.metadata().map(|it| it.resource_version.parse());
            if matches!(version, Some(Ok(version)) if self.version >= version) {
                self.told.note(object, &self.filter);
            }
        }
    }

    async fn catch_up(&mut self) -> Result<(), Ended> {
        loop {
            let changes = match self.registry.changes_after(self.version, BATCH) {
                Ok(changes) => changes,
                Err(error) => return self.fail(error).await,
            };
            let Some(last) = changes.last() else {
                return Ok(());
            };
            self.version = last.version;
            let (kinds, objects) = self.seen(changes);
            for ((kind, version), (object, _charge)) in kinds.into_iter().zip(self.kept(objects)) {
                self.send(kind, Some(object), version).await?;
            }
            // Whoever does not read has no further changes read for it.
            self.call.room().await;
        }
    }

    /// Of changes those that the watcher is told, and how.
    fn seen(&mut self, changes: Vec<Change>) -> (Vec<(Type, u64)>, Vec<Object>) {
        let ours = changes.into_iter();
        let ours = ours.filter(|change| change.kind == self.filter.kind);
        let (told, filter) = (&mut self.told, &self.filter);
        ours.filter_map(|change| {
            let kind = told.judge(&change, filter)?;
            Some(((kind, change.version), change.object))
        })
        .unzip()
    }

    /// Objects, each charged to the caller until it is handed on.
    fn kept(&self, objects: Vec<Object>) -> Vec<(Object, Charge)> {
        let charged = |object: Object| {
            let charge = self.call.charge(object.encoded_len());
            (object, charge)
        };
        objects.into_iter().map(charged).collect()
    }

    async fn send(&self, kind: Type, object: Option<Object>, version: u64) -> Result<(), Ended> {
        let response = WatchResponse {
            r#type: kind.into(),
            object,
            resource_version: version.to_string(),
        };
        self.out.send(Ok(response)).await.map_err(|_| Ended)
    }

    async fn fail(&self, error: ApiError) -> Result<(), Ended> {
        // A client that is gone already needs no reason.
        drop(self.out.send(Err(error.into())).await);
        Err(Ended)
    }
}

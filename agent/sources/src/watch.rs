//! A watch: first what is there, then every change, resumable at each step.

use std::collections::BTreeSet;

use proto_node::node::{Object, WatchResponse, watch_response::Type};
use tokio::sync::mpsc;
use tonic::Status;

use crate::access::Permit;
use crate::{ApiError, Change, ChangeKind, FieldSelector, Kind, LabelSelector, Registry};

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
        let bad = |error: crate::SelectorError| ApiError::BadRequest(error.to_string());
        Ok(Self {
            kind: parse_kind(kind)?,
            namespace,
            labels: LabelSelector::parse(labels).map_err(bad)?,
            fields: FieldSelector::parse(fields).map_err(bad)?,
            permit: permit.clone(),
        })
    }

    pub(crate) fn matches(&self, object: &Object) -> bool {
        let namespace = object
            .metadata()
            .map_or("", |metadata| metadata.namespace.as_str());
        let wanted = self.namespace.is_empty() || namespace == self.namespace;
        if !wanted || !self.permit.covers(namespace) {
            return false;
        }
        if self.labels == LabelSelector::default() && self.fields == FieldSelector::default() {
            return true;
        }
        let json = object.to_json();
        self.labels.matches(&json) && self.fields.matches(&json)
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
    /// Uids that the watcher was told of, so that one that no longer matches can be taken back.
    told: BTreeSet<String>,
    version: u64,
    out: mpsc::Sender<Result<WatchResponse, Status>>,
}

/// Ends a watch: its client is gone, or was told why.
struct Ended;

impl<R: Registry> Watch<R> {
    /// A watch that has not begun.
    pub(crate) fn new(
        registry: R,
        filter: Filter,
        out: mpsc::Sender<Result<WatchResponse, Status>>,
    ) -> Self {
        Self {
            registry,
            filter,
            told: BTreeSet::new(),
            version: 0,
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
                    // What the watcher knows already is not known here: anything may be taken back.
                    self.remember_present()
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
        for object in listed.items {
            if self.filter.matches(&object) {
                self.told.extend(uid(&object));
                self.send(Type::Added, Some(object), listed.version).await?;
            }
        }
        self.send(Type::Bookmark, None, listed.version).await
    }

    fn remember_present(&mut self) -> Result<(), Ended> {
        if let Ok(listed) = self.registry.list(self.filter.kind) {
            // Of what its caller may not see, a watch does not even tell that it went away.
            let seen = listed.items.iter().filter(|object| {
                let metadata = object.metadata();
                metadata.is_some_and(|metadata| self.filter.permit.covers(&metadata.namespace))
            });
            self.told.extend(seen.filter_map(uid));
        }
        Ok(())
    }

    async fn catch_up(&mut self) -> Result<(), Ended> {
        loop {
            let changes = match self.registry.changes_after(self.version, BATCH) {
                Ok(changes) => changes,
                Err(error) => return self.fail(error).await,
            };
            if changes.is_empty() {
                return Ok(());
            }
            for change in changes {
                self.version = change.version;
                if change.kind == self.filter.kind {
                    self.tell(change).await?;
                }
            }
        }
    }

    async fn tell(&mut self, change: Change) -> Result<(), Ended> {
        let Some(uid) = uid(&change.object) else {
            return Ok(());
        };
        let matches = self.filter.matches(&change.object);
        let known = self.told.contains(&uid);
        let kind = match change.change {
            ChangeKind::Deleted if known || matches => {
                self.told.remove(&uid);
                Type::Deleted
            }
            ChangeKind::Deleted => return Ok(()),
            ChangeKind::Added | ChangeKind::Modified if matches => {
                self.told.insert(uid);
                if known && change.change == ChangeKind::Modified {
                    Type::Modified
                } else {
                    Type::Added
                }
            }
            ChangeKind::Added | ChangeKind::Modified if known => {
                self.told.remove(&uid);
                Type::Deleted
            }
            ChangeKind::Added | ChangeKind::Modified => return Ok(()),
        };
        self.send(kind, Some(change.object), change.version).await
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

fn uid(object: &Object) -> Option<String> {
    object.metadata().map(|metadata| metadata.uid.clone())
}

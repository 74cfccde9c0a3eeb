//! A watch of objects: first what is there, then every change, resumable at each step.

use std::sync::Arc;

use agent_objects::{FieldSelector, LabelSelector, Object, ObjectKind};
use proto_node::node::WatchObjectsResponse;
use proto_node::node::watch_response::Type;
use tokio::sync::mpsc;
use tonic::Status;

use super::calls::bytes;
use super::{ObjectChange, ObjectRegistry};
use crate::ApiError;
use crate::access::Permit;
use crate::budget::Call;
use crate::watch::{Seen, Told};

/// Which objects somebody wants to see.
#[derive(Clone, Debug)]
pub(super) struct Filter {
    pub(super) kind: &'static ObjectKind,
    pub(super) namespace: String,
    pub(super) labels: LabelSelector,
    pub(super) fields: FieldSelector,
    /// What the caller may see.
    pub(super) permit: Permit,
}

impl Filter {
    pub(super) fn matches(&self, object: &Object) -> bool {
        self.covers(object)
            && self.labels.matches(&object.metadata.labels)
            && (self.fields == FieldSelector::default() || self.fields.matches(&object.to_json()))
    }

    /// Whether the object may have matched at another time.
    fn can_match(&self, object: &Object) -> bool {
        self.covers(object)
            && (self.fields == FieldSelector::default() || self.fields.can_match(&object.to_json()))
    }

    pub(super) fn covers(&self, object: &Object) -> bool {
        let namespace = &object.metadata.namespace;
        let wanted = self.namespace.is_empty() || *namespace == self.namespace;
        wanted && self.permit.covers(namespace)
    }
}

/// A watch in progress.
pub(super) struct Watch<R> {
    registry: R,
    filter: Filter,
    told: Told,
    version: u64,
    /// What it keeps for its client is charged to this.
    call: Arc<Call>,
    out: mpsc::Sender<Result<WatchObjectsResponse, Status>>,
}

/// Ends a watch: its client is gone, or was told why.
struct Ended;

impl<R: ObjectRegistry> Watch<R> {
    /// A watch that has not begun.
    pub(super) fn new(
        registry: R,
        filter: Filter,
        call: Arc<Call>,
        out: mpsc::Sender<Result<WatchObjectsResponse, Status>>,
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

    /// Runs until its client goes away or it fails. It begins after `resource_version`, or with what there is when
    /// that is empty.
    pub(super) async fn run(mut self, resource_version: String) {
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
        let listed = match self.registry.list_objects(self.filter.kind.kind) {
            Ok(listed) => listed,
            Err(error) => return self.fail(error).await,
        };
        if resource_version.is_empty() {
            self.version = listed.version;
            let mut seen = Vec::new();
            // What the watcher does not see is not kept until it has read the rest.
            for object in listed.items {
                if self.remember(&object) {
                    seen.push((Type::Added, listed.version, bytes(&object)));
                }
            }
            self.send_all(seen).await?;
            return self.send(Type::Bookmark, Vec::new(), listed.version).await;
        }
        let Ok(version) = resource_version.parse() else {
            let text =
                format!("resourceVersion {resource_version:?} is not a version of this agent");
            return self.fail(ApiError::BadRequest(text)).await;
        };
        self.version = version;
        // What has not changed since was then as it is now.
        for object in &listed.items {
            if object.version() <= version {
                self.remember(object);
            }
        }
        Ok(())
    }

    /// The watcher knows an object as it is. Whether it is told of that.
    fn remember(&mut self, object: &Object) -> bool {
        if !self.filter.covers(object) {
            return false;
        }
        let matches = self.filter.matches(object);
        self.told.remember(&object.metadata.uid, matches);
        matches
    }

    async fn catch_up(&mut self) -> Result<(), Ended> {
        loop {
            let kind = self.filter.kind.kind;
            let (changes, until) = match self.registry.object_changes(kind, self.version) {
                Ok(changes) => changes,
                Err(error) => return self.fail(error).await,
            };
            if until == self.version {
                return Ok(());
            }
            self.version = until;
            let seen = self.seen(changes);
            self.send_all(seen).await?;
            // Whoever does not read has no further changes read for it.
            self.call.room().await;
        }
    }

    /// Of changes those that the watcher is told, and how.
    fn seen(&mut self, changes: Vec<ObjectChange>) -> Vec<(Type, u64, Vec<u8>)> {
        let mut seen = Vec::new();
        for change in changes {
            let object = &change.object;
            if !self.filter.covers(object) {
                continue;
            }
            let judged = Seen {
                uid: &object.metadata.uid,
                matches: self.filter.matches(object),
                can_match: self.filter.can_match(object),
            };
            if let Some(kind) = self.told.judge_seen(change.happened, judged) {
                seen.push((kind, change.version, bytes(object)));
            }
        }
        seen
    }

    /// Sends objects, each charged to the caller until it is handed on.
    async fn send_all(&self, seen: Vec<(Type, u64, Vec<u8>)>) -> Result<(), Ended> {
        let charged = |(kind, version, object): (Type, u64, Vec<u8>)| {
            let charge = self.call.charge(object.len());
            (kind, version, object, charge)
        };
        let kept: Vec<_> = seen.into_iter().map(charged).collect();
        for (kind, version, object, _charge) in kept {
            self.send(kind, object, version).await?;
        }
        Ok(())
    }

    async fn send(&self, kind: Type, object: Vec<u8>, version: u64) -> Result<(), Ended> {
        let response = WatchObjectsResponse {
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

//! A watch: first what is there, then every change, resumable at each step.

mod feed;
mod filter;
mod told;

use std::sync::Arc;

use proto_node::node::watch_response::Type;
use tokio::sync::mpsc;
use tonic::Status;

use self::feed::Happened;
pub(crate) use self::feed::{Feed, NodeFeed, ObjectFeed};
pub(crate) use self::filter::{Filter, Watched};
use self::told::Told;
use crate::budget::{Call, Charge};
use crate::{ApiError, Kind};

/// Changes read from the store in one go.
const BATCH: usize = 64;

/// A watcher that is sent nothing for so many versions is sent a bookmark, so that it can resume from there.
const BOOKMARK_EVERY: u64 = 256;

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

/// A watch in progress.
pub(crate) struct Watch<F: Feed> {
    feed: F,
    filter: Filter,
    /// What the watcher knows, so that what no longer matches can be taken back.
    told: Told,
    version: u64,
    /// The version that the watcher was sent last.
    sent: u64,
    /// What it keeps for its client is charged to this.
    call: Arc<Call>,
    out: mpsc::Sender<Result<F::Response, Status>>,
}

/// Ends a watch: its client is gone, or was told why.
struct Ended;

impl<F: Feed> Watch<F> {
    /// A watch that has not begun.
    pub(crate) fn new(
        feed: F,
        filter: Filter,
        call: Arc<Call>,
        out: mpsc::Sender<Result<F::Response, Status>>,
    ) -> Self {
        Self {
            feed,
            filter,
            told: Told::default(),
            version: 0,
            sent: 0,
            call,
            out,
        }
    }

    /// Runs until its client goes away or it fails. It begins after `resource_version`, or with what there is when
    /// that is empty.
    pub(crate) async fn run(mut self, resource_version: String) {
        // The version is followed before the first look, so that no change falls in between.
        let mut versions = self.feed.versions();
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
        let (listed, items) = match self.feed.list(self.filter.kind) {
            Ok(listed) => listed,
            Err(error) => return self.fail(error).await,
        };
        if resource_version.is_empty() {
            self.version = listed;
            // What the watcher does not see is not kept until it has read the rest.
            let items = items.into_iter();
            let seen = items.filter(|object| self.told.note(object, &self.filter));
            let seen: Vec<_> = seen.map(|object| (Type::Added, listed, object)).collect();
            self.send_all(seen).await?;
            return self.bookmark(listed).await;
        }
        let Ok(version) = resource_version.parse() else {
            let text =
                format!("resourceVersion {resource_version:?} is not a version of this agent");
            return self.fail(ApiError::BadRequest(text)).await;
        };
        (self.version, self.sent) = (version, version);
        // What has not changed since was then as it is now.
        for object in &items {
            let metadata = object.metadata();
            let changed = metadata.and_then(|it| it.resource_version.parse::<u64>().ok());
            if changed.is_some_and(|changed| changed <= version) {
                self.told.note(object, &self.filter);
            }
        }
        Ok(())
    }

    async fn catch_up(&mut self) -> Result<(), Ended> {
        loop {
            // Whoever does not read has no further changes read for it.
            self.call.room().await;
            let (changes, until) = match self.feed.changes(self.filter.kind, self.version) {
                Ok(changes) => changes,
                Err(error) => return self.fail(error).await,
            };
            if until == self.version {
                break;
            }
            self.version = until;
            let seen = self.seen(changes);
            self.send_all(seen).await?;
        }
        if self.version.saturating_sub(self.sent) >= BOOKMARK_EVERY {
            self.bookmark(self.version).await?;
        }
        Ok(())
    }

    /// Of changes those that the watcher is told, and how.
    fn seen(&mut self, changes: Vec<Happened<F::Item>>) -> Vec<(Type, u64, F::Item)> {
        let (told, filter) = (&mut self.told, &self.filter);
        let seen = changes
            .into_iter()
            .filter_map(|(version, happened, object)| {
                let kind = told.judge(happened, &object, filter)?;
                Some((kind, version, object))
            });
        seen.collect()
    }

    /// Sends objects, each charged to the caller until it is handed on.
    async fn send_all(&mut self, seen: Vec<(Type, u64, F::Item)>) -> Result<(), Ended> {
        let charged = |(kind, version, object)| {
            let (response, size) = F::response(kind, Some(object), version);
            (version, response, self.call.charge(size))
        };
        let kept: Vec<(u64, F::Response, Charge)> = seen.into_iter().map(charged).collect();
        for (version, response, _charge) in kept {
            self.out.send(Ok(response)).await.map_err(|_| Ended)?;
            self.sent = version;
        }
        Ok(())
    }

    async fn bookmark(&mut self, version: u64) -> Result<(), Ended> {
        let (response, _) = F::response(Type::Bookmark, None, version);
        self.out.send(Ok(response)).await.map_err(|_| Ended)?;
        self.sent = version;
        Ok(())
    }

    async fn fail(&self, error: ApiError) -> Result<(), Ended> {
        // A client that is gone already needs no reason.
        drop(self.out.send(Err(error.into())).await);
        Err(Ended)
    }
}

//! A watch: first what is there, then every change, resumable at each step.

pub(crate) mod feed;
mod filter;
mod sent_objects;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use proto_node::node::watch_response::Type;
use tokio::sync::mpsc;
use tonic::Status;

use self::feed::Happened;
pub(crate) use self::feed::{Feed, NodeFeed, ObjectFeed};
pub(crate) use self::filter::{Filter, Watched};
use self::sent_objects::SentObjects;
use crate::budget::{Call, Charge};
use crate::error::ApiError;

/// A watcher that is sent nothing for so many versions is sent a bookmark, so that it can resume from there.
const BOOKMARK_EVERY: u64 = 256;

/// A watch in progress.
pub(crate) struct Watch<F: Feed> {
    feed: F,
    filter: Filter,
    /// What the watcher knows, so that what no longer matches can be taken back.
    objects: SentObjects,
    version: u64,
    /// The version of the last page of what was there: from then on the watcher knows all of it.
    complete_at: u64,
    /// The version that the watcher was sent last.
    sent: u64,
    /// What it keeps for its client is charged to this.
    call: Arc<Call>,
    out: mpsc::Sender<Result<F::Response, Status>>,
}

/// Ends a watch: its client is gone, or was sent the reason.
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
            objects: SentObjects::default(),
            version: 0,
            complete_at: 0,
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

    /// Reads what is there in pages, so that no watcher keeps all of it. Objects change meanwhile: the watcher is
    /// sent each as it was in its page, and then only those changes since the first page that came later.
    async fn begin(&mut self, resource_version: &str) -> Result<(), Ended> {
        let resumed = match resource_version {
            "" => None,
            text => match text.parse() {
                Ok(version) => Some(version),
                Err(_) => {
                    let text = format!("resourceVersion {text:?} is not a version of this agent");
                    return self.fail(ApiError::BadRequest(text)).await;
                }
            },
        };
        if let (Some(version), false) = (resumed, self.filter.is_selective()) {
            (self.version, self.sent) = (version, version);
            return Ok(());
        }
        let mut last: Option<(String, String)> = None;
        loop {
            // No further page is read for a client that does not read.
            self.available().await?;
            let after = last.as_ref();
            let after = after.map(|(namespace, name)| (namespace.as_str(), name.as_str()));
            let (listed, items) = match self.feed.list(self.filter.kind, after) {
                Ok(page) => page,
                Err(error) => return self.fail(error).await,
            };
            if last.is_none() {
                self.version = resumed.unwrap_or(listed);
                self.sent = self.version;
            }
            let Some(metadata) = items.last().map(Watched::metadata) else {
                break;
            };
            last = metadata.map(|it| (it.namespace.clone(), it.name.clone()));
            if let Some(version) = resumed {
                self.note_unchanged(&items, version);
            } else {
                self.complete_at = listed;
                self.send_page(items).await?;
            }
            if last.is_none() {
                break;
            }
        }
        if resumed.is_some() {
            return Ok(());
        }
        while self.version < self.complete_at && self.advance().await? {}
        self.bookmark(self.version).await
    }

    /// Waits until more may wait for the caller. A client that is gone ends its watch, whatever others of it do.
    async fn available(&self) -> Result<(), Ended> {
        tokio::select! {
            () = self.call.available() => Ok(()),
            () = self.out.closed() => Err(Ended),
        }
    }

    /// What has not changed since a version was then as it is now.
    fn note_unchanged(&mut self, items: &[F::Item], version: u64) {
        for object in items {
            if version_of(object).is_some_and(|changed| changed <= version) {
                self.objects.note(object, &self.filter);
            }
        }
    }

    async fn send_page(&mut self, items: Vec<F::Item>) -> Result<(), Ended> {
        let mut seen = Vec::new();
        for object in items {
            if let Some(changed) = version_of(&object).filter(|it| *it > self.version) {
                self.objects.note_ahead(&object, changed);
            }
            if self.objects.note(&object, &self.filter) {
                seen.push((Type::Added, 0, object));
            }
        }
        self.send_all(seen).await
    }

    async fn catch_up(&mut self) -> Result<(), Ended> {
        while self.advance().await? {}
        if self.version.saturating_sub(self.sent) >= BOOKMARK_EVERY {
            self.bookmark(self.version).await?;
        }
        Ok(())
    }

    /// Sends some changes, if there are any.
    async fn advance(&mut self) -> Result<bool, Ended> {
        // No further changes are read for a client that does not read.
        self.available().await?;
        let (changes, until) = match self.feed.changes(self.filter.kind, self.version) {
            Ok(changes) => changes,
            Err(error) => return self.fail(error).await.map(|()| false),
        };
        if until == self.version {
            return Ok(false);
        }
        self.version = until;
        let seen = self.seen(changes);
        self.send_all(seen).await?;
        Ok(true)
    }

    /// Of changes those that the watcher is sent, and how.
    fn seen(&mut self, changes: Vec<Happened<F::Item>>) -> Vec<(Type, u64, F::Item)> {
        let (objects, filter) = (&mut self.objects, &self.filter);
        let seen = changes
            .into_iter()
            .filter_map(|(version, happened, object)| {
                if objects.is_behind(&object, version) {
                    return None;
                }
                let kind = objects.judge(happened, &object, filter)?;
                Some((kind, version, object))
            });
        seen.collect()
    }

    /// Sends objects, each charged to the caller until it is handed on. A watch resumes after those alone with which it
    /// knows all that there is.
    async fn send_all(&mut self, seen: Vec<(Type, u64, F::Item)>) -> Result<(), Ended> {
        let charged = |(kind, version, object): (Type, u64, F::Item)| {
            let resumable = Some(version).filter(|it| *it >= self.complete_at && *it > 0);
            let text = resumable.map_or_else(String::new, |version| version.to_string());
            let (response, size) = F::response(kind, Some(object), text);
            (version, response, self.call.charge(size))
        };
        let kept: Vec<(u64, F::Response, Charge)> = seen.into_iter().map(charged).collect();
        for (version, response, _charge) in kept {
            self.out.send(Ok(response)).await.map_err(|_| Ended)?;
            self.sent = self.sent.max(version);
        }
        Ok(())
    }

    async fn bookmark(&mut self, version: u64) -> Result<(), Ended> {
        let (response, _) = F::response(Type::Bookmark, None, version.to_string());
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

/// The version of the store that wrote an object.
fn version_of(object: &impl Watched) -> Option<u64> {
    object.metadata()?.resource_version.parse().ok()
}

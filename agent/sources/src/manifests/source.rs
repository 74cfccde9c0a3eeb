//! The loop: notice, scan, reconcile, apply.

use std::collections::BTreeSet;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use agent_domain::{ObjectSource, SOURCE_ANNOTATION};
use futures_util::StreamExt;
use inotify::{EventStream, Inotify, WatchMask};
use proto_node::node::object;
use proto_node::vmi::VirtualMachineInstance;
use tracing::{info, warn};

use super::directory::{Complaint, Directory, VmiKey, key_of};
use super::others::{MANAGER, Others};
use super::reconcile::{DIGEST_ANNOTATION, REASON, Step, directory, reconcile};
use crate::error::ApiError;
use crate::node_view::NodeView;
use crate::objects::ObjectRegistry;
use crate::registry::{Apply, CallerTrace, Delete, GuestRegistry, Kind, ObjectRef};

/// The directory is scanned this often even when nothing was noticed.
const RESCAN: Duration = Duration::from_secs(30);

/// A look at the directory that takes longer is logged: its file system may not answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Several changes that come together are one.
const SETTLE: Duration = Duration::from_millis(100);

/// A manifest directory as a source of objects.
pub struct ManifestSource<O, N> {
    objects: O,
    node: N,
    path: PathBuf,
    directory: Directory,
    others: Others,
    /// Complaints that were logged already, so that each is logged once.
    said: BTreeSet<String>,
    /// Desired objects that admission refused, by digest; they are not tried again as they are.
    refused: BTreeSet<(VmiKey, String)>,
    /// All VMIs were as the files want them.
    settled: Option<Settled>,
    listable: bool,
    /// It was looked for before.
    looked: bool,
    /// What tells of changes, while the directory is followed.
    changes: Option<Changes>,
}

/// What was looked at when nothing was left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Settled {
    /// The version at which VMIs were listed.
    version: u64,
    /// Whether the node took guests.
    is_open: bool,
}

impl<O: GuestRegistry + ObjectRegistry, N: NodeView> ManifestSource<O, N> {
    /// A source for the directory at `path`, which may come into being later.
    #[must_use]
    pub fn new(objects: O, node: N, path: PathBuf) -> Self {
        Self {
            path,
            directory: Directory::new(objects.kinds()),
            others: Others::default(),
            said: BTreeSet::new(),
            refused: BTreeSet::new(),
            settled: None,
            listable: true,
            looked: false,
            changes: None,
            objects,
            node,
        }
    }

    /// Follows the directory until `shutdown` is done.
    pub async fn run(mut self, shutdown: impl Future<Output = ()> + Send) {
        tokio::pin!(shutdown);
        let mut versions = self.objects.versions();
        loop {
            let scanned = tokio::select! {
                () = &mut shutdown => return,
                scanned = self.scan() => scanned,
            };
            if scanned {
                self.settle().await;
            }
            versions.mark_unchanged();
            loop {
                tokio::select! {
                    () = &mut shutdown => return,
                    () = noticed(&mut self.changes) => {
                        tokio::time::sleep(SETTLE).await;
                        break;
                    }
                    () = tokio::time::sleep(RESCAN) => break,
                    // An object that ended may have to be made anew.
                    changed = versions.changed() => {
                        if changed.is_err() {
                            return;
                        }
                        // Where a VMI has changed, all are read: once for many changes.
                        tokio::time::sleep(SETTLE).await;
                        versions.mark_unchanged();
                        if scanned {
                            self.settle_again().await;
                        }
                    }
                }
            }
        }
    }

    /// Reads the directory on a thread of its own, for as long as that takes.
    async fn read(&mut self) -> io::Result<Vec<Complaint>> {
        let (path, is_followed) = (self.path.clone(), self.changes.is_some());
        let is_first = !std::mem::replace(&mut self.looked, true);
        let unread = self.directory.unread();
        let mut directory = std::mem::replace(&mut self.directory, unread);
        let mut reading = tokio::task::spawn_blocking(move || {
            if is_first {
                make(&path);
            }
            let changes = if is_followed { None } else { follow(&path) };
            let scanned = directory.scan(&path);
            (directory, changes, scanned)
        });
        let read = match tokio::time::timeout(PATIENCE, &mut reading).await {
            Ok(read) => read,
            Err(_) => {
                warn!(directory = %self.path.display(),
                    "the manifest directory does not answer; what came from it stays as it is");
                reading.await
            }
        };
        // Where reading panicked, all files are read anew the next time.
        let (directory, changes, scanned) = read.map_err(io::Error::other)?;
        self.directory = directory;
        self.changes = self.changes.take().or(changes);
        scanned
    }

    /// Reads the directory; false when it cannot be listed.
    async fn scan(&mut self) -> bool {
        match self.read().await {
            Ok(complaints) => {
                self.listable = true;
                self.others.scanned();
                for complaint in complaints {
                    self.complain(&complaint).await;
                }
                true
            }
            Err(error) => {
                if std::mem::replace(&mut self.listable, false) {
                    warn!(directory = %self.path.display(), %error,
                        "the manifest directory cannot be listed; what came from it stays as it is");
                }
                false
            }
        }
    }

    /// The same after something was written, by whomever and of whatever kind. Most of it is of no concern to the files.
    async fn settle_again(&mut self) {
        self.others.settle(&self.objects, &self.directory).await;
        if !self.is_settled() {
            self.settle_guests().await;
        }
    }

    /// Whether VMIs, and what else is decided on, are as they were when nothing was left to do.
    fn is_settled(&self) -> bool {
        let Some(settled) = self.settled else {
            return false;
        };
        let kind = Kind::VirtualMachineInstance;
        let changes = self.objects.changes_after(kind, settled.version, 1);
        settled.is_open != self.node.is_unschedulable()
            && changes.is_ok_and(|(changes, _)| changes.is_empty())
    }

    /// Brings what is there in line with what the files say.
    async fn settle(&mut self) {
        self.others.settle(&self.objects, &self.directory).await;
        self.settle_guests().await;
    }

    async fn settle_guests(&mut self) {
        self.settled = None;
        let (desired_objects, complaints) = self.directory.vmis();
        for complaint in complaints {
            self.complain(&complaint).await;
        }
        let listed = match self.objects.list(Kind::VirtualMachineInstance) {
            Ok(listed) => listed,
            Err(error) => return warn!(%error, "objects cannot be listed; manifests wait"),
        };
        let version = listed.version;
        let present: Vec<_> = listed.items.into_iter().filter_map(vmi).collect();
        let digests: BTreeSet<(VmiKey, String)> = desired_objects
            .iter()
            .map(|(key, desired)| (key.clone(), desired.digest.clone()))
            .collect();
        self.refused.retain(|refused| digests.contains(refused));
        let is_open = !self.node.is_unschedulable();
        let steps = reconcile(&desired_objects, &present, is_open, |file| {
            self.directory.is_unknown(file)
        });
        self.settled = steps.is_empty().then_some(Settled { version, is_open });
        for step in steps {
            self.carry_out(step).await;
        }
    }

    async fn carry_out(&mut self, step: Step) {
        match step {
            Step::Create(object) => self.create(*object).await,
            Step::Delete {
                key: (namespace, name),
                uid,
                why,
            } => {
                info!(vmi = %format_args!("{namespace}/{name}"), uid, why, "deleting");
                let target = ObjectRef {
                    kind: Kind::VirtualMachineInstance,
                    namespace,
                    name,
                };
                let delete = Delete {
                    target,
                    grace_period_seconds: None,
                    uid,
                    resource_version: String::new(),
                    by: directory(),
                    propagation: None,
                    dry_run: false,
                };
                if let Err(error) = self.objects.delete(delete).await {
                    warn!(%error, "a VMI whose manifest is gone cannot be deleted; trying again");
                }
            }
            Step::Taken { key, file, source } => {
                let message = format!(
                    "{}/{} is left out: an object of that name belongs to {source}; {}",
                    key.0,
                    key.1,
                    source.way_out()
                );
                self.complain(&Complaint {
                    file,
                    object: key,
                    message,
                })
                .await;
            }
        }
    }

    async fn create(&mut self, object: VirtualMachineInstance) {
        let key = key_of(&object);
        let annotation = |name: &str| {
            object
                .metadata
                .as_ref()
                .and_then(|metadata| metadata.annotations.get(name))
                .cloned()
                .unwrap_or_default()
        };
        let digest = annotation(DIGEST_ANNOTATION);
        let file = annotation(SOURCE_ANNOTATION)
            .trim_start_matches("file:")
            .to_owned();
        let by = ObjectSource::ManifestDirectory { file: file.clone() };
        let refusal = (key.clone(), digest);
        if self.refused.contains(&refusal) {
            return;
        }
        let apply = Apply {
            object,
            idempotency_key: String::new(),
            dry_run: false,
            create_only: true,
            by,
            manager: String::from(MANAGER),
            trace: CallerTrace::default(),
        };
        match self.objects.apply(apply).await {
            Ok(applied) => {
                let uid = applied
                    .object
                    .metadata
                    .map(|metadata| metadata.uid)
                    .unwrap_or_default();
                info!(vmi = %format_args!("{}/{}", key.0, key.1), uid, file, "made from its manifest");
                for warning in applied.warnings {
                    info!(vmi = %format_args!("{}/{}", key.0, key.1), "{warning}");
                }
            }
            Err(error) => {
                let permanent = matches!(error, ApiError::Invalid { .. } | ApiError::BadRequest(_));
                if permanent {
                    self.refused.insert(refusal);
                }
                self.complain(&Complaint {
                    file,
                    object: key,
                    message: error.to_string(),
                })
                .await;
            }
        }
    }

    async fn complain(&mut self, complaint: &Complaint) {
        let (namespace, name) = &complaint.object;
        let text = format!("{}: {}", complaint.file, complaint.message);
        // Bounded: a directory that changes for ever must not fill the memory.
        if self.said.len() > 4096 {
            self.said.clear();
        }
        if !self.said.insert(text.clone()) {
            return;
        }
        warn!(file = complaint.file, "{}", complaint.message);
        let namespace = if namespace.is_empty() {
            String::from("default")
        } else {
            namespace.clone()
        };
        let name = if name.is_empty() {
            complaint.file.clone()
        } else {
            name.clone()
        };
        let target = ObjectRef {
            kind: Kind::VirtualMachineInstance,
            namespace,
            name,
        };
        self.objects.warn(&target, REASON, &text).await;
    }
}

fn vmi(object: proto_node::node::Object) -> Option<VirtualMachineInstance> {
    match object.kind {
        Some(object::Kind::VirtualMachineInstance(vmi)) => Some(vmi),
        _ => None,
    }
}

type Changes = EventStream<Vec<u8>>;

/// Without the directory the source waits for it; a read-only /etc is no reason not to run.
fn make(path: &Path) {
    if let Err(error) = std::fs::create_dir_all(path) {
        warn!(directory = %path.display(), %error, "the manifest directory cannot be made");
    }
}

/// Begins to follow the directory. Without it, or without inotify, scans by the clock remain.
fn follow(path: &Path) -> Option<Changes> {
    let mask = WatchMask::CLOSE_WRITE
        | WatchMask::MOVED_TO
        | WatchMask::MOVED_FROM
        | WatchMask::DELETE
        | WatchMask::ATTRIB
        | WatchMask::DELETE_SELF
        | WatchMask::MOVE_SELF
        | WatchMask::ONLYDIR;
    let inotify = Inotify::init().ok()?;
    inotify.watches().add(path, mask).ok()?;
    inotify.into_event_stream(vec![0; 4096]).ok()
}

/// Done when something changed. The stream is dropped when it ends or the directory itself went, so
/// that it is set up anew.
async fn noticed(changes: &mut Option<Changes>) {
    let Some(stream) = changes else {
        return std::future::pending().await;
    };
    match stream.next().await {
        Some(Ok(event)) => {
            let gone = inotify::EventMask::DELETE_SELF
                | inotify::EventMask::MOVE_SELF
                | inotify::EventMask::IGNORED;
            if event.mask.intersects(gone) {
                *changes = None;
            }
        }
        Some(Err(_)) | None => *changes = None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeRegistry;

    #[tokio::test]
    async fn vmis_are_listed_again_only_when_one_has_changed() {
        let directory = tempfile::tempdir().expect("a directory");
        let registry = FakeRegistry::new();
        let mut source = ManifestSource::new(
            registry.clone(),
            registry.clone(),
            directory.path().to_owned(),
        );
        assert!(source.scan().await);
        source.settle().await;
        assert_eq!(registry.listed(), 1);
        for _ in 0..10 {
            registry.print();
            source.settle_again().await;
        }
        assert_eq!(registry.listed(), 1, "others have changed alone");
        registry.put(&[String::from(
            "apiVersion: kubevirt.io/v1\nkind: VirtualMachineInstance\nmetadata: {name: web}\nspec: {domain: {devices: {}}}\n",
        )]);
        source.settle_again().await;
        assert_eq!(registry.listed(), 2);
        // The look at the files themselves, every 30 seconds, believes nobody.
        assert!(source.scan().await);
        source.settle().await;
        assert_eq!(registry.listed(), 3);
    }
}

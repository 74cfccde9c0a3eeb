//! The search for objects whose file is gone.
//!
//! It reads every object of a kind, and a node may have thousands that no file asked for. A kind in which it found nothing to
//! delete is read again only when a file has changed since, or an object of that kind that came from a file.

use std::collections::BTreeMap;

use agent_domain::ObjectSource;
use agent_objects::{Object, ObjectId, Preconditions, Propagation, Writer};
use proto_node::meta::ObjectMeta;
use tracing::{info, warn};

use super::directory::{Directory, OtherObject};
use super::reconcile::directory;
use crate::error::ApiError;
use crate::objects::{Forms, ObjectDelete, ObjectRegistry, WriteBy};

/// Batches of changes that are looked at in place of all objects; where there are more, the objects are read.
const BATCHES: usize = 16;

/// Kinds that hold nothing whose file is gone.
#[derive(Debug, Default)]
pub(crate) struct Swept {
    /// The version of the store at which that was so, by kind.
    kinds: BTreeMap<&'static str, u64>,
    /// The revision of the files that it holds for.
    revision: u64,
}

impl Swept {
    /// Deletes what came from files that are gone; false when it is to be tried again.
    pub(crate) async fn sweep(
        &mut self,
        objects: &impl ObjectRegistry,
        files: &Directory,
        desired_objects: &BTreeMap<ObjectId, OtherObject>,
    ) -> bool {
        if self.revision != files.revision() {
            self.kinds.clear();
            self.revision = files.revision();
        }
        let mut is_done = true;
        let kinds = objects.kinds().all();
        for kind in kinds.filter(|kind| matches!(kind.writer, Writer::Objects(_))) {
            if self.is_swept(objects, kind.kind) {
                continue;
            }
            let listed = match objects.list_objects(kind.kind) {
                Ok(listed) => listed,
                Err(error) => {
                    warn!(kind = kind.kind, %error, "objects cannot be listed; what came from files stays");
                    continue;
                }
            };
            let is_left_over = |object: &Object| {
                let file = file_of(&object.metadata);
                file.is_some_and(|file| !files.is_unknown(&file))
                    && !object.is_deleted()
                    && !desired_objects.contains_key(&object.id())
            };
            let left_over: Vec<Object> = listed.items.into_iter().filter(is_left_over).collect();
            if left_over.is_empty() {
                self.kinds.insert(kind.kind, listed.version);
            }
            for object in left_over {
                is_done &= delete(objects, &object).await;
            }
        }
        is_done
    }

    /// Whether nothing has come to a kind since that files could have left over.
    fn is_swept(&mut self, objects: &impl ObjectRegistry, kind: &'static str) -> bool {
        for _ in 0..BATCHES {
            let Some(version) = self.kinds.get_mut(kind) else {
                return false;
            };
            // Where the log of changes does not reach back, all are read.
            let Ok((changes, until)) = objects.object_changes((kind, Forms::default()), *version)
            else {
                return false;
            };
            if changes.is_empty() {
                *version = until;
                return true;
            }
            let mut changes = changes.iter();
            if changes.any(|change| file_of(&change.object.metadata).is_some()) {
                return false;
            }
            *version = until;
        }
        false
    }
}

/// The file that an object came from.
fn file_of(metadata: &ObjectMeta) -> Option<String> {
    match ObjectSource::of(&metadata.annotations) {
        ObjectSource::ManifestDirectory { file } => Some(file),
        _ => None,
    }
}

/// Deletes an object whose manifest is gone; false when that failed.
async fn delete(objects: &impl ObjectRegistry, object: &Object) -> bool {
    let id = object.id();
    let (kind, name, namespace) = (&id.kind, &id.name, &id.namespace);
    let file = file_of(&object.metadata);
    info!(
        kind,
        name, namespace, file, "deleting: its manifest was removed"
    );
    let delete = ObjectDelete {
        preconditions: Preconditions::same(&object.metadata),
        propagation: Propagation::Background,
        grace_period_seconds: None,
        id,
    };
    let by = WriteBy {
        source: directory(),
        dry_run: false,
        idempotency_key: String::new(),
        manager: String::new(),
    };
    let deleted: Result<_, ApiError> = objects.delete_object(&delete, &by).await;
    if let Err(error) = &deleted {
        warn!(%error, "an object whose manifest is gone cannot be deleted; trying again");
    }
    deleted.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::FakeRegistry;

    #[tokio::test]
    async fn objects_are_read_again_only_when_files_or_objects_of_files_have_changed() {
        let path = tempfile::tempdir().expect("a directory");
        let registry = FakeRegistry::new();
        let mut files = Directory::new(registry.kinds());
        let mut swept = Swept::default();
        let read = |registry: &FakeRegistry| std::mem::take(&mut *registry.read_whole());
        let nothing = BTreeMap::new();

        assert!(swept.sweep(&registry, &files, &nothing).await);
        let all = read(&registry);
        assert!(all.contains("VirtualMachine"), "{all:?}");

        files.scan(path.path()).expect("a scan");
        registry.change("VirtualMachine", None);
        assert!(swept.sweep(&registry, &files, &nothing).await);
        assert_eq!(
            read(&registry),
            Default::default(),
            "an object of nobody's file"
        );

        registry.change("VirtualMachine", Some("a.yaml"));
        assert!(swept.sweep(&registry, &files, &nothing).await);
        assert_eq!(read(&registry), ["VirtualMachine".to_owned()].into());
        assert!(swept.sweep(&registry, &files, &nothing).await);
        assert_eq!(read(&registry), Default::default(), "that change was seen");

        for _ in 0..1000 {
            registry.change("VirtualMachine", None);
        }
        assert!(swept.sweep(&registry, &files, &nothing).await);
        assert_eq!(
            read(&registry),
            ["VirtualMachine".to_owned()].into(),
            "too many changes"
        );

        for text in ["- broken", "- otherwise"] {
            std::fs::write(path.path().join("a.yaml"), text).expect("written");
            files.scan(path.path()).expect("a scan");
            assert!(swept.sweep(&registry, &files, &nothing).await);
            assert_eq!(read(&registry), all, "{text}");
        }
        std::fs::remove_file(path.path().join("a.yaml")).expect("removed");
        files.scan(path.path()).expect("a scan");
        assert!(swept.sweep(&registry, &files, &nothing).await);
        assert_eq!(read(&registry), all);
    }
}

//! Objects without a guest that files ask for: made and changed as by `kvmctl apply`, and deleted with their file.

use std::collections::{BTreeMap, BTreeSet};

use agent_domain::Owner;
use agent_objects::{Object, ObjectId, Preconditions, Propagation, Writer};
use tracing::{info, warn};

use super::directory::Directory;
use super::source::directory;
use crate::{ApiError, ObjectDelete, ObjectRegistry, WriteBy};

/// An object that a file asks for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct OtherWish {
    /// Name of the file.
    pub(crate) file: String,
    /// What is wished for.
    pub(crate) object: Object,
}

/// What became of wishes. They are applied once for each content; the agent that starts applies them all, which changes
/// nothing where they are as they were.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// As it was applied, or refused for good. In memory alone: a digest of a Secret would tell guesses apart.
    settled: BTreeMap<ObjectId, OtherWish>,
    /// What was said already.
    said: BTreeSet<String>,
    /// Objects of files that are gone were looked for since the files changed.
    is_swept: bool,
}

impl Others {
    /// The files may have changed.
    pub(crate) fn scanned(&mut self) {
        self.is_swept = false;
    }

    /// Brings what is there in line with what the files say.
    pub(crate) fn settle(&mut self, registry: &impl ObjectRegistry, files: &Directory) {
        let (wishes, complaints) = files.others();
        for (id, file, message) in complaints {
            self.complain(registry, &id, &file, &message);
        }
        for (id, wish) in &wishes {
            self.apply(registry, id, wish);
        }
        self.settled.retain(|id, _| wishes.contains_key(id));
        if !self.is_swept {
            self.is_swept = self.sweep(registry, files, &wishes);
        }
    }

    fn apply(&mut self, registry: &impl ObjectRegistry, id: &ObjectId, wish: &OtherWish) {
        let present = match registry.get_object(id) {
            Ok(present) => Some(present),
            Err(ApiError::NotFound { .. }) => None,
            Err(error) => return self.complain(registry, id, &wish.file, &error.to_string()),
        };
        let is_settled = self.settled.get(id) == Some(wish);
        match &present {
            Some(object) if object.is_deleted() => return,
            Some(object) => {
                let owner = Owner::of(&object.metadata.annotations);
                if !matches!(owner, Owner::ManifestDirectory { .. }) {
                    let way_out = owner.way_out();
                    let message = format!(
                        "{} {:?} is left out: an object of that name belongs to {owner}; {way_out}",
                        id.kind, id.name
                    );
                    return self.complain(registry, id, &wish.file, &message);
                }
                if is_settled {
                    return;
                }
            }
            None => {}
        }
        let by = WriteBy {
            owner: Owner::ManifestDirectory {
                file: wish.file.clone(),
            },
            dry_run: false,
            idempotency_key: String::new(),
        };
        match registry.apply_object(wish.object.clone(), &by) {
            Ok(written) => {
                if written.changed {
                    let (kind, name) = (&id.kind, &id.name);
                    info!(
                        kind,
                        name,
                        namespace = id.namespace,
                        file = wish.file,
                        "applied from its manifest"
                    );
                }
                self.settled.insert(id.clone(), wish.clone());
            }
            Err(error) => {
                let is_final = matches!(error, ApiError::Invalid { .. } | ApiError::BadRequest(_));
                if is_final && is_settled {
                    return;
                }
                if is_final {
                    self.settled.insert(id.clone(), wish.clone());
                }
                self.complain(registry, id, &wish.file, &error.to_string());
            }
        }
    }

    /// Deletes what came from files that are gone; false when it is to be tried again.
    fn sweep(
        &mut self,
        registry: &impl ObjectRegistry,
        files: &Directory,
        wishes: &BTreeMap<ObjectId, OtherWish>,
    ) -> bool {
        let mut is_done = true;
        let kinds = registry.kinds().all();
        for kind in kinds.filter(|kind| matches!(kind.writer, Writer::Objects(_))) {
            let listed = match registry.list_objects(kind.kind) {
                Ok(listed) => listed,
                Err(error) => {
                    warn!(kind = kind.kind, %error, "objects cannot be listed; what came from files stays");
                    continue;
                }
            };
            for object in listed.items {
                let Owner::ManifestDirectory { file } = Owner::of(&object.metadata.annotations)
                else {
                    continue;
                };
                let id = object.id();
                if object.is_deleted() || wishes.contains_key(&id) || files.is_unknown(&file) {
                    continue;
                }
                info!(
                    kind = id.kind,
                    name = id.name,
                    namespace = id.namespace,
                    file,
                    "deleting: its manifest was removed"
                );
                let delete = ObjectDelete {
                    preconditions: Preconditions::same(&object.metadata),
                    propagation: Propagation::Background,
                    grace_period_seconds: None,
                    id,
                };
                let by = WriteBy {
                    owner: directory(),
                    dry_run: false,
                    idempotency_key: String::new(),
                };
                if let Err(error) = registry.delete_object(&delete, &by) {
                    warn!(%error, "an object whose manifest is gone cannot be deleted; trying again");
                    is_done = false;
                }
            }
        }
        is_done
    }

    fn complain(
        &mut self,
        registry: &impl ObjectRegistry,
        id: &ObjectId,
        file: &str,
        message: &str,
    ) {
        let text = format!("{file}: {message}");
        // Bounded: a directory that changes for ever must not fill the memory.
        if self.said.len() > 4096 {
            self.said.clear();
        }
        if self.said.insert(text.clone()) {
            warn!(file, "{message}");
            registry.warn_of(id, super::source::REASON, &text);
        }
    }
}

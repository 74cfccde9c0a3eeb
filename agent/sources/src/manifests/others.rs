//! Objects without a guest that files ask for: made and changed as by `kvmctl apply`, and deleted with their file.

use std::collections::{BTreeMap, BTreeSet};

use agent_domain::ObjectSource;
use agent_objects::{Kinds, ObjectId};
use tracing::{info, warn};

use super::directory::{Directory, OtherObject};
use super::reconcile::REASON;
use super::swept::Swept;
use crate::error::ApiError;
use crate::objects::{ObjectRegistry, WriteBy};

/// Who manages what manifests say.
pub(super) const MANAGER: &str = "kvmlet-manifests";

/// The result of applying each desired object. They are applied once for each content; the agent that starts applies them all, which changes
/// nothing where they are as they were.
#[derive(Debug, Default)]
pub(crate) struct Others {
    /// As it was applied, or refused for good. In memory alone: a digest of a Secret would tell guesses apart.
    settled: BTreeMap<ObjectId, OtherObject>,
    /// Texts that were logged already.
    said: BTreeSet<String>,
    /// What was looked through for objects whose file is gone.
    swept: Swept,
    /// Nothing is left to do until the files are looked at again, which is every 30 seconds at least.
    is_done: bool,
}

impl Others {
    /// The files may have changed.
    pub(crate) fn scanned(&mut self) {
        self.is_done = false;
    }

    /// Brings what is there in line with what the files say.
    pub(crate) async fn settle(&mut self, objects: &impl ObjectRegistry, files: &Directory) {
        if self.is_done {
            return;
        }
        let (desired_objects, complaints) = files.others();
        for (id, file, message) in complaints {
            self.complain(objects, &id, &file, &message);
        }
        let mut is_done = true;
        for (id, desired) in in_order(objects.kinds(), &desired_objects) {
            is_done &= self.apply(objects, id, desired).await;
        }
        self.settled
            .retain(|id, _| desired_objects.contains_key(id));
        is_done &= self.swept.sweep(objects, files, &desired_objects).await;
        self.is_done = is_done;
    }

    /// Has an object be as a file says; false when it is to be tried again.
    async fn apply(
        &mut self,
        objects: &impl ObjectRegistry,
        id: &ObjectId,
        desired: &OtherObject,
    ) -> bool {
        let present = match objects.get_object(id) {
            Ok(present) => Some(present),
            Err(ApiError::NotFound { .. }) => None,
            Err(error) => {
                self.complain(objects, id, &desired.file, &error.to_string());
                return false;
            }
        };
        if let Some(object) = &present {
            let source = ObjectSource::of(&object.metadata.annotations);
            if object.is_deleted() {
                // It is made anew once it is gone.
                return false;
            }
            if !matches!(source, ObjectSource::ManifestDirectory { .. }) {
                let way_out = source.way_out();
                let message = format!(
                    "{} {:?} is left out: an object of that name belongs to {source}; {way_out}",
                    id.kind, id.name
                );
                self.complain(objects, id, &desired.file, &message);
                return true;
            }
            if self.settled.get(id) == Some(desired) {
                return true;
            }
        }
        let by = WriteBy {
            source: ObjectSource::ManifestDirectory {
                file: desired.file.clone(),
            },
            dry_run: false,
            idempotency_key: String::new(),
            manager: String::from(MANAGER),
        };
        let error = match objects.apply_object(desired.object.clone(), &by).await {
            Ok(written) => {
                if written.changed {
                    let (kind, name, namespace, file) =
                        (&id.kind, &id.name, &id.namespace, &desired.file);
                    info!(kind, name, namespace, file, "applied from its manifest");
                }
                self.settled.insert(id.clone(), desired.clone());
                return true;
            }
            Err(error) => error,
        };
        self.complain(objects, id, &desired.file, &error.to_string());
        // What is wrong with the manifest stays so until it is changed.
        matches!(error, ApiError::Invalid { .. } | ApiError::BadRequest(_))
    }

    fn complain(
        &mut self,
        objects: &impl ObjectRegistry,
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
            objects.warn_of(id, REASON, &text);
        }
    }
}

/// Objects that are made together with copies of others come after those, which they are judged with.
fn in_order<'a>(
    kinds: &Kinds,
    desired_objects: &'a BTreeMap<ObjectId, OtherObject>,
) -> impl Iterator<Item = (&'a ObjectId, &'a OtherObject)> {
    let is_last = |id: &ObjectId| {
        kinds
            .find(&id.kind)
            .is_some_and(|it| it.companions.is_some())
    };
    let (last, first): (Vec<_>, Vec<_>) = desired_objects.iter().partition(|(id, _)| is_last(id));
    first.into_iter().chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_comes_after_the_instance_type_of_its_file() {
        let kinds = [
            "VirtualMachine",
            "VirtualMachineClusterInstancetype",
            "VirtualMachinePreference",
        ];
        let desired = |kind: &str| {
            let id = ObjectId {
                kind: kind.to_owned(),
                namespace: String::from("default"),
                name: String::from("web"),
            };
            let desired = OtherObject {
                file: String::from("a.yaml"),
                object: agent_objects::Object::default(),
            };
            (id, desired)
        };
        let desired_objects = BTreeMap::from(kinds.map(desired));
        let order = in_order(Kinds::this_release(), &desired_objects);
        let order: Vec<&str> = order.map(|(id, _)| id.kind.as_str()).collect();
        let [machine, instancetype, preference] = kinds;
        assert_eq!(order, [instancetype, preference, machine]);
    }
}

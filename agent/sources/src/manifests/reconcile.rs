//! From what the files say and what is there to what is to be done. Pure.

use std::collections::BTreeMap;

use agent_domain::{ObjectSource, SOURCE_ANNOTATION};
use proto_node::vmi::VirtualMachineInstance;

use super::directory::{DesiredVmi, VmiKey, key_of};

/// Reason of events about manifests.
pub(super) const REASON: &str = "InvalidManifest";

/// On an object that was made from a file: digest of what the file said.
pub const DIGEST_ANNOTATION: &str = "kvmlet.io/config.hash";

/// One thing to do.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Step {
    /// Make the VMI.
    Create(Box<VirtualMachineInstance>),
    /// End the VMI of this uid.
    Delete {
        key: VmiKey,
        uid: String,
        why: &'static str,
    },
    /// The name is taken by somebody else's object.
    Taken {
        key: VmiKey,
        file: String,
        source: ObjectSource,
    },
}

/// Steps after which exactly the wanted objects are there. `is_open` says whether the node starts guests, and
/// `is_unknown` tells of files that are there and cannot be read: what came from them stays.
pub(crate) fn reconcile(
    desired_objects: &BTreeMap<VmiKey, DesiredVmi>,
    present: &[VirtualMachineInstance],
    is_open: bool,
    is_unknown: impl Fn(&str) -> bool,
) -> Vec<Step> {
    let present: BTreeMap<VmiKey, &VirtualMachineInstance> = present
        .iter()
        .map(|object| (key_of(object), object))
        .collect();
    let mut steps = Vec::new();
    for (key, desired) in desired_objects {
        match present.get(key) {
            None => steps.push(Step::Create(Box::new(object_of(desired)))),
            Some(object) => steps.extend(step_for(key, desired, object, is_open)),
        }
    }
    for (key, object) in present {
        let ObjectSource::ManifestDirectory { file } = source(object) else {
            continue;
        };
        if !desired_objects.contains_key(&key) && !is_unknown(&file) && !is_deleting(object) {
            steps.push(Step::Delete {
                key,
                uid: uid(object),
                why: "its manifest was removed",
            });
        }
    }
    steps
}

/// Step for an object that is there and wanted.
fn step_for(
    key: &VmiKey,
    desired: &DesiredVmi,
    object: &VirtualMachineInstance,
    is_open: bool,
) -> Option<Step> {
    let source = source(object);
    if !matches!(source, ObjectSource::ManifestDirectory { .. }) {
        return Some(Step::Taken {
            key: key.clone(),
            file: desired.file.clone(),
            source,
        });
    }
    if is_deleting(object) {
        return None;
    }
    let delete = |why| {
        Some(Step::Delete {
            key: key.clone(),
            uid: uid(object),
            why,
        })
    };
    if annotation(object, DIGEST_ANNOTATION) != Some(&desired.digest) {
        return delete("its manifest was changed");
    }
    let status = object.status.as_ref()?;
    match (status.phase.as_str(), status.reason.as_str()) {
        ("Failed", "NodeRebooted") => delete("the node was restarted; it is made anew"),
        // What the node itself ended comes again with it, and not before.
        ("Succeeded" | "Failed", "NodeShutdown") if is_open => {
            delete("the node went down and is back; it is made anew")
        }
        ("Succeeded" | "Failed", "Evicted") if is_open => {
            delete("the node was drained and takes guests again; it is made anew")
        }
        _ => None,
    }
}

fn object_of(desired: &DesiredVmi) -> VirtualMachineInstance {
    let mut object = desired.object.clone();
    let annotations = &mut object.metadata.get_or_insert_default().annotations;
    let source = ObjectSource::ManifestDirectory {
        file: desired.file.clone(),
    };
    annotations.extend(
        source
            .annotation()
            .map(|value| (SOURCE_ANNOTATION.to_owned(), value)),
    );
    annotations.insert(DIGEST_ANNOTATION.to_owned(), desired.digest.clone());
    object
}

fn annotation<'a>(object: &'a VirtualMachineInstance, name: &str) -> Option<&'a String> {
    object.metadata.as_ref()?.annotations.get(name)
}

fn source(object: &VirtualMachineInstance) -> ObjectSource {
    let metadata = object.metadata.as_ref();
    metadata.map_or(ObjectSource::GrpcCaller, |metadata| {
        ObjectSource::of(&metadata.annotations)
    })
}

fn is_deleting(object: &VirtualMachineInstance) -> bool {
    object
        .metadata
        .as_ref()
        .is_some_and(|metadata| !metadata.deletion_timestamp.is_empty())
}

fn uid(object: &VirtualMachineInstance) -> String {
    object
        .metadata
        .as_ref()
        .map(|metadata| metadata.uid.clone())
        .unwrap_or_default()
}

/// The directory as a whole, whichever file it was.
pub(super) fn directory() -> ObjectSource {
    ObjectSource::ManifestDirectory {
        file: String::new(),
    }
}

#[cfg(test)]
mod tests {
    use proto_node::meta::ObjectMeta;
    use proto_node::vmi::VirtualMachineInstanceStatus;

    use super::*;

    fn key() -> VmiKey {
        (String::from("default"), String::from("web"))
    }

    fn bare() -> VirtualMachineInstance {
        let metadata = ObjectMeta {
            namespace: key().0,
            name: key().1,
            uid: String::from("u1"),
            ..ObjectMeta::default()
        };
        VirtualMachineInstance {
            metadata: Some(metadata),
            ..VirtualMachineInstance::default()
        }
    }

    fn desired_objects(digest: &str) -> BTreeMap<VmiKey, DesiredVmi> {
        let desired = DesiredVmi {
            file: String::from("a.yaml"),
            digest: digest.to_owned(),
            object: bare(),
        };
        BTreeMap::from([(key(), desired)])
    }

    fn made(digest: &str) -> VirtualMachineInstance {
        object_of(&desired_objects(digest)[&key()])
    }

    fn with_status(phase: &str, reason: &str) -> VirtualMachineInstance {
        let status = VirtualMachineInstanceStatus {
            phase: phase.to_owned(),
            reason: reason.to_owned(),
            ..VirtualMachineInstanceStatus::default()
        };
        VirtualMachineInstance {
            status: Some(status),
            ..made("1")
        }
    }

    fn deletes(steps: &[Step]) -> bool {
        matches!(steps, [Step::Delete { uid, .. }] if uid == "u1")
    }

    #[test]
    fn a_new_file_makes_its_object_with_its_source() {
        let steps = reconcile(&desired_objects("1"), &[], true, |_| false);
        let [Step::Create(object)] = steps.as_slice() else {
            panic!("{steps:?}")
        };
        assert_eq!(
            annotation(object, SOURCE_ANNOTATION).map(String::as_str),
            Some("file:a.yaml")
        );
        assert_eq!(
            annotation(object, DIGEST_ANNOTATION).map(String::as_str),
            Some("1")
        );
    }

    #[test]
    fn an_object_that_is_as_its_file_says_is_left_alone() {
        for object in [
            made("1"),
            with_status("Running", ""),
            with_status("Succeeded", "GuestPoweroff"),
        ] {
            assert_eq!(
                reconcile(&desired_objects("1"), &[object], true, |_| false),
                []
            );
        }
    }

    #[test]
    fn a_changed_file_ends_the_object_and_waits_for_its_end() {
        assert!(deletes(&reconcile(
            &desired_objects("2"),
            &[made("1")],
            true,
            |_| false
        )));
        let mut ending = made("1");
        ending.metadata.get_or_insert_default().deletion_timestamp =
            String::from("2026-01-01T00:00:00Z");
        assert_eq!(
            reconcile(&desired_objects("2"), &[ending], true, |_| false),
            []
        );
    }

    #[test]
    fn what_ended_with_the_node_is_made_anew_under_a_new_uid() {
        assert!(deletes(&reconcile(
            &desired_objects("1"),
            &[with_status("Failed", "NodeRebooted")],
            true,
            |_| false
        )));
        assert_eq!(
            reconcile(
                &desired_objects("1"),
                &[with_status("Failed", "TripleFault")],
                true,
                |_| false
            ),
            []
        );
    }

    #[test]
    fn what_the_node_itself_ended_comes_again_once_it_takes_guests() {
        for (phase, reason) in [("Succeeded", "Evicted"), ("Failed", "NodeShutdown")] {
            let present = [with_status(phase, reason)];
            assert_eq!(
                reconcile(&desired_objects("1"), &present, false, |_| false),
                []
            );
            assert!(deletes(&reconcile(
                &desired_objects("1"),
                &present,
                true,
                |_| false
            )));
        }
    }

    #[test]
    fn a_removed_file_ends_the_object_and_an_unreadable_one_does_not() {
        assert!(deletes(&reconcile(
            &BTreeMap::new(),
            &[made("1")],
            true,
            |_| { false }
        )));
        assert_eq!(
            reconcile(&BTreeMap::new(), &[made("1")], true, |file| file
                == "a.yaml"),
            []
        );
    }

    #[test]
    fn objects_from_elsewhere_are_never_touched() {
        assert_eq!(reconcile(&BTreeMap::new(), &[bare()], true, |_| false), []);
        let steps = reconcile(&desired_objects("1"), &[bare()], true, |_| false);
        assert_eq!(
            steps,
            [Step::Taken {
                key: key(),
                file: String::from("a.yaml"),
                source: ObjectSource::GrpcCaller
            }]
        );
    }
}

//! What is to be done about the common instance types and preferences when the node starts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use agent_domain::{CommonRelease, RELEASE_LABEL};
use agent_objects::Object;
use serde_json::json;
use sha2::{Digest, Sha256};

use crate::objects::together::ObjectWrite;

/// Stands for the content of an object that an operator changed before there was an account.
const CHANGED: &str = "";

/// What is to be done.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) writes: Vec<ObjectWrite>,
    /// The account of what the node was given and what that was, for the next start. What stands in it and is not there was
    /// removed by an operator.
    pub(super) given: BTreeMap<String, String>,
}

/// Plans for a release, whose objects are `wanted`. `before` is the account of the last start.
pub(super) fn plan(
    release: Option<CommonRelease>,
    wanted: Vec<Object>,
    present: Vec<Object>,
    before: Option<&BTreeMap<String, String>>,
) -> Plan {
    let mut wanted: BTreeMap<String, Object> =
        wanted.into_iter().map(|it| (name_of(&it), it)).collect();
    // Without any, all are forgotten: whoever chooses a release afterwards begins anew.
    let mut given = match release {
        Some(_) => before.cloned().unwrap_or_default(),
        None => BTreeMap::new(),
    };
    let mut writes = Vec::new();
    for present in present {
        let name = name_of(&present);
        let is = digest(&present);
        let wanted = wanted.remove(&name);
        let is_untouched = match before {
            Some(before) => before.get(&name) == Some(&is),
            None => given_by_earlier_release(&present) && present.metadata.generation == 1,
        };
        match wanted {
            Some(wanted) if is_untouched => {
                let new = digest(&wanted);
                if new != is {
                    let present = Box::new(present);
                    writes.push(ObjectWrite::Replace { present, wanted });
                }
                given.insert(name, new);
            }
            None if is_untouched => {
                given.remove(&name);
                writes.push(ObjectWrite::Remove(present));
            }
            Some(_) if before.is_none() && given_by_earlier_release(&present) => {
                given.insert(name, CHANGED.to_owned());
            }
            _ => {}
        }
    }
    for (name, wanted) in wanted {
        // One that was given and is not there was removed.
        if let Entry::Vacant(entry) = given.entry(name) {
            entry.insert(digest(&wanted));
            writes.push(ObjectWrite::Create(wanted));
        }
    }
    Plan { writes, given }
}

fn name_of(object: &Object) -> String {
    format!("{}/{}", object.kind, object.metadata.name)
}

/// What an operator would change of an object.
fn digest(object: &Object) -> String {
    let metadata = &object.metadata;
    let content = json!([metadata.labels, metadata.annotations, object.content]);
    let digest = Sha256::digest(content.to_string());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether an agent that kept no account made an object: others install the same ones by hand, with the same label of the
/// release.
fn given_by_earlier_release(object: &Object) -> bool {
    let labels = &object.metadata.labels;
    let by = labels.get("app.kubernetes.io/managed-by");
    by.is_some_and(|by| by == "kvmlet") && labels.contains_key(RELEASE_LABEL)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = "VirtualMachineClusterInstancetype";

    fn object(name: &str, guest: &str, release: &str) -> Object {
        super::super::read(json!({
            "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": KIND,
            "metadata": {
                "name": name,
                "labels": {RELEASE_LABEL: release, "app.kubernetes.io/managed-by": "kvmlet"},
            },
            "spec": {"cpu": {"guest": 1}, "memory": {"guest": guest}},
        }))
        .unwrap()
    }

    /// A node, and what has become of it start by start.
    #[derive(Default)]
    struct Node {
        objects: BTreeMap<String, Object>,
        given: Option<BTreeMap<String, String>>,
    }

    impl Node {
        /// Starts with a release; how many objects were made, replaced and removed.
        fn start(&mut self, release: Option<CommonRelease>, wanted: &[Object]) -> [usize; 3] {
            let present = self.objects.values().cloned().collect();
            let plan = plan(release, wanted.to_vec(), present, self.given.as_ref());
            let mut counts = [0; 3];
            for write in plan.writes {
                match write {
                    ObjectWrite::Create(mut object) => {
                        object.metadata.generation = 1;
                        assert!(
                            self.objects
                                .insert(object.metadata.name.clone(), object)
                                .is_none()
                        );
                        counts[0] += 1;
                    }
                    ObjectWrite::Replace { present, wanted } => {
                        let there = self.objects.get_mut(&present.metadata.name).unwrap();
                        *there = wanted;
                        there.metadata.generation = present.metadata.generation + 1;
                        counts[1] += 1;
                    }
                    ObjectWrite::Remove(object) => {
                        self.objects.remove(&object.metadata.name).unwrap();
                        counts[2] += 1;
                    }
                }
            }
            self.given = Some(plan.given);
            counts
        }

        fn edit(&mut self, name: &str) {
            let object = self.objects.get_mut(name).unwrap();
            object.content["spec"]["memory"]["guest"] = json!("7Gi");
            object.metadata.generation += 1;
        }

        fn names(&self) -> Vec<&str> {
            self.objects.keys().map(String::as_str).collect()
        }

        fn guest(&self, name: &str) -> &str {
            self.objects[name].text(&["spec", "memory", "guest"])
        }
    }

    const HEAD: Option<CommonRelease> = Some(CommonRelease::Head);
    const FIRST: Option<CommonRelease> = Some(CommonRelease::V1_0_0);

    fn head() -> Vec<Object> {
        ["a", "b", "c", "d"]
            .map(|name| object(name, "2Gi", "head"))
            .to_vec()
    }

    fn first() -> Vec<Object> {
        ["b", "c", "d", "z"]
            .map(|name| object(name, "1Gi", "v1.0.0"))
            .to_vec()
    }

    #[test]
    fn what_an_operator_changed_or_removed_stays_so_from_release_to_release() {
        let mut node = Node::default();
        assert_eq!(node.start(HEAD, &head()), [4, 0, 0]);
        assert_eq!(node.start(HEAD, &head()), [0, 0, 0]);
        node.edit("b");
        node.objects.remove("c");
        for _ in 0..2 {
            assert_eq!(node.start(HEAD, &head()), [0, 0, 0]);
        }
        // The first release has no "a"; what is left of the other is replaced.
        assert_eq!(node.start(FIRST, &first()), [1, 1, 1]);
        assert_eq!(node.names(), ["b", "d", "z"]);
        assert_eq!((node.guest("b"), node.guest("d")), ("7Gi", "1Gi"));
        assert_eq!(node.start(FIRST, &first()), [0, 0, 0]);
        // And back.
        assert_eq!(node.start(HEAD, &head()), [1, 1, 1]);
        assert_eq!(node.names(), ["a", "b", "d"]);
        assert_eq!(node.guest("d"), "2Gi");
        // None leaves what is the operator's, who may begin anew.
        assert_eq!(node.start(None, &[]), [0, 0, 2]);
        assert_eq!(node.names(), ["b"]);
        assert_eq!(node.start(None, &[]), [0, 0, 0]);
        assert_eq!(node.start(HEAD, &head()), [3, 0, 0]);
        assert_eq!(node.guest("b"), "7Gi");
    }

    #[test]
    fn what_nobody_touched_follows_a_newer_release_of_the_agent() {
        let mut node = Node::default();
        node.start(HEAD, &head());
        node.edit("b");
        let mut newer = head();
        newer[0] = object("a", "3Gi", "head");
        newer[1] = object("b", "3Gi", "head");
        newer.push(object("e", "3Gi", "head"));
        assert_eq!(node.start(HEAD, &newer), [1, 1, 0]);
        assert_eq!((node.guest("a"), node.guest("b")), ("3Gi", "7Gi"));
        assert_eq!(node.start(HEAD, &newer), [0, 0, 0]);
    }

    #[test]
    fn objects_of_an_agent_that_kept_no_account_are_known_by_their_labels() {
        let mut node = Node::default();
        node.start(HEAD, &head());
        node.edit("b");
        let mut own = object("c", "9Gi", "head");
        own.metadata.labels.clear();
        own.metadata.generation = 1;
        node.objects.insert("c".to_owned(), own);
        node.given = None;
        assert_eq!(node.start(FIRST, &first()), [1, 1, 1]);
        assert_eq!((node.guest("b"), node.guest("c")), ("7Gi", "9Gi"));
        node.objects.remove("b");
        assert_eq!(node.start(FIRST, &first()), [0, 0, 0]);
    }

    #[test]
    fn the_releases_themselves_are_stored_as_they_are_wanted() {
        let kinds = agent_objects::Kinds::this_release();
        for release in CommonRelease::ALL {
            for value in release.objects() {
                let object = super::super::read(value).unwrap();
                let kind = kinds.find(&object.kind).unwrap();
                let bytes = kinds.to_wire(kind, &object).unwrap();
                let stored = kinds.from_wire(kind, &bytes).unwrap();
                assert_eq!(digest(&stored), digest(&object), "{}", object.metadata.name);
            }
        }
    }
}

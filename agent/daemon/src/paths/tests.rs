//! A ledger of an earlier release, and the paths that its VMIs name.

use agent_domain::{PathRefusal, PathUse};
use agent_plan::{Record, Timestamp};
use agent_store::Limits;
use proto_node::{Node, from_node};
use serde_json::json;

use super::*;

const WRITE: PathUse = PathUse::Disk { read_only: false };

struct Fixture {
    dir: tempfile::TempDir,
    ledger: Ledger,
}

impl Fixture {
    fn new() -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let ledger = Ledger::open(&dir.path().join("ledger"), Limits::default()).expect("opens");
        Self { dir, ledger }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    fn file(&self, path: &str) {
        let path = self.at(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("made");
        fs::write(path, "").expect("written");
    }

    fn rules(&self) -> PathRules {
        PathRules {
            disks: vec![self.at("disks")],
            boot: vec![self.at("images")],
            setting: "paths.grants".to_owned(),
            ..PathRules::default()
        }
    }

    /// What an earlier release stored.
    fn store(&self, namespace: &str, disk: &str, image: &str) {
        let name = format!("{namespace}-{}", disk.replace(['/', '.'], "-"));
        let manifest = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
            "metadata": {"name": name, "namespace": namespace, "uid": name, "generation": 1},
            "spec": {
                "domain": {
                    "memory": {"guest": "64Mi"},
                    "firmware": {"kernelBoot": {"container": {
                        "image": format!("dir:{}", self.at(image).display()), "kernelPath": "/vmlinuz",
                    }}},
                    "devices": {},
                },
                "volumes": [{"name": "root", "hostDisk": {"path": self.at(disk), "type": "Disk"}}],
            },
        });
        let vmi: VirtualMachineInstance = from_node(&Node::from(manifest)).expect("a VMI");
        let metadata = object::metadata(&vmi);
        let id = crate::object::vmi_id(&metadata);
        self.ledger
            .write::<_, StoreError, _>(|transaction| {
                transaction.begin_record(&Record::new(id, Timestamp(0)))?;
                let row = object::row(vmi, transaction.next_version());
                transaction.put(&object::key(&object::vmi_ref(&metadata)), row)
            })
            .expect("stored");
    }

    /// Accepts a VMI of the namespace that writes to a disk.
    fn accept(
        &self,
        rules: &PathRules,
        namespace: &str,
        disk: &Path,
    ) -> Result<PathRecords, WriteError> {
        self.ledger.write(|transaction| {
            let written = [disk.to_owned()];
            let records = judge_disks(transaction, rules, (namespace, "web"), &written)?;
            put_records(transaction, &records)?;
            Ok(records)
        })
    }

    /// The rules with what is remembered after an upgrade.
    fn upgraded(&self) -> PathRules {
        let records = records_of_the_past(&self.ledger, &self.rules()).expect("found out");
        PathRules {
            records: std::sync::Arc::new(records),
            ..self.rules()
        }
    }
}

#[test]
fn what_stored_vmis_name_stays_theirs_and_the_rest_goes_to_the_default_namespace() {
    let fixture = Fixture::new();
    for path in [
        "disks/a.img",
        "disks/free.img",
        "disks/shop/web.img",
        "disks/shop/old.img",
    ] {
        fixture.file(path);
    }
    fixture.file("images/debian/vmlinuz");
    fixture.file("images/other/vmlinuz");
    fixture.store("a", "disks/a.img", "images/debian");
    fixture.store("shop", "disks/shop/web.img", "images/debian");
    let rules = fixture.upgraded();
    let may = |namespace: &str, path: &str, wanted: PathUse| {
        rules.judge(namespace, &fixture.at(path), wanted).is_ok()
    };
    assert!(may("a", "disks/a.img", WRITE) && !may("default", "disks/a.img", WRITE));
    assert!(may("shop", "disks/shop/web.img", WRITE) && !may("a", "disks/shop/web.img", WRITE));
    for namespace in ["a", "shop"] {
        assert!(may(namespace, "images/debian", PathUse::Image));
        assert!(!may(namespace, "images/other", PathUse::Image));
        assert!(!may(namespace, "disks/free.img", WRITE));
        assert!(!may(namespace, "disks/shop/old.img", WRITE));
    }
    for path in ["disks/free.img", "disks/shop/old.img"] {
        assert!(may("default", path, WRITE), "{path}");
    }
    assert!(may("default", "images/other", PathUse::Image));
    // New files belong where the directory says.
    assert!(
        may("shop", "disks/shop/new.img", WRITE) && !may("default", "disks/shop/new.img", WRITE)
    );
    assert!(may("default", "disks/default/new.img", WRITE));
    assert!(!may("default", "disks/new.img", WRITE));
}

#[test]
fn a_disk_with_the_name_of_its_namespace_is_no_directory_of_it() {
    let fixture = Fixture::new();
    fixture.file("disks/web");
    fixture.file("disks/default");
    fixture.file("images/web/vmlinuz");
    fixture.store("web", "disks/web", "images/web");
    let rules = fixture.upgraded();
    let may = |namespace: &str, path: &str, wanted: PathUse| {
        rules.judge(namespace, &fixture.at(path), wanted).is_ok()
    };
    assert!(may("web", "disks/web", WRITE) && !may("default", "disks/web", WRITE));
    assert!(may("web", "images/web", PathUse::Image));
    assert!(may("default", "disks/default", WRITE));
}

#[test]
fn an_image_that_is_a_directory_of_the_configuration_itself_stays_one_and_takes_no_more_with_it() {
    let fixture = Fixture::new();
    for path in ["images/vmlinuz", "images/other", "images/deep/a/x"] {
        fixture.file(path);
    }
    fixture.store("shop", "disks/web.img", "images");
    let mut rules = fixture.rules();
    rules.boot.push(fixture.at("images/deep/a"));
    let records = records_of_the_past(&fixture.ledger, &rules).expect("found out");
    rules.records = std::sync::Arc::new(records);
    let may = |namespace: &str, path: &str| {
        rules
            .judge(namespace, &fixture.at(path), PathUse::Image)
            .is_ok()
    };
    assert!(may("shop", "images") && may("shop", "images/vmlinuz"));
    assert!(!may("shop", "images/other") && !may("shop", "images/deep/a/x"));
    assert!(may("default", "images/other") && may("default", "images/deep/a/x"));
    // The directories of namespaces are where the configuration says.
    assert!(may("shop", "images/shop/debian") && may("shop", "images/deep/a/shop/debian"));
    assert!(!may("default", "images/shop/debian"));
}

#[test]
fn a_ledger_of_this_release_hands_nothing_to_the_default_namespace() {
    let fixture = Fixture::new();
    fixture.file("disks/a/x.img");
    let known = load(&fixture.ledger, &fixture.rules()).expect("loaded");
    assert!(known.get().is_empty());
}

#[test]
fn a_disk_that_others_could_name_is_remembered_for_whom_it_was_accepted() {
    let fixture = Fixture::new();
    let path = fixture.at("srv/x.img");
    let mut rules = fixture.rules();
    rules.grants = vec![grant(fixture.at("srv"), &["a", "b"])];
    assert_eq!(
        fixture.accept(&rules, "a", &path).expect("is free").len(),
        1
    );
    // Both were judged before either was remembered: the second one is refused because of the first.
    let refused = fixture.accept(&rules, "b", &path).expect_err("is a's");
    let WriteError::Refused(ApiError::Invalid { errors, .. }) = refused else {
        panic!("{refused}");
    };
    let said = errors[0].to_string();
    for words in ["srv/x.img", "\"b\"", "paths.grants"] {
        assert!(said.contains(words), "{said}");
    }
    // The VMI may be long gone, and the agent another.
    let known = load(&fixture.ledger, &rules).expect("loaded").get();
    assert_eq!(known[&path].namespaces, BTreeSet::from(["a".to_owned()]));
    let again = PathRules {
        records: known,
        ..rules.clone()
    };
    assert_eq!(
        again.judge("b", &path, WRITE),
        Err(PathRefusal::OwnedByOtherNamespace)
    );
}

#[test]
fn a_disk_changes_hands_when_whom_it_is_granted_exactly_is_accepted_with_it() {
    let fixture = Fixture::new();
    let path = fixture.at("srv/x.img");
    let mut rules = fixture.rules();
    rules.grants = vec![grant(fixture.at("srv"), &["a"])];
    fixture.accept(&rules, "a", &path).expect("is free");
    let before = load(&fixture.ledger, &rules).expect("loaded").get();
    rules.grants.push(grant(path.clone(), &["b"]));
    fixture.accept(&rules, "b", &path).expect("is handed over");
    // Also to whoever judges by what was remembered before.
    fixture.accept(&rules, "a", &path).expect_err("is b's");
    rules.records = before;
    fixture.accept(&rules, "a", &path).expect_err("is b's");
    rules.records = load(&fixture.ledger, &rules).expect("loaded").get();
    assert_eq!(
        rules.judge("a", &path, WRITE),
        Err(PathRefusal::OwnedByOtherNamespace)
    );
    rules.judge("b", &path, WRITE).expect("is b's");
}

fn grant(path: PathBuf, namespaces: &[&str]) -> agent_domain::PathGrant {
    agent_domain::PathGrant {
        path,
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
    }
}

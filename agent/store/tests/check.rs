//! Looking at a ledger without an agent.

use std::path::Path;

use agent_plan::{Record, Timestamp, VmiId};
use agent_store::{Ledger, Limits, ObjectKey, OpenError, StoreError, StoredObject};

fn record(uid: &str) -> Record {
    let id = VmiId {
        uid: uid.to_owned(),
        namespace: String::from("default"),
        name: String::from("web"),
    };
    Record::new(id, Timestamp(7))
}

fn written(path: &Path, uid_of_record: &str) -> Ledger {
    let ledger = Ledger::open(path, Limits::default()).expect("the ledger opens");
    let done: Result<(), StoreError> = ledger.write(|transaction| {
        let key = ObjectKey {
            kind: String::from("VirtualMachineInstance"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let object = StoredObject {
            uid: String::from("u1"),
            generation: 1,
            resource_version: transaction.next_version(),
            spec_digest: Vec::new(),
            object: b"whole".to_vec(),
            sealed: None,
        };
        transaction.put(&key, object)?;
        transaction.begin_record(&record(uid_of_record))
    });
    done.expect("is written");
    ledger
}

#[test]
fn a_sound_ledger_is_counted_and_stays_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    drop(written(&path, "u1"));
    for _ in 0..2 {
        let checked = Ledger::check(&path).expect("can be read");
        assert_eq!(checked.problems, Vec::<String>::new());
        let counted = (
            checked.objects,
            checked.records,
            checked.changes,
            checked.version,
        );
        assert_eq!(counted, (1, 1, 1, 1));
    }
    let ledger = Ledger::open(&path, Limits::default()).expect("the ledger opens");
    assert_eq!(
        ledger.record("u1").expect("can be read"),
        Some(record("u1"))
    );
}

#[test]
fn what_does_not_fit_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    drop(written(&path, "u2"));
    let checked = Ledger::check(&path).expect("can be read");
    assert_eq!(checked.problems, ["the record of \"u2\" is no object's"]);
    assert_eq!(checked.wrong, 1);
}

#[test]
fn none_is_made_and_one_that_an_agent_has_is_left_to_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    assert!(matches!(Ledger::check(&path), Err(OpenError::Io { .. })));
    assert!(!path.exists());
    let held = written(&path, "u1");
    assert!(matches!(Ledger::check(&path), Err(OpenError::InUse { .. })));
    drop(held);
}

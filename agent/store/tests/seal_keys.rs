//! Keys under which rows are encrypted are forgotten when no ciphertext needs them.

use std::path::Path;

use agent_store::{Ciphertext, Ledger, Limits, ObjectKey, Sealed, StoreError, StoredObject};

const KIND: &str = "Secret";

fn open(directory: &Path) -> Ledger {
    Ledger::open(&directory.join("ledger.redb"), Limits::default()).expect("the ledger opens")
}

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: KIND.to_owned(),
        namespace: String::from("default"),
        name: name.to_owned(),
    }
}

fn object(name: &str, key_id: &str, version: u64) -> StoredObject {
    StoredObject {
        uid: format!("uid-{name}"),
        generation: 1,
        resource_version: version,
        sealed: Some(Sealed {
            key_id: key_id.to_owned(),
            salt: vec![1],
            ciphertext: vec![2],
        }),
        ..StoredObject::default()
    }
}

fn put(ledger: &Ledger, name: &str, key_id: &str) {
    let put = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.put(&key(name), object(name, key_id, version))
    });
    put.expect("is put");
}

fn remove(ledger: &Ledger, name: &str, key_id: &str) {
    let removed = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.remove(&key(name), object(name, key_id, version))
    });
    removed.expect("is removed");
}

fn prune(ledger: &Ledger, needed_by: Ciphertext) -> Vec<String> {
    let kept = ledger.prune_seal_keys(&[KIND], needed_by).expect("pruned");
    assert_eq!(ledger.seal_keys().expect("read"), kept);
    kept
}

#[test]
fn a_key_is_kept_while_an_object_or_a_change_needs_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    put(&ledger, "web", "old");
    put(&ledger, "db", "new");
    assert_eq!(prune(&ledger, Ciphertext::All), ["new", "old"]);
    let version = ledger.version().expect("read");
    remove(&ledger, "web", "old");
    // A watch that follows changes has yet to return its last state.
    assert_eq!(prune(&ledger, Ciphertext::All), ["new", "old"]);
    let changes = ledger.changes_after(KIND, version, 10).expect("there");
    assert_eq!(changes.changes.len(), 1);
}

#[test]
fn a_key_that_is_lost_is_forgotten_with_the_last_object_that_needs_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let version = {
        let ledger = open(directory.path());
        put(&ledger, "web", "old");
        assert_eq!(prune(&ledger, Ciphertext::OfObjects), ["old"]);
        let version = ledger.version().expect("read");
        remove(&ledger, "web", "old");
        let none: [&str; 0] = [];
        assert_eq!(prune(&ledger, Ciphertext::OfObjects), none);
        version
    };
    // What was encrypted under it cannot be shown: who followed it lists again, and nobody else.
    let ledger = open(directory.path());
    let followed = ledger.changes_after(KIND, version, 10);
    assert!(
        matches!(followed, Err(StoreError::Expired { .. })),
        "{followed:?}"
    );
    let now = ledger.version().expect("read");
    assert!(ledger.changes_after(KIND, now, 10).is_ok());
    assert!(ledger.changes_after("Node", version, 10).is_ok());
    put(&ledger, "web", "new");
    assert_eq!(prune(&ledger, Ciphertext::All), ["new"]);
    let changes = ledger.changes_after(KIND, now, 10).expect("there");
    assert_eq!(changes.changes.len(), 1);
}

//! What the ledger remembers of owners that are gone.

use agent_store::{Ledger, Limits, ObjectKey, StoreError, StoredObject};

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: kind.to_owned(),
        namespace: String::from("default"),
        name: name.to_owned(),
    }
}

fn object(uid: &str, version: u64) -> StoredObject {
    StoredObject {
        uid: uid.to_owned(),
        generation: 1,
        resource_version: version,
        spec_digest: Vec::new(),
        object: Vec::new(),
        sealed: None,
    }
}

#[test]
fn an_owner_is_remembered_as_gone_until_it_is_forgotten() {
    let directory = tempfile::tempdir().expect("a directory");
    let open = || Ledger::open(&directory.path().join("ledger.redb"), Limits::default());
    {
        let ledger = open().expect("opens");
        let written = ledger.write(|transaction| {
            for (kind, name, uid) in [
                ("Set", "web", "u1"),
                ("Vmi", "web-1", "u2"),
                ("Event", "e", "u3"),
            ] {
                let version = transaction.next_version();
                transaction.put(&key(kind, name), object(uid, version))?;
            }
            let version = transaction.next_version();
            transaction.remove_owner(&key("Set", "web"), object("u1", version))?;
            Ok::<_, StoreError>(())
        });
        written.expect("is written");
    }
    // The agent died before it did anything about it.
    let ledger = open().expect("opens");
    let everything = ledger.everything(|kind| kind != "Event").expect("reads");
    let keys: Vec<&ObjectKey> = everything.objects.iter().map(|(key, _)| key).collect();
    assert_eq!(keys, [&key("Vmi", "web-1")]);
    assert_eq!(everything.gone, [String::from("u1")].into());
    ledger
        .write(|transaction| transaction.forget_gone(&everything.gone))
        .expect("is written");
    let everything = ledger.everything(|_| false).expect("reads");
    assert!(everything.gone.is_empty() && everything.objects.is_empty());
}

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
    let everything = ledger.everything(|kind| kind != "Event", |key, _| key);
    let everything = everything.expect("reads");
    assert_eq!(everything.objects, [key("Vmi", "web-1")]);
    assert_eq!(everything.gone, [String::from("u1")].into());
    assert!(ledger.is_gone("u1").expect("reads") && !ledger.is_gone("u2").expect("reads"));
    ledger
        .write(|transaction| transaction.prune_deleted_uids(0))
        .expect("is written");
    assert!(!ledger.is_gone("u1").expect("reads"));
    let everything = ledger.everything(|_| false, |key, _| key);
    let everything = everything.expect("reads");
    assert!(everything.gone.is_empty() && everything.objects.is_empty());
}

#[test]
fn an_owner_is_not_forgotten_while_something_names_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(&directory.path().join("ledger.redb"), Limits::default());
    let ledger = ledger.expect("opens");
    // metadata.ownerReferences[0].uid on the wire.
    let owned_by_u1 = [&[0x1a, 6, 0x6a, 4, 0x22, 2][..], b"u1"].concat();
    let vmi = StoredObject {
        object: owned_by_u1,
        ..object("u2", 3)
    };
    let written = ledger.write(|transaction| {
        transaction.put(&key("Set", "web"), object("u1", 1))?;
        transaction.put(&key("Set", "other"), object("u0", 2))?;
        transaction.put(&key("Vmi", "web-1"), vmi.clone())?;
        transaction.remove_owner(&key("Set", "web"), object("u1", 4))?;
        transaction.remove_owner(&key("Set", "other"), object("u0", 5))
    });
    written.expect("is written");
    let (keys, version) = ledger.keys("Vmi").expect("reads");
    assert_eq!((keys, version), (vec![key("Vmi", "web-1")], 5));
    let gone = || {
        let everything = ledger.everything(|_| false, |_, _| ());
        everything.expect("reads").gone
    };
    let prune_all = || {
        let forgotten = ledger.write(|transaction| transaction.prune_deleted_uids(0));
        forgotten.expect("is written");
        gone()
    };
    assert_eq!(prune_all(), [String::from("u1")].into());
    let removed = ledger.write(|transaction| transaction.remove(&key("Vmi", "web-1"), vmi));
    removed.expect("is written");
    assert!(prune_all().is_empty());
}

#[test]
fn the_owners_that_went_last_are_remembered() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(&directory.path().join("ledger.redb"), Limits::default());
    let ledger = ledger.expect("opens");
    // Not in the order of their uids.
    let uids = ["u7", "u2", "u9", "u1"];
    let written = ledger.write(|transaction| {
        for uid in uids {
            let version = transaction.next_version();
            transaction.put(&key("Set", uid), object(uid, version))?;
        }
        for uid in uids {
            let version = transaction.next_version();
            transaction.remove_owner(&key("Set", uid), object(uid, version))?;
        }
        Ok::<_, StoreError>(())
    });
    written.expect("is written");
    let remembered = |kept| {
        let forgotten = ledger.write(|transaction| transaction.prune_deleted_uids(kept));
        forgotten.expect("is written");
        let everything = ledger.everything(|_| false, |_, _| ());
        everything.expect("reads").gone
    };
    assert_eq!(remembered(4).len(), 4);
    assert_eq!(remembered(2), ["u1", "u9"].map(String::from).into());
}

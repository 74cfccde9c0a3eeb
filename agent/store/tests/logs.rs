//! Change logs of kinds, indexes, shared syncs, and the ledger of the format before.

use std::path::Path;
use std::sync::Barrier;

use agent_domain::ChangeKind;
use agent_store::{Ledger, Limits, ObjectKey, StoreError, StoredObject};
use prost::Message;
use redb::{Database, TableDefinition};

fn key(kind: &str, name: &str) -> ObjectKey {
    ObjectKey {
        kind: kind.to_owned(),
        namespace: String::from("default"),
        name: name.to_owned(),
    }
}

/// A message as all kinds have it, as far as it is indexed.
#[derive(Clone, PartialEq, Message)]
struct Whole {
    #[prost(message, optional, tag = "3")]
    metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(btree_map = "string, string", tag = "11")]
    labels: std::collections::BTreeMap<String, String>,
    #[prost(message, repeated, tag = "13")]
    owners: Vec<Owner>,
}

#[derive(Clone, PartialEq, Message)]
struct Owner {
    #[prost(string, tag = "4")]
    uid: String,
    #[prost(bool, optional, tag = "5")]
    controller: Option<bool>,
}

fn object(uid: &str, version: u64, owner: Option<&str>, label: &str) -> StoredObject {
    let (name, value) = label.split_once('=').expect("a label");
    let owners = owner.map(|uid| Owner {
        uid: uid.to_owned(),
        controller: Some(true),
    });
    let metadata = Metadata {
        labels: [(name.to_owned(), value.to_owned())].into(),
        owners: owners.into_iter().collect(),
    };
    StoredObject {
        uid: uid.to_owned(),
        generation: 1,
        resource_version: version,
        spec_digest: Vec::new(),
        object: Whole {
            metadata: Some(metadata),
        }
        .encode_to_vec(),
        sealed: None,
    }
}

fn open(directory: &Path, changes: u64) -> Ledger {
    let file = directory.join("ledger.redb");
    Ledger::open(&file, Limits { changes }).expect("the ledger opens")
}

fn put(ledger: &Ledger, kind: &str, name: &str, owner: Option<&str>, label: &str) -> u64 {
    let written = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.put(&key(kind, name), object(name, version, owner, label))?;
        Ok::<_, StoreError>(version)
    });
    written.expect("is written")
}

#[test]
fn a_flood_of_changes_of_one_kind_expires_no_watch_of_another() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path(), 4);
    let first = put(&ledger, "Vmi", "web", None, "a=b");
    for number in 0..50 {
        put(&ledger, "Event", &format!("e{}", number % 7), None, "a=b");
    }
    let second = put(&ledger, "Vmi", "db", None, "a=b");
    let some = ledger.changes_after("Vmi", first, 10).expect("is kept");
    let versions: Vec<u64> = some.changes.iter().map(|change| change.version).collect();
    assert_eq!((versions, some.until), (vec![second], second));
    let expired = ledger.changes_after("Event", first, 10);
    assert!(matches!(expired, Err(StoreError::Expired { oldest, .. }) if oldest == second - 5));
    let both = ledger
        .changes_among(|_| true, second - 3, 2)
        .expect("is kept");
    assert_eq!((both.changes.len(), both.until), (2, second - 1));
    // A kind of which nothing was ever written has nothing that could be lost.
    let none = ledger.changes_after("Secret", 0, 10).expect("is kept");
    assert_eq!((none.changes.len(), none.until), (0, second));
}

#[test]
fn a_watch_resumes_after_a_hundred_thousand_changes_of_another_kind() {
    const TRANSACTIONS: u64 = 100;
    const CHANGES: u64 = 1000;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("ledger.redb");
    let ledger = Ledger::open(&file, Limits::default()).expect("the ledger opens");
    let first = put(&ledger, "Vmi", "web", None, "a=b");
    for _ in 0..TRANSACTIONS {
        let written = ledger.write(|transaction| {
            for number in 0..CHANGES {
                let (name, version) = (format!("e{number}"), transaction.next_version());
                let event = object(&name, version, None, "a=b");
                transaction.put(&key("Event", &name), event)?;
            }
            Ok::<_, StoreError>(())
        });
        written.expect("is written");
    }
    let second = put(&ledger, "Vmi", "db", None, "a=b");
    assert_eq!(second, first + TRANSACTIONS * CHANGES + 1);
    let some = ledger.changes_after("Vmi", first, 10).expect("is kept");
    let versions: Vec<u64> = some.changes.iter().map(|change| change.version).collect();
    assert_eq!((versions, some.until), (vec![second], second));
    // What flooded has its bound.
    let kept = ledger.changes_after("Event", second - CHANGES - 1, 2000);
    assert_eq!(kept.expect("is kept").changes.len(), 1000);
    let expired = ledger.changes_after("Event", first, 10);
    assert!(matches!(expired, Err(StoreError::Expired { .. })));
}

#[test]
fn objects_are_found_by_their_owner_or_their_label_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path(), 100);
    put(&ledger, "Vmi", "mine", Some("set-1"), "app=old");
    put(&ledger, "Vmi", "free", None, "app=web");
    put(&ledger, "Vmi", "other", None, "app=db");
    put(&ledger, "Vmi", "theirs", Some("set-2"), "app=web");
    put(&ledger, "Secret", "kept", Some("set-1"), "app=web");
    let found = || {
        let found = ledger.owned_or_labelled(("Vmi", "default"), "set-1", "app=web");
        let (rows, _) = found.expect("is read");
        rows.into_iter().map(|row| row.uid).collect::<Vec<_>>()
    };
    assert_eq!(found(), ["free", "mine"]);
    // What changes hands or labels, or goes, is found no longer.
    put(&ledger, "Vmi", "free", Some("set-2"), "app=web");
    put(&ledger, "Vmi", "other", None, "app=web");
    assert_eq!(found(), ["mine", "other"]);
    let gone = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.remove(
            &key("Vmi", "mine"),
            object("mine", version, None, "app=old"),
        )
    });
    gone.expect("is removed");
    assert_eq!(found(), ["other"]);
    let dependents = ledger.dependents("set-1").expect("is read");
    assert_eq!(dependents, [key("Secret", "kept")]);
}

#[test]
fn writes_that_come_together_are_all_stored_and_refused_ones_harm_none() {
    const WRITERS: usize = 8;
    const WRITES: usize = 25;
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path(), 10_000);
    let together = Barrier::new(WRITERS);
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (ledger, together) = (&ledger, &together);
            scope.spawn(move || {
                together.wait();
                for write in 0..WRITES {
                    let version = put(ledger, "Vmi", &format!("{writer}-{write}"), None, "a=b");
                    // Whoever learns of success finds it stored.
                    assert!(ledger.version().expect("is read") >= version);
                    let refused = ledger.write(|_| Err::<(), _>(StoreError::Closed));
                    assert!(matches!(refused, Err(StoreError::Closed)));
                }
            });
        }
    });
    let (objects, version) = ledger.objects("Vmi").expect("is read");
    assert_eq!((objects.len(), version), (WRITERS * WRITES, 200));
    let mut versions: Vec<u64> = objects
        .iter()
        .map(|(_, row)| row.resource_version)
        .collect();
    versions.sort_unstable();
    assert_eq!(versions, (1..=200).collect::<Vec<u64>>());
}

#[test]
fn a_write_that_fails_halfway_leaves_nothing_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path(), 100);
    let failed = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.put(&key("Vmi", "web"), object("u", version, None, "a=b"))?;
        Err::<(), _>(StoreError::Closed)
    });
    assert!(matches!(failed, Err(StoreError::Closed)));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        ledger.write(|_| -> Result<(), StoreError> { panic!("of the test") })
    }));
    assert!(panicked.is_err());
    assert_eq!(put(&ledger, "Vmi", "db", None, "a=b"), 1);
    assert_eq!(ledger.object(&key("Vmi", "web")).expect("is read"), None);
}

#[test]
fn keys_of_an_object_go_with_it_and_those_of_others_stay() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path(), 100);
    for name in ["a", "b"] {
        put(&ledger, "Vmi", name, None, "a=b");
    }
    let written = ledger.write(|transaction| {
        for (key, uid) in [("k1", "a"), ("k2", "a"), ("k3", "b")] {
            transaction.put_idempotency_key(key, uid)?;
        }
        transaction.remove(&key("Vmi", "a"), object("a", 3, None, "a=b"))
    });
    written.expect("is written");
    let uid = |key: &str| ledger.uid_of_idempotency_key(key).expect("is read");
    assert_eq!(
        [uid("k1"), uid("k2"), uid("k3")],
        [None, None, Some(String::from("b"))]
    );
}

/// A row of the change log.
#[derive(Clone, PartialEq, Message)]
struct ChangeRow {
    #[prost(uint32, tag = "1")]
    kind: u32,
    #[prost(string, tag = "2")]
    key: String,
    #[prost(message, optional, tag = "3")]
    object: Option<StoredObject>,
}

/// A ledger as the release before wrote it.
fn write_format_1(file: &Path) -> Result<(), Box<dyn std::error::Error>> {
    const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
    const UIDS: TableDefinition<'_, &str, &str> = TableDefinition::new("uids");
    const CHANGES: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("changes");
    const IDEMPOTENCY: TableDefinition<'_, &str, &str> = TableDefinition::new("idempotency");
    let database = Database::create(file)?;
    let write = database.begin_write()?;
    {
        let mut meta = write.open_table(META)?;
        for (name, value) in [("format", 1), ("version", 12), ("compacted", 9)] {
            meta.insert(name, value)?;
        }
        write.open_table(IDEMPOTENCY)?.insert("k", "web")?;
        for name in ["records", "assignments", "control_planes", "maintenance"] {
            let table: TableDefinition<'_, &str, &[u8]> = TableDefinition::new(name);
            write.open_table(table)?;
        }
        let mut objects = write.open_table(OBJECTS)?;
        let mut uids = write.open_table(UIDS)?;
        let mut changes = write.open_table(CHANGES)?;
        for (version, kind, name) in [(10, "Vmi", "web"), (11, "Event", "e"), (12, "Vmi", "db")] {
            let object = object(name, version, None, "app=web");
            let row = format!("{kind}\u{0}default\u{0}{name}");
            objects.insert(row.as_str(), object.encode_to_vec().as_slice())?;
            uids.insert(name, row.as_str())?;
            let change = ChangeRow {
                kind: 1,
                key: row,
                object: Some(object),
            };
            changes.insert(version, change.encode_to_vec().as_slice())?;
        }
    }
    write.commit()?;
    Ok(())
}

#[test]
fn the_ledger_of_the_release_before_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    write_format_1(&directory.path().join("ledger.redb")).expect("is written");
    let checked = Ledger::check(&directory.path().join("ledger.redb")).expect("is read");
    assert_eq!(checked.problems, Vec::<String>::new());
    let ledger = open(directory.path(), 100);
    let some = ledger.changes_after("Vmi", 9, 10).expect("is kept");
    let output: Vec<_> = some
        .changes
        .iter()
        .map(|it| (it.version, it.kind))
        .collect();
    assert_eq!(output, [(10, ChangeKind::Added), (12, ChangeKind::Added)]);
    for kind in ["Vmi", "Event", "Secret"] {
        let expired = ledger.changes_after(kind, 8, 10);
        assert!(
            matches!(expired, Err(StoreError::Expired { oldest: 9, .. })),
            "{kind}"
        );
    }
    let found = ledger.owned_or_labelled(("Vmi", "default"), "none", "app=web");
    assert_eq!(found.expect("is read").0.len(), 2);
    let gone = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.remove(&key("Vmi", "web"), object("web", version, None, "app=web"))
    });
    gone.expect("is removed");
    assert_eq!(ledger.uid_of_idempotency_key("k").expect("is read"), None);
    drop(ledger);
    let again = Ledger::check(&directory.path().join("ledger.redb")).expect("is read");
    assert_eq!((again.format, again.problems), (4, Vec::new()));
}

//! The ledger on real files.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use agent_domain::ChangeKind;
use agent_plan::{Record, Timestamp, VmiId};
use agent_store::{Ledger, Limits, ObjectKey, OpenError, Page, StoreError, StoredObject};

const KIND: &str = "VirtualMachineInstance";

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: KIND.to_owned(),
        namespace: String::from("default"),
        name: name.to_owned(),
    }
}

fn object(uid: &str, generation: i64, version: u64, spec: &[u8]) -> StoredObject {
    StoredObject {
        uid: uid.to_owned(),
        generation,
        resource_version: version,
        spec_digest: spec.to_vec(),
        object: [b"whole object with ", spec].concat(),
        sealed: None,
    }
}

fn put(
    ledger: &Ledger,
    name: &str,
    uid: &str,
    generation: i64,
    spec: &[u8],
) -> Result<u64, StoreError> {
    ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.put(&key(name), object(uid, generation, version, spec))?;
        Ok(version)
    })
}

fn open(directory: &Path) -> Ledger {
    Ledger::open(&directory.join("ledger.redb"), Limits::default()).expect("the ledger opens")
}

#[test]
fn what_was_written_is_there_after_reopening() {
    let directory = tempfile::tempdir().expect("a directory");
    let record = Record::new(
        VmiId {
            uid: String::from("u1"),
            namespace: String::from("default"),
            name: String::from("web"),
        },
        Timestamp(7),
    );
    {
        let ledger = open(directory.path());
        put(&ledger, "web", "u1", 1, b"a").expect("put");
        ledger
            .write(|transaction| transaction.begin_record(&record))
            .expect("record");
        ledger
            .write(|transaction| transaction.put_idempotency_key("k", "u1"))
            .expect("key");
    }
    let ledger = open(directory.path());
    let stored = ledger.object(&key("web")).expect("read").expect("there");
    assert_eq!(stored, object("u1", 1, 1, b"a"));
    assert_eq!(ledger.record("u1").expect("read"), Some(record));
    assert_eq!(ledger.key_of("u1").expect("read"), Some(key("web")));
    assert_eq!(
        ledger.uid_of_idempotency_key("k").expect("read").as_deref(),
        Some("u1")
    );
}

#[test]
fn an_older_generation_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    put(&ledger, "web", "u1", 2, b"a").expect("put");
    let refused = put(&ledger, "web", "u1", 1, b"a");
    assert!(
        matches!(
            refused,
            Err(StoreError::Stale {
                offered: 1,
                stored: 2
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn the_same_generation_with_another_spec_is_refused_and_with_the_same_accepted() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    put(&ledger, "web", "u1", 1, b"a").expect("put");
    assert!(matches!(
        put(&ledger, "web", "u1", 1, b"b"),
        Err(StoreError::Altered { generation: 1 })
    ));
    put(&ledger, "web", "u1", 1, b"a").expect("the same again");
}

#[test]
fn a_failed_transaction_changes_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    put(&ledger, "web", "u1", 1, b"a").expect("put");
    let refused: Result<(), StoreError> = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.put(&key("other"), object("u2", 1, version, b"x"))?;
        Err(StoreError::Altered { generation: 0 })
    });
    assert!(refused.is_err());
    assert_eq!(ledger.object(&key("other")).expect("read"), None);
    assert_eq!(ledger.version().expect("read"), 1);
}

#[test]
fn removing_takes_record_and_keys_along_and_twice_is_success() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    put(&ledger, "web", "u1", 1, b"a").expect("put");
    ledger
        .write(|transaction| transaction.put_idempotency_key("k", "u1"))
        .expect("key");
    for _ in 0..2 {
        ledger
            .write(|transaction| {
                transaction.remove(
                    &key("web"),
                    object("u1", 1, transaction.next_version(), b"a"),
                )
            })
            .expect("remove");
    }
    assert_eq!(ledger.object(&key("web")).expect("read"), None);
    assert_eq!(ledger.key_of("u1").expect("read"), None);
    assert_eq!(ledger.uid_of_idempotency_key("k").expect("read"), None);
    assert_eq!(ledger.version().expect("read"), 2);
}

#[test]
fn changes_can_be_followed_from_any_kept_version() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    put(&ledger, "a", "u1", 1, b"x").expect("put");
    put(&ledger, "b", "u2", 1, b"x").expect("put");
    put(&ledger, "a", "u1", 2, b"y").expect("put");
    let kinds: Vec<(u64, ChangeKind)> = ledger
        .changes_after(KIND, 1, 10)
        .expect("read")
        .changes
        .into_iter()
        .map(|change| (change.version, change.kind))
        .collect();
    assert_eq!(kinds, [(2, ChangeKind::Added), (3, ChangeKind::Modified)]);
    assert_eq!(ledger.changes_after(KIND, 3, 10).expect("read").changes, []);
    assert!(matches!(
        ledger.changes_after(KIND, 4, 10),
        Err(StoreError::Expired { .. })
    ));
    let (objects, version) = ledger.objects(KIND).expect("read");
    assert_eq!((objects.len(), version), (2, 3));
}

#[test]
fn a_version_that_is_too_old_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = Ledger::open(&directory.path().join("l"), Limits { changes: 3 }).expect("opens");
    for round in 1..=10_i64 {
        put(&ledger, "a", "u1", round, &round.to_le_bytes()).expect("put");
    }
    assert!(matches!(
        ledger.changes_after(KIND, 6, 10),
        Err(StoreError::Expired {
            wanted: 6,
            oldest: 7
        })
    ));
    assert_eq!(
        ledger
            .changes_after(KIND, 7, 10)
            .expect("kept")
            .changes
            .len(),
        3
    );
}

#[test]
fn the_same_name_under_a_new_uid_is_an_added_object() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    put(&ledger, "web", "u1", 5, b"a").expect("put");
    ledger
        .write(|transaction| {
            transaction.remove(
                &key("web"),
                object("u1", 5, transaction.next_version(), b"a"),
            )
        })
        .expect("remove");
    put(&ledger, "web", "u2", 1, b"b").expect("generation begins anew");
    let kinds: Vec<ChangeKind> = ledger
        .changes_after(KIND, 0, 10)
        .expect("read")
        .changes
        .into_iter()
        .map(|change| change.kind)
        .collect();
    assert_eq!(
        kinds,
        [ChangeKind::Added, ChangeKind::Deleted, ChangeKind::Added]
    );
}

#[test]
fn a_second_agent_is_refused_a_ledger_in_use() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    let _first = Ledger::open(&path, Limits::default()).expect("opens");
    assert!(matches!(
        Ledger::open(&path, Limits::default()),
        Err(OpenError::InUse { .. })
    ));
}

#[test]
fn a_file_that_is_no_ledger_is_called_damaged() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    std::fs::write(&path, vec![0x5a; 65536]).expect("write");
    let refused = Ledger::open(&path, Limits::default());
    assert!(
        matches!(refused, Err(OpenError::Damaged { .. })),
        "{refused:?}"
    );
}

#[test]
fn a_ledger_that_lost_its_end_is_refused_or_whole_and_never_panics() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    {
        let ledger = open(directory.path());
        for round in 0..50 {
            put(
                &ledger,
                &format!("vm{round}"),
                &format!("u{round}"),
                1,
                &[7; 2000],
            )
            .expect("put");
        }
    }
    let whole = std::fs::read(&path).expect("read");
    for kept in [0, 1, 100, 4096, whole.len() / 2, whole.len() - 4096] {
        std::fs::write(&path, &whole[..kept]).expect("write");
        match Ledger::open(&path, Limits::default()) {
            Ok(ledger) => drop(ledger.objects(KIND)),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

#[test]
fn a_ledger_of_a_newer_release_is_refused_and_left_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    drop(open(directory.path()));
    {
        let database = redb::Database::open(&path).expect("opens");
        let write = database.begin_write().expect("begins");
        let meta: redb::TableDefinition<'_, &str, u64> = redb::TableDefinition::new("meta");
        write
            .open_table(meta)
            .expect("table")
            .insert("format", 99)
            .expect("insert");
        write.commit().expect("commit");
    }
    let refused = Ledger::open(&path, Limits::default());
    assert!(
        matches!(
            refused,
            Err(OpenError::Newer {
                found: 99,
                known: 4,
                ..
            })
        ),
        "{refused:?}"
    );
}

const CHILD_LEDGER: &str = "KVMLET_TEST_LEDGER";

/// Not a test of its own: the writer that `what_was_acknowledged_survives_kill_9` kills.
#[test]
fn writer_of_the_kill_test() {
    let Ok(path) = std::env::var(CHILD_LEDGER) else {
        return;
    };
    let ledger = Ledger::open(Path::new(&path), Limits { changes: 16 }).expect("the ledger opens");
    loop {
        let next = ledger.version().expect("read") + 1;
        let (name, generation) = (
            format!("vm{}", next % 7),
            i64::try_from(next).expect("fits"),
        );
        if next.is_multiple_of(2) {
            put(&ledger, &name, &name, generation, &vec![1; 3000]).expect("put");
        } else {
            let (sender, done) = std::sync::mpsc::channel();
            ledger.submit(
                move |transaction| {
                    let version = transaction.next_version();
                    let object = object(&name, generation, version, &vec![1; 3000]);
                    transaction.put(&key(&name), object)
                },
                move |result: Result<(), StoreError>| drop(sender.send(result)),
            );
            done.recv().expect("is acknowledged").expect("put");
        }
        println!("ack {next}");
        std::io::stdout().flush().expect("flush");
    }
}

#[test]
fn what_was_acknowledged_survives_kill_9() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    for round in 0..8_usize {
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args([
                "--exact",
                "writer_of_the_kill_test",
                "--nocapture",
                "--test-threads=1",
            ])
            .env(CHILD_LEDGER, &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("spawns");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let acknowledged = lines
            .map_while(Result::ok)
            .filter_map(|line| {
                line.rsplit_once("ack ")
                    .and_then(|(_, version)| version.parse::<u64>().ok())
            })
            .nth(3 + round * 5)
            .expect("acknowledges");
        child.kill().expect("kill -9");
        child.wait().expect("reaped");
        let ledger =
            Ledger::open(&path, Limits { changes: 16 }).expect("the ledger opens after kill -9");
        let version = ledger.version().expect("read");
        assert!(
            version >= acknowledged,
            "{acknowledged} was acknowledged, {version} is there"
        );
        let (objects, _) = ledger.objects(KIND).expect("read");
        let newest = objects
            .iter()
            .map(|(_, object)| object.resource_version)
            .max();
        assert_eq!(
            newest,
            Some(version),
            "objects and version are of one transaction"
        );
    }
}

#[test]
fn pages_together_are_all_objects_of_a_kind_whatever_their_size() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let mut names = vec!["b", "a", "a.b", "a-b", "c"];
    for (index, name) in names.iter().enumerate() {
        put(
            &ledger,
            name,
            &format!("u{index}"),
            1,
            &vec![b'x'; 100 * index],
        )
        .expect("put");
    }
    names.sort_unstable();
    for (objects, bytes) in [
        (1, usize::MAX),
        (2, usize::MAX),
        (9, 1),
        (9, 250),
        (9, 9000),
    ] {
        let page = Page { objects, bytes };
        let (mut seen, mut after) = (Vec::new(), None::<ObjectKey>);
        loop {
            let last = after.as_ref();
            let last = last.map(|key| (key.namespace.as_str(), key.name.as_str()));
            let (rows, version) = ledger.objects_after(KIND, last, page).expect("read");
            assert_eq!(version, 5);
            assert!(rows.len() <= objects);
            let Some((key, _)) = rows.last() else { break };
            after = Some(key.clone());
            seen.extend(rows.into_iter().map(|(key, _)| key.name));
        }
        assert_eq!(seen, names, "{page:?}");
    }
    let gone = Some(("default", "aa"));
    let page = Page {
        objects: 1,
        bytes: 1,
    };
    let (rows, _) = ledger.objects_after(KIND, gone, page).expect("read");
    assert_eq!(rows[0].0, key("b"));
    let (rows, _) = ledger.objects_after("Virtual", None, page).expect("read");
    assert!(rows.is_empty());
}

#[test]
fn objects_are_shown_in_one_namespace_or_in_all_and_no_more_after_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let places = [("a", "x"), ("a", "y"), ("ab", "x"), ("b", "x")];
    for (at, (namespace, name)) in places.iter().enumerate() {
        let key = ObjectKey {
            namespace: (*namespace).to_owned(),
            ..key(name)
        };
        let stored = ledger.write(|transaction| {
            let version = transaction.next_version();
            let uid = format!("{namespace}/{name}");
            transaction.put(&key, object(&uid, 1, version, &[0; 1][..at.min(1)]))
        });
        stored.map_err(|error: StoreError| error).expect("put");
    }
    let shown = |namespace| {
        let mut uids = Vec::new();
        let version = ledger.show_each((KIND, namespace), |shown| {
            let stored = shown.to_stored()?;
            assert_eq!(shown.object(), stored.object);
            uids.push(stored.uid);
            Ok::<_, StoreError>(())
        });
        assert_eq!(version.expect("is read"), 4);
        uids
    };
    assert_eq!(shown(None), ["a/x", "a/y", "ab/x", "b/x"]);
    assert_eq!(shown(Some("a")), ["a/x", "a/y"]);
    assert_eq!(shown(Some("none")), Vec::<String>::new());
    let mut count = 0;
    let stopped = ledger.show_each((KIND, None), |_| {
        count += 1;
        Err::<(), _>(StoreError::Closed)
    });
    assert!(matches!(stopped, Err(StoreError::Closed)));
    assert_eq!(count, 1);
}

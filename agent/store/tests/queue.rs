//! Writes that nobody blocks for.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use agent_store::{Ledger, Limits, ObjectKey, StoreError, StoredObject, Transaction};

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: String::from("Vmi"),
        namespace: String::from("default"),
        name: name.to_owned(),
    }
}

fn put(transaction: &mut Transaction<'_>, name: &str) -> Result<u64, StoreError> {
    let version = transaction.next_version();
    let object = StoredObject {
        uid: name.to_owned(),
        resource_version: version,
        ..StoredObject::default()
    };
    transaction.put(&key(name), object)?;
    Ok(version)
}

fn open(directory: &Path) -> Ledger {
    Ledger::open(&directory.join("ledger.redb"), Limits::default()).expect("the ledger opens")
}

/// Asks for a write; its result comes to the receiver.
fn submit<T: Send + 'static>(
    ledger: &Ledger,
    work: impl FnOnce(&mut Transaction<'_>) -> Result<T, StoreError> + Send + 'static,
) -> Receiver<Result<T, StoreError>> {
    let (sender, result) = channel();
    ledger.submit(work, move |done| drop(sender.send(done)));
    result
}

/// Has the ledger's thread wait in the midst of a write, so that what is asked for until it goes on is one batch.
fn hold(ledger: &Ledger) -> impl FnOnce() + use<> {
    let (held, is_held) = channel();
    let (go_on, may_go_on) = channel::<()>();
    drop(submit(ledger, move |_| {
        held.send(()).expect("the test listens");
        may_go_on.recv().expect_err("the test lets go");
        Ok(())
    }));
    is_held.recv().expect("it runs");
    move || drop(go_on)
}

#[test]
fn submitted_writes_are_stored_in_turn_and_acknowledged_once_they_are_on_disk() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let go_on = hold(&ledger);
    let results: Vec<_> = (0..100)
        .map(|number| {
            submit(&ledger, move |transaction| {
                put(transaction, &format!("{number}"))
            })
        })
        .collect();
    assert!(
        results[0].try_recv().is_err(),
        "it has a result before its sync"
    );
    assert_eq!(
        ledger.version().expect("is read"),
        0,
        "readers see it before"
    );
    go_on();
    for (result, version) in results.into_iter().zip(1..) {
        assert_eq!(
            result.recv().expect("has a result").expect("is stored"),
            version
        );
        assert!(ledger.version().expect("is read") >= version);
    }
    drop(ledger);
    let (objects, version) = open(directory.path()).objects("Vmi").expect("is read");
    assert_eq!((objects.len(), version), (100, 100));
}

#[test]
fn a_refused_write_harms_none_of_its_batch() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let go_on = hold(&ledger);
    let first = submit(&ledger, |transaction| put(transaction, "first"));
    let refused = submit(&ledger, |_| Err::<(), _>(StoreError::Closed));
    let last = submit(&ledger, |transaction| put(transaction, "last"));
    go_on();
    assert_eq!(first.recv().expect("has a result").expect("is stored"), 1);
    let sender = refused.recv().expect("has a result");
    assert!(matches!(sender, Err(StoreError::Closed)), "{sender:?}");
    assert_eq!(last.recv().expect("has a result").expect("is stored"), 2);
}

#[test]
fn a_write_that_fails_halfway_takes_those_before_it_along() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let go_on = hold(&ledger);
    let first = submit(&ledger, |transaction| put(transaction, "first"));
    let refused = submit(&ledger, |_| Err::<(), _>(StoreError::Closed));
    let halfway = submit(&ledger, |transaction| {
        put(transaction, "halfway")?;
        Err::<(), _>(StoreError::Closed)
    });
    let refused_later = submit(&ledger, |_| Err::<(), _>(StoreError::Closed));
    let last = submit(&ledger, |transaction| put(transaction, "last"));
    go_on();
    let first = first.recv().expect("has a result");
    assert!(matches!(first, Err(StoreError::NotShared { .. })));
    for failed in [refused, halfway, refused_later] {
        let sender = failed.recv().expect("has a result");
        assert!(matches!(sender, Err(StoreError::Closed)), "{sender:?}");
    }
    assert_eq!(last.recv().expect("has a result").expect("is stored"), 1);
    let (objects, _) = ledger.objects("Vmi").expect("is read");
    let names: Vec<&str> = objects.iter().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!(names, ["last"]);
}

#[test]
fn a_write_that_panics_is_not_acknowledged_and_the_ledger_goes_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let go_on = hold(&ledger);
    let before = submit(&ledger, |transaction| put(transaction, "before"));
    let panicked = submit(&ledger, |transaction| -> Result<(), StoreError> {
        put(transaction, "panicked")?;
        panic!("of the test")
    });
    let after = submit(&ledger, |transaction| put(transaction, "after"));
    go_on();
    let before = before.recv().expect("has a result");
    assert!(matches!(before, Err(StoreError::NotShared { .. })));
    assert!(panicked.recv().is_err(), "it has a result");
    assert_eq!(after.recv().expect("has a result").expect("is stored"), 1);
}

#[test]
fn what_is_in_the_queue_is_carried_out_before_the_ledger_is_closed() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    let go_on = hold(&ledger);
    let result = submit(&ledger, |transaction| put(transaction, "web"));
    go_on();
    drop(ledger);
    assert_eq!(result.recv().expect("has a result").expect("is stored"), 1);
    let ledger = open(directory.path());
    assert!(ledger.object(&key("web")).expect("is read").is_some());
}

#[test]
fn the_last_to_hold_the_ledger_may_be_a_write_of_its_own() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = std::sync::Arc::new(open(directory.path()));
    let held = std::sync::Arc::clone(&ledger);
    let (sender, result) = channel();
    let go_on = hold(&ledger);
    ledger.submit(
        |transaction| put(transaction, "web"),
        move |done| {
            drop(held);
            drop(sender.send(done));
        },
    );
    drop(ledger);
    go_on();
    assert_eq!(result.recv().expect("has a result").expect("is stored"), 1);
}

#[test]
fn writes_of_both_ways_share_what_there_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(directory.path());
    std::thread::scope(|scope| {
        for writer in 0..4 {
            let ledger = &ledger;
            scope.spawn(move || {
                for number in 0..50 {
                    let name = format!("{writer}-{number}");
                    let version = if number % 2 == 0 {
                        let sender = submit(ledger, move |transaction| put(transaction, &name));
                        sender.recv().expect("has a result")
                    } else {
                        ledger.write(|transaction| put(transaction, &name))
                    };
                    let version = version.expect("is stored");
                    assert!(ledger.version().expect("is read") >= version);
                }
            });
        }
    });
    let (objects, version) = ledger.objects("Vmi").expect("is read");
    assert_eq!((objects.len(), version), (200, 200));
}

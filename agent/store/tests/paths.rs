//! Whose paths of the host are, on real files.

use std::collections::BTreeSet;
use std::path::Path;

use agent_domain::PathRecord;
use agent_store::{Ledger, Limits, StoreError};
use redb::TableDefinition;

const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
const PATHS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("paths");

fn open(path: &Path) -> Ledger {
    Ledger::open(path, Limits::default()).expect("the ledger opens")
}

fn record(namespaces: &[&str], exclusive: bool) -> PathRecord {
    PathRecord {
        namespaces: namespaces.iter().map(|&name| name.to_owned()).collect(),
        exclusive,
        since: u64::from(exclusive) * 7,
    }
}

/// Changes a ledger behind the back of this release.
fn change(path: &Path, work: impl FnOnce(&redb::WriteTransaction)) {
    let database = redb::Database::open(path).expect("opens");
    let write = database.begin_write().expect("begins");
    work(&write);
    write.commit().expect("commits");
}

#[test]
fn paths_are_remembered_beyond_the_life_of_an_agent_and_counted_by_namespace() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    let shared = record(&["a", "b"], false);
    let owned = record(&["a"], true);
    {
        let ledger = open(&path);
        let counted: Result<_, StoreError> = ledger.write(|transaction| {
            transaction.put_path("/images/debian", &shared)?;
            transaction.put_path("/srv/x.img", &owned)?;
            assert_eq!(transaction.path_record("/srv/x.img")?, Some(owned.clone()));
            assert_eq!(transaction.path_record("/srv")?, None);
            Ok((transaction.paths_of("a")?, transaction.paths_of("b")?))
        });
        assert_eq!(counted.expect("is written"), (1, 0));
    }
    let found = open(&path).path_records().expect("can be read");
    let found: BTreeSet<_> = found
        .into_iter()
        .map(|(path, row)| (path, row.exclusive, row.since))
        .collect();
    assert_eq!(
        found,
        [
            ("/images/debian".into(), false, 0),
            ("/srv/x.img".into(), true, 7)
        ]
        .into()
    );
}

#[test]
fn only_a_ledger_of_an_earlier_release_lacks_what_its_vmis_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    assert!(!open(&path).lacks_path_records().expect("can be read"));
    change(&path, |write| {
        write.delete_table(PATHS).expect("is there");
        write
            .open_table(META)
            .expect("is there")
            .remove("paths")
            .expect("removed");
    });
    for _ in 0..2 {
        let ledger = open(&path);
        assert!(ledger.lacks_path_records().expect("can be read"));
        assert!(ledger.path_records().expect("can be read").is_empty());
    }
    let noted: Result<(), StoreError> =
        open(&path).write(|transaction| transaction.note_path_records());
    noted.expect("is written");
    assert!(!open(&path).lacks_path_records().expect("can be read"));
}

#[test]
fn a_path_whose_row_cannot_be_read_is_named_by_the_check() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    drop(open(&path));
    change(&path, |write| {
        let mut paths = write.open_table(PATHS).expect("is there");
        paths
            .insert("/srv/x.img", b"{".as_slice())
            .expect("inserted");
    });
    let checked = Ledger::check(&path).expect("can be read");
    assert_eq!(checked.wrong, 1, "{:?}", checked.problems);
    assert!(
        checked.problems[0].contains("whose a path is"),
        "{:?}",
        checked.problems
    );
}

//! Ledgers that agents of earlier commits wrote, which are kept below `fixtures`: this release takes them over whole.

use std::path::{Path, PathBuf};

use agent_domain::ChangeKind;
use agent_plan::{Phase, Record, StopCause};
use agent_store::{Ledger, Limits, ObjectKey, OpenError, StoredObject};
use prost::Message;
use proto_node::events::Event;
use proto_node::to_json;
use proto_node::vmi::VirtualMachineInstance;
use redb::{Database, TableDefinition};
use serde_json::Value;

const VMI: &str = "VirtualMachineInstance";

/// A file of the agent of commit 67c6e39; see its README.
fn kept(name: &str) -> Vec<u8> {
    kept_of("67c6e39", name)
}

/// A file of the agent of a commit.
fn kept_of(commit: &str, name: &str) -> Vec<u8> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    let directory = directory.join(commit);
    let packed = std::fs::read(directory.join(format!("{name}.zst"))).expect("is kept");
    zstd::decode_all(packed.as_slice()).expect("is whole")
}

/// A copy of its ledger.
fn ledger_of_67c6e39(directory: &Path) -> PathBuf {
    let path = directory.join("ledger.redb");
    std::fs::write(&path, kept("ledger.redb")).expect("is written");
    path
}

/// What it showed of all objects.
fn shown() -> Vec<Value> {
    serde_json::from_slice(&kept("shown.json")).expect("is JSON")
}

fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or("")
}

fn key(object: &Value) -> ObjectKey {
    ObjectKey {
        kind: text(object, "/kind").to_owned(),
        namespace: text(object, "/metadata/namespace").to_owned(),
        name: text(object, "/metadata/name").to_owned(),
    }
}

fn open(path: &Path) -> Ledger {
    Ledger::open(path, Limits::default()).expect("the ledger opens")
}

/// The object of a row, as this release shows it.
fn json_of(kind: &str, row: &StoredObject) -> Value {
    let bytes = row.object.as_slice();
    if kind == VMI {
        to_json(&VirtualMachineInstance::decode(bytes).expect("a VMI"))
    } else {
        to_json(&Event::decode(bytes).expect("an event"))
    }
}

fn record_of(ledger: &Ledger, name: &str) -> Record {
    let shown = shown();
    let is_meant = |vmi: &&Value| text(vmi, "/kind") == VMI && text(vmi, "/metadata/name") == name;
    let vmi = shown.iter().find(is_meant).expect("was shown");
    let record = ledger.record(text(vmi, "/metadata/uid"));
    record.expect("is read").expect("is there")
}

#[test]
fn every_object_of_the_ledger_of_67c6e39_is_as_its_agent_showed_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = ledger_of_67c6e39(directory.path());
    let ledger = open(&path);
    let shown = shown();
    for before in &shown {
        let key = key(before);
        let row = ledger.object(&key).expect("is read").expect("is there");
        assert_eq!(&json_of(&key.kind, &row), before);
        assert_eq!(row.uid, text(before, "/metadata/uid"));
        assert_eq!(ledger.key_of(&row.uid).expect("is read"), Some(key));
        let version = text(before, "/metadata/resourceVersion");
        assert_eq!(row.resource_version.to_string(), version);
    }
    let stored = [VMI, "Event"].map(|kind| ledger.objects(kind).expect("is read").0.len());
    assert_eq!(stored, [6, 21], "and there is nothing else");
    assert_eq!(stored.iter().sum::<usize>(), shown.len());
    drop(ledger);
    let after = Ledger::check(&path).expect("is read");
    assert_eq!((after.format, after.records, after.objects), (4, 6, 27));
    assert_eq!(after.problems, Vec::<String>::new());
}

#[test]
fn records_of_67c6e39_keep_phases_guests_orders_and_places() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(&ledger_of_67c6e39(directory.path()));
    for vmi in shown().iter().filter(|object| text(object, "/kind") == VMI) {
        let name = text(vmi, "/metadata/name");
        let record = record_of(&ledger, name);
        assert_eq!(record.id.name, name);
        assert_eq!(record.id.namespace, text(vmi, "/metadata/namespace"));
        assert_eq!(
            record.phase().as_str(),
            text(vmi, "/status/phase"),
            "{name}"
        );
        let phases = vmi.pointer("/status/phaseTransitionTimestamps");
        let phases = phases.and_then(Value::as_array).expect("a list");
        let before: Vec<&str> = phases.iter().map(|entry| text(entry, "/phase")).collect();
        let after = record
            .report
            .phases
            .iter()
            .map(|entry| entry.phase.as_str());
        assert_eq!(after.collect::<Vec<_>>(), before, "{name}");
        assert!(record.allocations.pci.disks.contains_key("data"), "{name}");
    }
    // Guests that run are known again by their process; claims on the node go with them.
    for name in ["of-file", "web", "paused", "db"] {
        let record = record_of(&ledger, name);
        assert_eq!(record.launches.incarnation(), 1, "{name}");
        let launch = record.launches.present().expect("runs");
        assert!(launch.running_at.is_some(), "{name}");
        assert_eq!(
            launch.identity.as_ref().expect("is known").boot_id,
            launch.boot_id
        );
        assert!(record.allocations.reservation.is_some(), "{name}");
        assert_eq!(record.orders.paused, name == "paused");
    }
    let stopped = record_of(&ledger, "stopped");
    assert_eq!(stopped.phase(), Phase::Succeeded);
    let order = stopped.orders.stop.expect("was stopped");
    assert_eq!(order.cause, StopCause::Request);
    let waits = record_of(&ledger, "waits");
    assert!(waits.report.failures.count > 1, "{:?}", waits.report);
    let maintenance = ledger.maintenance().expect("is read");
    assert!(maintenance.cordoned_at.is_some() && maintenance.drain.is_none());
}

#[test]
fn a_watch_of_67c6e39_goes_on_where_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(&ledger_of_67c6e39(directory.path()));
    let version = ledger.version().expect("is read");
    let changes = |kind: &str, after: u64| {
        let some = ledger.changes_after(kind, after, usize::MAX);
        some.expect("is kept").changes
    };
    // All that ever was is in the log: of seven VMIs, one is gone.
    let of_vmis = changes(VMI, 0);
    let count = |kind: ChangeKind| of_vmis.iter().filter(|change| change.kind == kind).count();
    assert_eq!(
        (count(ChangeKind::Added), count(ChangeKind::Deleted)),
        (7, 1)
    );
    let gone = of_vmis
        .iter()
        .find(|change| change.kind == ChangeKind::Deleted);
    assert_eq!(gone.map(|change| change.key.name.as_str()), Some("gone"));
    let last = [changes(VMI, 0), changes("Event", 0)].concat();
    let last = last.iter().map(|change| change.version).max();
    assert!(last.is_some_and(|last| last <= version));
    for kind in [VMI, "Event"] {
        assert!(changes(kind, version).is_empty(), "{kind}");
    }
}

/// Writes another format into a ledger, and says which it was.
fn set_format(path: &Path, format: u64) -> u64 {
    const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let database = Database::open(path).expect("opens");
    let write = database.begin_write().expect("begins");
    let before = {
        let mut meta = write.open_table(META).expect("table");
        let before = meta.insert("format", format).expect("is put");
        before.expect("has a format").value()
    };
    write.commit().expect("is written");
    before
}

#[test]
fn a_ledger_of_a_format_to_come_is_refused_in_words_and_left_as_it_is() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = ledger_of_67c6e39(directory.path());
    drop(open(&path));
    let sums = |path: &Path| {
        let checked = Ledger::check(path).expect("is read");
        assert_eq!(checked.problems, Vec::<String>::new());
        (
            checked.objects,
            checked.records,
            checked.changes,
            checked.version,
        )
    };
    let before = sums(&path);
    assert_eq!(set_format(&path, 5), 4);
    let refused: [OpenError; 2] = [
        Ledger::open(&path, Limits::default()).expect_err("is newer"),
        Ledger::check(&path).expect_err("is newer"),
    ];
    for refused in refused {
        let words = "the ledger has format 5, this kvmlet knows formats up to 4; install the newer kvmlet again";
        assert_eq!(refused.to_string(), format!("{}: {words}", path.display()));
    }
    assert_eq!(set_format(&path, 4), 5);
    assert_eq!(sums(&path), before);
}

/// What a power cut left of a ledger of commit 8316a323, and its journal; see their README.
fn ledger_of_8316a323(directory: &Path) -> PathBuf {
    for name in ["ledger.redb", "ledger.redb.journal"] {
        std::fs::write(directory.join(name), kept_of("8316a323", name)).expect("is written");
    }
    directory.join("ledger.redb")
}

fn names_in(ledger: &Ledger) -> Vec<String> {
    let (objects, _) = ledger.objects("ConfigMap").expect("is read");
    objects.into_iter().map(|(key, _)| key.name).collect()
}

#[test]
fn a_journal_of_pages_is_carried_out_once() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = ledger_of_8316a323(directory.path());
    let ledger = open(&path);
    let mut expected: Vec<String> = (0..20).map(|number| format!("c{number}")).collect();
    expected.sort();
    assert_eq!(names_in(&ledger), expected);
    drop(ledger);
    assert!(!path.with_added_extension("journal").exists());
    assert_eq!(names_in(&open(&path)), expected);
}

#[test]
fn a_journal_of_pages_that_is_of_another_ledger_is_put_aside() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = ledger_of_8316a323(directory.path());
    std::fs::write(&path, kept("ledger.redb")).expect("is written");
    assert!(names_in(&open(&path)).is_empty());
    assert!(path.with_added_extension("journal.unused").exists());
}

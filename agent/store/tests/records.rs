//! Records of VMIs: their parts, and those of formats before.

use std::path::Path;

use agent_plan::{
    BootId, ClockMark, Launch, Millis, Orders, Phase, Record, StopCause, Timestamp, VmiId,
    VmmIdentity,
};
use agent_store::{Ledger, Limits, ObjectKey, StoreError, StoredObject};
use prost::Message;
use redb::{Database, TableDefinition};

const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
const UIDS: TableDefinition<'_, &str, &str> = TableDefinition::new("uids");

/// As release 0.1.0 stored it, of a guest that is being ended.
const OF_0_1_0: &str = r#"{
    "id": {"uid": "u1", "namespace": "default", "name": "web"}, "incarnation": 1,
    "launch": {"boot_id": "b", "intended_at": 1, "identity": {"boot_id": "b", "pid": 7, "start_time_ticks": 9},
        "boot_intended_at": 2, "running_at": 3},
    "phases": [{"phase": "Pending", "at": 0}, {"phase": "Running", "at": 3}],
    "failures": {"count": 0, "vmm_deaths": 0, "last": null, "retry_at": null},
    "stop": {"since": 4, "pressed_at": 5, "hard_since": null},
    "end": null, "conditions": []
}"#;

/// As format 2 had it last, with every field, of a guest whose third start came to nothing.
const OF_FORMAT_2: &str = r#"{
    "id": {"uid": "u2", "namespace": "default", "name": "db"}, "incarnation": 3, "launch": null,
    "phases": [{"phase": "Pending", "at": 10}, {"phase": "Scheduling", "at": 11}],
    "failures": {"count": 2, "vmm_deaths": 1,
        "last": {"verdict": "Retry", "reason": "VmmVanished", "message": "It is gone."}, "retry_at": 77},
    "stop": null, "end": null,
    "conditions": [{"kind": "Ready", "status": "False", "reason": "GuestNotRunning", "message": "m",
        "observed_generation": 1, "last_transition_at": 12}],
    "pci": {"disks": {"root": {"bus": 0, "device": 1}}, "interfaces": {"lan": {"bus": 1, "device": 0}},
        "singles": {"rng": {"bus": 0, "device": 2}}, "root_ports": {"1": 30}},
    "vsock_cid": 5, "pod": {"v4": "10.88.0.7"},
    "orders": {"paused": true, "lease_paused": false, "unpauses": 4,
        "stop": {"requested_at": 60, "grace": 30000, "cause": "Drain"}, "keys": ["k1"]},
    "unpauses_done": 3, "firmware": {"resets": 1, "since": 13, "told_at": 14},
    "room": {"memory_bytes": 64, "overhead_bytes": 8, "cpu_millis": 100},
    "probes": {"readiness": "Succeeded", "unhealthy": null},
    "clock": {"boot_id": "b", "began_at": 1, "set_at": null},
    "deletion": {"requested_at": 61, "since": 62},
    "guest": {"answers": true, "os": null, "interfaces": []}, "seen": {"lan": ["192.0.2.1"]},
    "judged": {"lan": {"ipv4": true, "ipv6": false}}, "credentials": "Done",
    "operation": {"reason": "Pulling", "since": 15, "at": 16, "unknown": false,
        "progress": {"reason": "", "what": "w", "done_bytes": 1, "total_bytes": 2, "bytes_per_second": 3}},
    "links_down": ["lan"]
}"#;

fn key(name: &str) -> ObjectKey {
    ObjectKey {
        kind: String::from("VirtualMachineInstance"),
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

fn open(path: &Path) -> Ledger {
    Ledger::open(path, Limits::default()).expect("the ledger opens")
}

fn write(path: &Path, work: impl FnOnce(&redb::WriteTransaction)) {
    let database = Database::create(path).expect("opens");
    let write = database.begin_write().expect("begins");
    work(&write);
    write.commit().expect("is written");
}

/// A ledger of a format before, with two VMIs.
fn write_before(path: &Path, format: u64) {
    const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");
    const CHANGES: TableDefinition<'_, (&str, u64), &[u8]> =
        TableDefinition::new("changes_by_kind");
    write(path, |write| {
        let mut meta = write.open_table(META).expect("table");
        meta.insert("format", format).expect("is put");
        meta.insert("version", 2).expect("is put");
        let mut objects = write.open_table(OBJECTS).expect("table");
        let mut uids = write.open_table(UIDS).expect("table");
        let mut records = write.open_table(RECORDS).expect("table");
        if format == 2 {
            write.open_table(CHANGES).expect("table");
        }
        for (version, name, uid, record) in
            [(1, "web", "u1", OF_0_1_0), (2, "db", "u2", OF_FORMAT_2)]
        {
            let row = format!("VirtualMachineInstance\u{0}default\u{0}{name}");
            let object = object(uid, version).encode_to_vec();
            objects
                .insert(row.as_str(), object.as_slice())
                .expect("is put");
            uids.insert(uid, row.as_str()).expect("is put");
            records.insert(uid, record.as_bytes()).expect("is put");
        }
    });
}

#[test]
fn records_of_formats_before_are_split_and_lose_nothing() {
    for format in [1, 2] {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("ledger.redb");
        write_before(&path, format);
        let before = Ledger::check(&path).expect("is read");
        assert_eq!((before.records, before.problems), (2, Vec::new()));
        let ledger = open(&path);
        let first = ledger.record("u1").expect("is read").expect("is there");
        check_first(&first);
        let second = ledger.record("u2").expect("is read").expect("is there");
        check_second(&second);
        drop(ledger);
        let after = Ledger::check(&path).expect("is read");
        assert_eq!(
            (after.format, after.records, after.problems),
            (4, 2, vec![])
        );
        // What is split is not split again.
        assert_eq!(open(&path).record("u2").expect("is read"), Some(second));
    }
}

fn check_first(record: &Record) {
    assert_eq!(record.orders, Orders::default());
    let identity = VmmIdentity {
        boot_id: BootId(String::from("b")),
        pid: 7,
        start_time_ticks: 9,
    };
    let launch = Launch {
        boot_id: BootId(String::from("b")),
        intended_at: Timestamp(1),
        identity: Some(identity),
        boot_intended_at: Some(Timestamp(2)),
        running_at: Some(Timestamp(3)),
    };
    let launches: Vec<_> = record.launches.iter().collect();
    assert_eq!(launches, [(1, Some(&launch))]);
    assert_eq!(record.phase(), Phase::Running);
    let stop = record.report.stop.as_ref().expect("is being ended");
    assert_eq!(
        (stop.pressed_at, stop.resumed_at),
        (Some(Timestamp(5)), None)
    );
}

fn check_second(record: &Record) {
    let id = VmiId {
        uid: String::from("u2"),
        namespace: String::from("default"),
        name: String::from("db"),
    };
    assert_eq!(record.id, id);
    let launches = &record.launches;
    assert_eq!((launches.incarnation(), launches.present()), (3, None));
    let stop = record.orders.stop.expect("was asked for");
    assert_eq!(
        (stop.requested_at, stop.grace, stop.cause),
        (Timestamp(60), Millis(30_000), StopCause::Drain)
    );
    let mark = ClockMark {
        boot_id: BootId(String::from("b")),
        began_at: Timestamp(1),
        set_at: None,
    };
    assert_eq!(record.orders.clock.as_ref(), Some(&mark));
    assert_eq!(record.report.clock.as_ref(), Some(&mark));
    // The rest is, field by field, what it was.
    let before: serde_json::Value = serde_json::from_str(OF_FORMAT_2).expect("is JSON");
    let orders = serde_json::to_value(&record.orders).expect("is JSON");
    let allocations = serde_json::to_value(&record.allocations).expect("is JSON");
    let report = serde_json::to_value(&record.report).expect("is JSON");
    let mut fields = 0;
    for (name, value) in before.as_object().expect("an object") {
        let after = allocations.get(name).or_else(|| report.get(name));
        if let Some(after) = after.filter(|_| name != "room") {
            assert_eq!(after, value, "{name}");
            fields += 1;
        }
    }
    assert_eq!(
        fields, 19,
        "all but id, incarnation, launch, orders and room"
    );
    let demand = record.allocations.reservation.as_ref().expect("is granted");
    assert_eq!(
        (
            demand.memory_bytes,
            demand.overhead_bytes,
            demand.cpu_millis
        ),
        (64, 8, 100)
    );
    for (name, value) in before["orders"].as_object().expect("an object") {
        assert_eq!(&orders[name], value, "{name}");
    }
}

fn id(uid: &str) -> VmiId {
    VmiId {
        uid: uid.to_owned(),
        namespace: String::from("default"),
        name: uid.to_owned(),
    }
}

fn launch(boot_id: &str) -> Launch {
    Launch {
        boot_id: BootId(boot_id.to_owned()),
        intended_at: Timestamp(1),
        identity: None,
        boot_intended_at: None,
        running_at: None,
    }
}

fn put(ledger: &Ledger, record: &Record) {
    let written = ledger.write(|transaction| {
        let version = transaction.next_version();
        let uid = record.id.uid.as_str();
        transaction.put(&key(&record.id.name), object(uid, version))?;
        transaction.begin_record(record)
    });
    written
        .map_err(|error: StoreError| error)
        .expect("is written");
}

#[test]
fn launches_of_one_vmi_are_a_list_and_go_with_it_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let ledger = open(&directory.path().join("ledger.redb"));
    // One uid is how another begins.
    let [mut one, mut other] = ["u", "u1"].map(|uid| Record::new(id(uid), Timestamp(7)));
    one.launches = [(1, Some(launch("a"))), (2, None), (9, Some(launch("b")))]
        .into_iter()
        .collect();
    other.launches.begin(4, launch("c"));
    for record in [&one, &other] {
        put(&ledger, record);
    }
    let stored = |uid: &str| ledger.record(uid).expect("is read");
    assert_eq!(stored("u"), Some(one.clone()));
    assert_eq!(stored("u1"), Some(other.clone()));
    one.launches.begin(10, launch("b"));
    put(&ledger, &one);
    assert_eq!(stored("u"), Some(one));
    let gone = ledger.write(|transaction| {
        let version = transaction.next_version();
        transaction.remove(&key("u"), object("u", version))
    });
    gone.map_err(|error: StoreError| error).expect("is removed");
    assert_eq!(stored("u"), None);
    assert_eq!(stored("u1"), Some(other));
}

#[test]
fn a_part_without_the_others_is_a_problem_and_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("ledger.redb");
    let mut record = Record::new(id("u"), Timestamp(7));
    record.launches.begin(1, launch("a"));
    put(&open(&path), &record);
    let table = |name| TableDefinition::<&str, &[u8]>::new(name);
    write(&path, |write| {
        let mut orders = write.open_table(table("orders")).expect("table");
        orders.remove("u").expect("is removed");
    });
    let checked = Ledger::check(&path).expect("is read");
    let words = "the record of \"u\": the ledger holds a record (a part of it is missing) that cannot be decoded";
    assert_eq!(checked.problems, [words]);
    assert!(open(&path).record("u").is_err());
    write(&path, |write| {
        let mut reports = write.open_table(table("reports")).expect("table");
        reports.remove("u").expect("is removed");
    });
    let checked = Ledger::check(&path).expect("is read");
    let words = "a part of a record of \"u\" has no report";
    assert_eq!(checked.problems, [words, words]);
}

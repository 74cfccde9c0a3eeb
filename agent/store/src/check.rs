//! Looking whether a ledger is sound, without an agent.

use std::collections::BTreeSet;
use std::path::Path;

use redb::{Database, ReadTransaction, ReadableDatabase, ReadableTable};

use crate::change::change;
use crate::error::{OpenError, StoreError};
use crate::file::{not_open, open_present};
use crate::ledger::Ledger;
use crate::limits::Limits;
use crate::migrate::check_old_records;
use crate::record_rows::Records;
use crate::rows::{StoredObject, decode, parse_key};
use crate::tables::{CHANGES, FORMAT, META, META_FORMAT, META_VERSION, OBJECTS, UIDS};

/// More problems than that are only counted.
const NAMED: usize = 100;

/// What a ledger holds, and what is wrong with it.
#[derive(Debug, Default)]
pub struct Checked {
    /// Format of its tables.
    pub format: u64,
    /// The version of the last change.
    pub version: u64,
    /// Objects of all kinds.
    pub objects: usize,
    /// Records of VMIs.
    pub records: usize,
    /// Changes that can be followed.
    pub changes: usize,
    /// Assignments of control planes, withdrawn ones too.
    pub assignments: usize,
    /// What is wrong: at most the first 100.
    pub problems: Vec<String>,
    /// How many problems there are.
    pub wrong: usize,
}

impl Checked {
    fn complain(&mut self, what: String) {
        self.wrong += 1;
        if self.problems.len() < NAMED {
            self.problems.push(what);
        }
    }
}

impl Ledger {
    /// Reads all of the ledger at `path`: sums of its pages, every row, and that rows fit each other. What the last
    /// agent left open when it died is brought to its end, and the tables of an earlier release get the present format,
    /// both as by the next agent; nothing else is changed.
    ///
    /// # Errors
    /// See [`OpenError`]: there is none, an agent has it, or it cannot be opened at all.
    pub fn check(path: &Path) -> Result<Checked, OpenError> {
        let mut checked = Checked::default();
        {
            let mut opened = open_present(path)?;
            let is_sound = opened.database.check_integrity();
            if !is_sound.map_err(|error| not_open(path, redb::Error::from(error).into()))? {
                checked.complain(String::from(
                    "pages were not as they should be, and were repaired",
                ));
            }
            read_all(&opened.database, &mut checked).map_err(|error| not_open(path, error))?;
        }
        if checked.format > FORMAT {
            return Err(OpenError::Newer {
                path: path.to_owned(),
                found: checked.format,
                known: FORMAT,
            });
        }
        let ledger = Self::open(path, Limits::default())?;
        match ledger.assignments() {
            Ok(assignments) => checked.assignments = assignments.len(),
            Err(error) => checked.complain(error.to_string()),
        }
        if let Err(error) = ledger.maintenance() {
            checked.complain(error.to_string());
        }
        if let Err(error) = ledger.path_records() {
            checked.complain(error.to_string());
        }
        Ok(checked)
    }
}

fn read_all(database: &Database, checked: &mut Checked) -> Result<(), StoreError> {
    let read = database.begin_read()?;
    let meta = read.open_table(META)?;
    let number = |key| Ok::<_, StoreError>(meta.get(key)?.map_or(0, |value| value.value()));
    checked.format = number(META_FORMAT)?;
    checked.version = number(META_VERSION)?;
    let mut uids = BTreeSet::new();
    for row in read.open_table(OBJECTS)?.iter()? {
        let (key, value) = row?;
        checked.objects += 1;
        let object = parse_key(key.value()).and(decode::<StoredObject>(value.value(), "an object"));
        match object {
            Ok(object) => {
                if object.resource_version > checked.version {
                    checked.complain(format!("object {:?} is of a version to come", object.uid));
                }
                uids.insert(object.uid);
            }
            Err(error) => checked.complain(error.to_string()),
        }
    }
    for row in read.open_table(UIDS)?.iter()? {
        let (uid, _) = row?;
        if !uids.contains(uid.value()) {
            checked.complain(format!("uid {:?} is no object's", uid.value()));
        }
    }
    read_records(&read, &uids, checked)?;
    let changes = match read.open_table(CHANGES) {
        Ok(changes) => changes,
        // A ledger of an older format, which the next agent brings into this one.
        Err(redb::TableError::TableDoesNotExist(_)) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    for row in changes.iter()? {
        let (entry, value) = row?;
        checked.changes += 1;
        if let Err(error) = change(entry.value().1, value.value()) {
            checked.complain(error.to_string());
        }
    }
    Ok(())
}

fn read_records(
    read: &ReadTransaction,
    uids: &BTreeSet<String>,
    checked: &mut Checked,
) -> Result<(), StoreError> {
    let (of, problems) = match Records::read(read) {
        Ok(records) => records.check()?,
        // A ledger of an older format, which the next agent brings into this one.
        Err(redb::TableError::TableDoesNotExist(_)) => check_old_records(read)?,
        Err(error) => return Err(error.into()),
    };
    checked.records = of.len();
    for problem in problems {
        checked.complain(problem);
    }
    for uid in of.iter().filter(|uid| !uids.contains(*uid)) {
        checked.complain(format!("the record of {uid:?} is no object's"));
    }
    Ok(())
}

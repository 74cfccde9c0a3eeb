//! From formats before to this one, in one transaction.
//!
//! Format 1 had one change log for all kinds, found the idempotency keys of an object by reading all of them, and had no
//! indexes. Format 2, which no release had, kept the record of a VMI in one row as format 1 did. Format 3 had no write-ahead log.

mod page_journal;
mod records;

pub(crate) use self::page_journal::recover as recover_pages;
pub(crate) use self::records::check_old_records;

use redb::{ReadableTable, TableDefinition, WriteTransaction};

use crate::change::change;
use crate::entries::Entries;
use crate::error::StoreError;
use crate::rows::{StoredObject, decode, parse_key};
use crate::tables::{CHANGES, COMPACTED, IDEMPOTENCY, KEYS_OF, OBJECTS};
use crate::written::Write;

/// The change log of format 1: version to `ChangeRow`.
const CHANGES_1: TableDefinition<'_, u64, &[u8]> = TableDefinition::new("changes");

/// Brings the tables of the format that was `found` into this one.
pub(crate) fn from(found: u64, write: &Write) -> Result<(), StoreError> {
    if found < 2 {
        from_1(&write.transaction)?;
    }
    if found < 3 {
        records::split(write)?;
    }
    Ok(())
}

/// Brings logs and indexes of format 1 into this one. `META_COMPACTED` stays: no log reaches further back than that one did.
fn from_1(write: &WriteTransaction) -> Result<(), StoreError> {
    index(write)?;
    {
        let keys = write.open_table(IDEMPOTENCY)?;
        let mut keys_of = write.open_table(KEYS_OF)?;
        for row in keys.iter()? {
            let (key, uid) = row?;
            keys_of.insert((uid.value(), key.value()), ())?;
        }
    }
    {
        let before = write.open_table(CHANGES_1)?;
        let mut changes = write.open_table(CHANGES)?;
        let mut compacted = write.open_table(COMPACTED)?;
        for row in before.iter()? {
            let (version, value) = row?;
            let kind = change(version.value(), value.value())?.key.kind;
            let log = compacted.get(kind.as_str())?;
            let (oldest, count) = log.map_or((0, 0), |log| log.value());
            compacted.insert(kind.as_str(), (oldest, count + 1))?;
            changes.insert((kind.as_str(), version.value()), value.value())?;
        }
    }
    write.delete_table(CHANGES_1)?;
    Ok(())
}

fn index(write: &WriteTransaction) -> Result<(), StoreError> {
    let objects = write.open_table(OBJECTS)?;
    let mut owned = write.open_table(crate::tables::OWNED)?;
    let mut labelled = write.open_table(crate::tables::LABELLED)?;
    for row in objects.iter()? {
        let (key, value) = row?;
        let object: StoredObject = decode(value.value(), "an object")?;
        let entries = Entries::of(&object);
        let (row, key) = (key.value().to_owned(), parse_key(key.value())?);
        for (owner, row) in entries.owned(&row) {
            owned.insert((owner, row), ())?;
        }
        for (place, name) in entries.labelled(&key) {
            labelled.insert((place.as_str(), name), ())?;
        }
    }
    Ok(())
}

//! Reading records of VMIs, and writing each part of them.

use agent_plan::{Allocations, Launches, Orders, Record, Report};
use redb::ReadableDatabase;

use crate::error::StoreError;
use crate::ledger::Ledger;
use crate::record_rows::{Records, WrittenRecords};
use crate::rows::parse_key;
use crate::tables::UIDS;
use crate::transaction::Transaction;

impl Ledger {
    /// The record of one VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn record(&self, uid: &str) -> Result<Option<Record>, StoreError> {
        self.read(|database| {
            let read = database.begin_read()?;
            let uids = read.open_table(UIDS)?;
            let Some(key) = uids.get(uid)? else {
                return Ok(None);
            };
            Records::read(&read)?.of(uid, parse_key(key.value())?)
        })
    }
}

impl<'txn> Transaction<'txn> {
    /// The record of one VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn record(&self, uid: &str) -> Result<Option<Record>, StoreError> {
        match self.key_of(uid)? {
            Some(key) => self.records.of(uid, key),
            None => Ok(None),
        }
    }

    /// Orders of all VMIs, in the order of their uids.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn orders(&self) -> Result<Vec<(String, Orders)>, StoreError> {
        self.records.orders()
    }

    /// What all VMIs have of the node, in the order of their uids.
    ///
    /// # Errors
    /// [`StoreError::Database`], [`StoreError::Undecodable`].
    pub fn allocations(&self) -> Result<Vec<Allocations>, StoreError> {
        self.records.allocations()
    }

    /// Whether there is a record of this VMI; it is not decoded.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn has_record(&self, uid: &str) -> Result<bool, StoreError> {
        self.records.has(uid)
    }

    /// Stores the record of a VMI that was just accepted. From then on each part has a writer of its own.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn begin_record(&mut self, record: &Record) -> Result<(), StoreError> {
        self.write_records(|records| records.put(record))
    }

    /// Stores the orders of a VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_orders(&mut self, uid: &str, orders: &Orders) -> Result<(), StoreError> {
        self.write_records(|records| records.put_orders(uid, orders))
    }

    /// Stores the launches of a VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_launches(&mut self, uid: &str, launches: &Launches) -> Result<(), StoreError> {
        self.write_records(|records| records.put_launches(uid, launches))
    }

    /// Stores the allocations of a VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_allocations(
        &mut self,
        uid: &str,
        allocations: &Allocations,
    ) -> Result<(), StoreError> {
        self.write_records(|records| records.put_allocations(uid, allocations))
    }

    /// Stores the report of a VMI.
    ///
    /// # Errors
    /// [`StoreError::Database`].
    pub fn put_report(&mut self, uid: &str, report: &Report) -> Result<(), StoreError> {
        self.write_records(|records| records.put_report(uid, report))
    }

    fn write_records(
        &mut self,
        write: impl FnOnce(&mut WrittenRecords<'txn>) -> Result<bool, StoreError>,
    ) -> Result<(), StoreError> {
        // What fails halfway has changed something.
        let was_changed = std::mem::replace(&mut self.changed, true);
        self.changed = write(&mut self.records)? || was_changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use agent_plan::{Timestamp, VmiId};

    use super::*;
    use crate::Limits;

    #[test]
    fn a_part_that_has_not_changed_is_not_written() -> Result<(), Box<dyn std::error::Error>> {
        let directory = tempfile::tempdir()?;
        let ledger = Ledger::open(&directory.path().join("ledger.redb"), Limits::default())?;
        let id = VmiId {
            uid: String::from("u"),
            namespace: String::from("default"),
            name: String::from("web"),
        };
        let mut record = Record::new(id, Timestamp(7));
        record.launches = [(1, None)].into_iter().collect();
        ledger.write(|transaction| transaction.begin_record(&record))?;
        ledger.write(|transaction| {
            transaction.put_orders("u", &record.orders)?;
            transaction.put_launches("u", &record.launches)?;
            transaction.put_allocations("u", &record.allocations)?;
            transaction.put_report("u", &record.report)?;
            assert!(!transaction.is_changed());
            record.report.unpauses_done = 1;
            transaction.put_report("u", &record.report)?;
            assert!(transaction.is_changed());
            Ok::<_, StoreError>(())
        })?;
        Ok(())
    }
}

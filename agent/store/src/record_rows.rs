//! Records of VMIs: a row of each part by uid, and one of each launch. Namespace and name stand with the object alone.

use agent_plan::{Allocations, Launch, Launches, Orders, Record, Report, VmiId};
use redb::{ReadOnlyTable, ReadTransaction, ReadableTable};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::StoreError;
use crate::rows::ObjectKey;
use crate::tables::{ALLOCATIONS, LAUNCHES, ORDERS, REPORTS};
use crate::written::{Rows, Write, Written};

type ByUid = &'static str;
type ByLaunch = (&'static str, u64);
type Json = &'static [u8];

/// The tables of records.
pub(crate) struct Records<Part, Launched> {
    orders: Part,
    launches: Launched,
    allocations: Part,
    reports: Part,
}

/// The same, to be written.
pub(crate) type WrittenRecords<'txn> =
    Records<Written<'txn, ByUid, Json>, Written<'txn, ByLaunch, Json>>;

impl Records<ReadOnlyTable<ByUid, Json>, ReadOnlyTable<ByLaunch, Json>> {
    pub(crate) fn read(read: &ReadTransaction) -> Result<Self, redb::TableError> {
        Ok(Self {
            orders: read.open_table(ORDERS)?,
            launches: read.open_table(LAUNCHES)?,
            allocations: read.open_table(ALLOCATIONS)?,
            reports: read.open_table(REPORTS)?,
        })
    }
}

impl<Part, Launched> Records<Part, Launched>
where
    Part: Rows<ByUid, Json>,
    Launched: Rows<ByLaunch, Json>,
{
    /// The record of the VMI whose object has `key`.
    pub(crate) fn of(&self, uid: &str, key: ObjectKey) -> Result<Option<Record>, StoreError> {
        let Some(report) = part::<Report>(&self.reports, uid, "a report")? else {
            return Ok(None);
        };
        let orders = part::<Orders>(&self.orders, uid, "orders")?;
        let allocations = part::<Allocations>(&self.allocations, uid, "allocations")?;
        let (Some(orders), Some(allocations)) = (orders, allocations) else {
            return Err(undecodable("a record", &"a part of it is missing"));
        };
        Ok(Some(Record {
            id: VmiId {
                uid: uid.to_owned(),
                namespace: key.namespace,
                name: key.name,
            },
            orders,
            launches: self.launches_of(uid)?,
            allocations,
            report,
        }))
    }

    fn launches_of(&self, uid: &str) -> Result<Launches, StoreError> {
        let rows = self.launches.rows()?.range((uid, 0)..=(uid, u64::MAX))?;
        rows.map(|row| {
            let (key, launch) = row?;
            Ok((key.value().1, decode_launch(launch.value())?))
        })
        .collect()
    }

    /// Whether there is a record of a VMI.
    pub(crate) fn has(&self, uid: &str) -> Result<bool, StoreError> {
        Ok(self.reports.rows()?.get(uid)?.is_some())
    }

    /// Orders of all VMIs, in the order of their uids.
    pub(crate) fn orders(&self) -> Result<Vec<(String, Orders)>, StoreError> {
        let rows = self.orders.rows()?.iter()?.map(|row| {
            let (uid, orders) = row?;
            Ok((uid.value().to_owned(), decode(orders.value(), "orders")?))
        });
        rows.collect()
    }

    /// Allocations of all VMIs, in the order of their uids.
    pub(crate) fn allocations(&self) -> Result<Vec<Allocations>, StoreError> {
        let rows = self.allocations.rows()?.iter()?;
        rows.map(|row| decode(row?.1.value(), "allocations"))
            .collect()
    }

    /// Uids of all records, with what is wrong with each.
    pub(crate) fn check(&self) -> Result<(Vec<String>, Vec<String>), StoreError> {
        let (mut uids, mut problems) = (Vec::new(), Vec::new());
        for row in self.reports.rows()?.iter()? {
            let uid = row?.0.value().to_owned();
            let key = ObjectKey {
                kind: String::new(),
                namespace: String::new(),
                name: String::new(),
            };
            if let Err(error) = self.of(&uid, key) {
                problems.push(format!("the record of {uid:?}: {error}"));
            }
            uids.push(uid);
        }
        for table in [&self.orders, &self.allocations] {
            for row in table.rows()?.iter()? {
                problems.extend(self.stray(row?.0.value())?);
            }
        }
        for row in self.launches.rows()?.iter()? {
            problems.extend(self.stray(row?.0.value().0)?);
        }
        Ok((uids, problems))
    }

    fn stray(&self, uid: &str) -> Result<Option<String>, StoreError> {
        let is_known = self.reports.rows()?.get(uid)?.is_some();
        Ok((!is_known).then(|| format!("a part of a record of {uid:?} has no report")))
    }
}

impl<'txn> WrittenRecords<'txn> {
    pub(crate) const fn write(write: &'txn Write) -> Self {
        Self {
            orders: write.table(ORDERS),
            launches: write.table(LAUNCHES),
            allocations: write.table(ALLOCATIONS),
            reports: write.table(REPORTS),
        }
    }

    /// Stores all of a record, as far as it is not what is stored. True when anything was written.
    pub(crate) fn put(&mut self, record: &Record) -> Result<bool, StoreError> {
        let uid = record.id.uid.as_str();
        let orders = self.put_orders(uid, &record.orders)?;
        let launches = self.put_launches(uid, &record.launches)?;
        let allocations = self.put_allocations(uid, &record.allocations)?;
        let report = self.put_report(uid, &record.report)?;
        Ok(orders | launches | allocations | report)
    }

    pub(crate) fn put_orders(&mut self, uid: &str, orders: &Orders) -> Result<bool, StoreError> {
        put(&mut self.orders, uid, orders)
    }

    pub(crate) fn put_allocations(
        &mut self,
        uid: &str,
        allocations: &Allocations,
    ) -> Result<bool, StoreError> {
        put(&mut self.allocations, uid, allocations)
    }

    pub(crate) fn put_report(&mut self, uid: &str, report: &Report) -> Result<bool, StoreError> {
        put(&mut self.reports, uid, report)
    }

    pub(crate) fn put_launches(
        &mut self,
        uid: &str,
        launches: &Launches,
    ) -> Result<bool, StoreError> {
        let mut is_changed = false;
        let mut over = Vec::new();
        for row in self.launches.rows()?.range((uid, 0)..=(uid, u64::MAX))? {
            let incarnation = row?.0.value().1;
            if launches.iter().all(|(kept, _)| kept != incarnation) {
                over.push(incarnation);
            }
        }
        for incarnation in over {
            self.launches.remove((uid, incarnation))?;
            is_changed = true;
        }
        for (incarnation, launch) in launches.iter() {
            is_changed |= put(&mut self.launches, (uid, incarnation), &launch)?;
        }
        Ok(is_changed)
    }

    /// Takes a record away, all of it.
    pub(crate) fn remove(&mut self, uid: &str) -> Result<(), StoreError> {
        self.orders.remove(uid)?;
        self.put_launches(uid, &Launches::default())?;
        self.allocations.remove(uid)?;
        self.reports.remove(uid)?;
        Ok(())
    }
}

fn part<T: DeserializeOwned>(
    table: &impl Rows<ByUid, Json>,
    uid: &str,
    what: &str,
) -> Result<Option<T>, StoreError> {
    let row = table.rows()?.get(uid)?;
    row.map(|row| decode(row.value(), what)).transpose()
}

/// Writes a row, unless it is there as it is. True when it was written.
fn put<K: redb::Key + 'static>(
    table: &mut Written<'_, K, Json>,
    key: K::SelfType<'_>,
    part: &impl Serialize,
) -> Result<bool, StoreError> {
    let row = serde_json::to_vec(part).map_err(|error| undecodable("a record", &error))?;
    let is_there = table
        .rows()?
        .get(&key)?
        .is_some_and(|before| before.value() == row.as_slice());
    if !is_there {
        table.insert(key, row.as_slice())?;
    }
    Ok(!is_there)
}

fn decode_launch(row: &[u8]) -> Result<Option<Launch>, StoreError> {
    decode(row, "a launch")
}

fn decode<T: DeserializeOwned>(row: &[u8], what: &str) -> Result<T, StoreError> {
    serde_json::from_slice(row).map_err(|error| undecodable(what, &error))
}

fn undecodable(what: &str, why: &dyn std::fmt::Display) -> StoreError {
    StoreError::Undecodable {
        what: format!("{what} ({why})"),
    }
}

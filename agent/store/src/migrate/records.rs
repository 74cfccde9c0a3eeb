//! Records of formats 1 and 2: one row for all of a VMI, which requests and its actor both wrote.

use std::collections::{BTreeMap, BTreeSet};

use agent_plan::{
    Allocations, ClockMark, Condition, CredentialsSync, End, FirmwareWatch, GuestAgentReport,
    JudgedAddresses, Launch, NotedDeletion, Orders, PciAddresses, PhaseEntry, PodAddress,
    ProbeRecord, Record, Report, ReportedOperation, ResourceDemand, SeenAddresses, StartFailures,
    StopProgress, VmiId,
};
use redb::{ReadTransaction, ReadableTable, TableDefinition};
use serde::Deserialize;

use crate::error::StoreError;
use crate::record_rows::WrittenRecords;
use crate::written::Write;

/// Uid to [`OldRecord`] as JSON.
const RECORDS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("records");

/// All of a record. Fields that came after the first release have a default.
#[derive(Deserialize)]
struct OldRecord {
    id: VmiId,
    incarnation: u64,
    launch: Option<Launch>,
    phases: Vec<PhaseEntry>,
    failures: StartFailures,
    stop: Option<StopProgress>,
    end: Option<End>,
    conditions: Vec<Condition>,
    #[serde(default)]
    pci: PciAddresses,
    #[serde(default)]
    vsock_cid: Option<u32>,
    #[serde(default)]
    pod: Option<PodAddress>,
    #[serde(default)]
    orders: Orders,
    #[serde(default)]
    unpauses_done: u64,
    #[serde(default)]
    firmware: Option<FirmwareWatch>,
    #[serde(default)]
    room: Option<ResourceDemand>,
    #[serde(default)]
    probes: ProbeRecord,
    #[serde(default)]
    clock: Option<ClockMark>,
    #[serde(default)]
    deletion: Option<NotedDeletion>,
    #[serde(default)]
    guest: Option<GuestAgentReport>,
    #[serde(default)]
    seen: SeenAddresses,
    #[serde(default)]
    judged: BTreeMap<String, JudgedAddresses>,
    #[serde(default)]
    credentials: Option<CredentialsSync>,
    #[serde(default)]
    operation: Option<ReportedOperation>,
    #[serde(default)]
    links_down: Option<BTreeSet<String>>,
}

impl From<OldRecord> for Record {
    fn from(old: OldRecord) -> Self {
        let launch = (old.incarnation > 0).then_some((old.incarnation, old.launch));
        Self {
            id: old.id,
            orders: Orders {
                // One mark stood for all times of the record.
                clock: old.clock.clone(),
                ..old.orders
            },
            launches: launch.into_iter().collect(),
            allocations: Allocations {
                pci: old.pci,
                vsock_cid: old.vsock_cid,
                pod: old.pod,
                reservation: old.room,
            },
            report: Report {
                phases: old.phases,
                failures: old.failures,
                stop: old.stop,
                end: old.end,
                conditions: old.conditions,
                unpauses_done: old.unpauses_done,
                firmware: old.firmware,
                probes: old.probes,
                clock: old.clock,
                deletion: old.deletion,
                guest: old.guest,
                seen: old.seen,
                judged: old.judged,
                credentials: old.credentials,
                operation: old.operation,
                links_down: old.links_down,
            },
        }
    }
}

/// Gives each part of a record a row of its own.
pub(super) fn split(write: &Write) -> Result<(), StoreError> {
    {
        let before = write.transaction.open_table(RECORDS)?;
        let mut records = WrittenRecords::write(write);
        for row in before.iter()? {
            records.put(&decode(row?.1.value())?)?;
        }
    }
    write.transaction.delete_table(RECORDS)?;
    Ok(())
}

/// Uids of all records that were not split yet, and what is wrong with them.
pub(crate) fn check_old_records(
    read: &ReadTransaction,
) -> Result<(Vec<String>, Vec<String>), StoreError> {
    let (mut uids, mut problems) = (Vec::new(), Vec::new());
    for row in read.open_table(RECORDS)?.iter()? {
        let (uid, record) = row?;
        uids.push(uid.value().to_owned());
        if let Err(error) = decode(record.value()) {
            problems.push(error.to_string());
        }
    }
    Ok((uids, problems))
}

fn decode(row: &[u8]) -> Result<Record, StoreError> {
    let old: Result<OldRecord, _> = serde_json::from_slice(row);
    old.map(Record::from)
        .map_err(|error| StoreError::Undecodable {
            what: format!("a record ({error})"),
        })
}

//! The tables of the database, and the format they are in.

use redb::{Key, TableDefinition, Value};

use crate::error::StoreError;

/// The format written by this release. Raised when an older release could not read a row rightly, or would not know of all rows:
/// since 4, those that changed last are in the write-ahead log alone.
pub(crate) const FORMAT: u64 = 4;

/// Numbers: see the `META_` keys.
pub(crate) const META: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
/// Format of the tables.
pub(crate) const META_FORMAT: &str = "format";
/// The last version given to a change.
pub(crate) const META_VERSION: &str = "version";
/// Changes up to this version are in no log.
pub(crate) const META_COMPACTED: &str = "compacted";
/// Whether the paths of VMIs of earlier releases are remembered.
pub(crate) const META_PATHS: &str = "paths";
/// The epoch of the write-ahead log: frames of another one do not count.
pub(crate) const META_WAL: &str = "wal";

/// `ObjectKey` row to `StoredObject`.
pub(crate) const OBJECTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");
/// Uid to `ObjectKey` row.
pub(crate) const UIDS: TableDefinition<'_, &str, &str> = TableDefinition::new("uids");
/// Uid to `agent_plan::Orders` as JSON.
pub(crate) const ORDERS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("orders");
/// Uid and incarnation to `agent_plan::Launch` as JSON, or to `null` where that came to nothing.
pub(crate) const LAUNCHES: TableDefinition<'_, (&str, u64), &[u8]> =
    TableDefinition::new("launches");
/// Uid to `agent_plan::Allocations` as JSON.
pub(crate) const ALLOCATIONS: TableDefinition<'_, &str, &[u8]> =
    TableDefinition::new("allocations");
/// Uid to `agent_plan::Report` as JSON.
pub(crate) const REPORTS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("reports");
/// Kind and version to `ChangeRow`.
pub(crate) const CHANGES: TableDefinition<'_, (&str, u64), &[u8]> =
    TableDefinition::new("changes_by_kind");
/// Kind to the version up to which its changes are no longer in the log, and how many are.
pub(crate) const COMPACTED: TableDefinition<'_, &str, (u64, u64)> =
    TableDefinition::new("compacted");
/// Idempotency key to uid.
pub(crate) const IDEMPOTENCY: TableDefinition<'_, &str, &str> = TableDefinition::new("idempotency");
/// Uid and idempotency key, to find the keys of an object that goes.
pub(crate) const KEYS_OF: TableDefinition<'_, (&str, &str), ()> = TableDefinition::new("keys_of");
/// Uid of an owner and `ObjectKey` row of what it owns.
pub(crate) const OWNED: TableDefinition<'_, (&str, &str), ()> = TableDefinition::new("owned");
/// Kind, namespace and label, and name, of objects that nobody controls.
pub(crate) const LABELLED: TableDefinition<'_, (&str, &str), ()> = TableDefinition::new("labelled");
/// Uids of objects that were removed and may have owned others, to the version that removed them.
pub(crate) const GONE: TableDefinition<'_, &str, u64> = TableDefinition::new("gone");
/// Ids of keys under which rows were encrypted that are there, or were there when the ledger was opened, to the version that first was.
pub(crate) const SEAL_KEYS: TableDefinition<'_, &str, u64> = TableDefinition::new("seal_keys");
/// Control plane, namespace and name to `agent_plan::Assignment` as JSON. Not the API's objects: outlives them.
pub(crate) const ASSIGNMENTS: TableDefinition<'_, &str, &[u8]> =
    TableDefinition::new("assignments");
/// Control plane to `ControlPlaneMark` as JSON.
pub(crate) const CONTROL_PLANES: TableDefinition<'_, &str, &[u8]> =
    TableDefinition::new("control_planes");
/// `node` to `agent_plan::Maintenance` as JSON.
pub(crate) const MAINTENANCE: TableDefinition<'_, &str, &[u8]> =
    TableDefinition::new("maintenance");
/// Path of the host to the namespaces that may go on using it, as JSON.
pub(crate) const PATHS: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("paths");
/// Namespace and name to `agent_plan::PodLease` as JSON. Outlives the objects of that name.
pub(crate) const POD_LEASES: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("pod_leases");

/// Something that is done with each table.
pub(crate) trait EachTable {
    fn table<K: Key + 'static, V: Value + 'static>(
        &mut self,
        definition: TableDefinition<'static, K, V>,
    ) -> Result<(), StoreError>;
}

/// Does it with all tables of this format.
///
/// # Errors
/// Those of `each`.
pub(crate) fn each_table(each: &mut impl EachTable) -> Result<(), StoreError> {
    each.table(META)?;
    each.table(OBJECTS)?;
    each.table(UIDS)?;
    each.table(ORDERS)?;
    each.table(LAUNCHES)?;
    each.table(ALLOCATIONS)?;
    each.table(REPORTS)?;
    each.table(CHANGES)?;
    each.table(COMPACTED)?;
    each.table(IDEMPOTENCY)?;
    each.table(KEYS_OF)?;
    each.table(OWNED)?;
    each.table(LABELLED)?;
    each.table(GONE)?;
    each.table(SEAL_KEYS)?;
    each.table(ASSIGNMENTS)?;
    each.table(CONTROL_PLANES)?;
    each.table(MAINTENANCE)?;
    each.table(PATHS)?;
    each.table(POD_LEASES)
}
